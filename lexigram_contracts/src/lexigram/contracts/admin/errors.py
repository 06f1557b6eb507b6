"""What can go wrong in the operators' console."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.errors import LexigramError


class AdminError(LexigramError):
    """A widget, a page or an action of the console failed."""

    code = "LEX_ERR_ADMIN_001"


class WidgetNotFoundError(AdminError):
    """The contributor has no widget of this name, or has not booted."""

    code = "LEX_ERR_ADMIN_002"

    def __init__(self, contributor: str, widget: str, **kwargs: Any) -> None:
        super().__init__(f"contributor {contributor!r} has no widget {widget!r}", **kwargs)
        self.contributor = contributor
        self.widget = widget

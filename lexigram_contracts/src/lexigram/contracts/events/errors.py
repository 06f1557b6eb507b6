"""What can go wrong when an event is published."""

from __future__ import annotations

from lexigram.contracts.core.errors import LexigramError


class EventError(LexigramError):
    """One or more handlers of an event failed; ``cause`` is their error or a group of them."""

    code = "LEX_ERR_EVT_001"

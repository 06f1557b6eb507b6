"""Fill ``{key}`` in a text from the state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_KEY = re.compile(r"\{(\w+)\}")


def rendered(template: str, state: Mapping[str, Any]) -> str:
    """Placeholders of keys that are there are filled; all other braces stay as they are."""

    def fill(match: re.Match[str]) -> str:
        key = match[1]
        return str(state[key]) if key in state else match[0]

    return _KEY.sub(fill, template)

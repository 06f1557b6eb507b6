"""Names of topics, and patterns of them: ``*`` stands for any text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache


def is_pattern(topic: str) -> bool:
    """True for a topic that stands for several."""
    return "*" in topic


@lru_cache(maxsize=1000)
def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a topic is meant by the pattern."""
    text = ".*".join(re.escape(part) for part in pattern.split("*"))
    found = re.compile(text, re.DOTALL).fullmatch
    return lambda topic: found(topic) is not None

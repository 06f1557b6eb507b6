"""Names of topics, and patterns of them: ``*`` stands for any text."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache


def is_pattern(topic: str) -> bool:
    """True for a topic that stands for several."""
    return "*" in topic


@lru_cache(maxsize=1000)
def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that returns whether a topic matches the pattern."""
    if not is_pattern(pattern):
        return lambda topic: topic == pattern
    first, *middle, last = pattern.split("*")

    def matches(topic: str) -> bool:
        # No regular expression: ``.*a.*a.*a`` takes time by a power of the length of a topic.
        place, end = len(first), len(topic) - len(last)
        if place > end or not topic.startswith(first) or not topic.endswith(last):
            return False
        for part in middle:
            found = topic.find(part, place, end)
            if found < 0:
                return False
            place = found + len(part)
        return True

    return matches

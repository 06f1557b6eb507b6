"""Find chunks that nearly equal an earlier one, by MinHash over triples of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

_WORD = re.compile(r"\w+")
_PERMUTATIONS = 128
_BANDS = 32  # four values each: pairs above about 0.6 are looked at, the estimate decides
_SEED = 42
_SHINGLE = 3


def near_duplicates(texts: Sequence[str], threshold: float) -> list[int | None]:
    """For each text the index of the first earlier one that it nearly equals, or None.

    Texts shorter than three words are compared as a whole.
    """
    index = NearDuplicates(threshold)
    return [index.add(text) for text in texts]


class NearDuplicates:
    """The texts seen so far; ``add`` says which of them the next one nearly equals."""

    def __init__(self, threshold: float) -> None:
        from rensa import RMinHash, RMinHashLSH  # type: ignore[import-untyped]

        self._threshold = threshold
        self._make: Callable[[int, int], Any] = RMinHash
        self._index: Any = RMinHashLSH(threshold, _PERMUTATIONS, _BANDS)
        self._hashes: dict[int, Any] = {}
        # the words of a text, for equal ones: those need no estimate
        self._equal: dict[str, int] = {}
        self._count = 0

    def add(self, text: str) -> int | None:
        """The number, from 0, of the text that this one nearly equals; None when it is new."""
        number, self._count = self._count, self._count + 1
        words = _WORD.findall(text.lower())
        original = self._equal.setdefault(" ".join(words), number)
        if original != number:
            return original
        if len(words) < _SHINGLE:
            return None
        hashed = self._make(_PERMUTATIONS, _SEED)
        hashed.update([" ".join(words[i : i + _SHINGLE]) for i in range(len(words) - 2)])
        candidates: list[int] = sorted(self._index.query(hashed))
        for candidate in candidates:
            if self._hashes[candidate].jaccard(hashed) >= self._threshold:
                return candidate
        self._hashes[number] = hashed
        self._index.insert(number, hashed)
        return None

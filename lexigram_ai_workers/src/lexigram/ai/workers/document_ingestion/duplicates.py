"""Find near-duplicate chunks, by MinHash over word triples."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

_WORD = re.compile(r"\w+")
_PERMUTATIONS = 128
# With four values per band, pairs above a similarity of about 0.6 are compared; with eight only pairs
# above about 0.8, in half the memory (2.5 KB per text).
_BANDS, _NARROW_BANDS, _NARROW_BANDS_FROM = 32, 16, 0.85
_MAX_CANDIDATES = 64  # comparing more similar texts would take quadratic time
_SEED = 42
_SHINGLE = 3


class NearDuplicates:
    """An index of texts; ``add`` finds a near-duplicate of a new text."""

    def __init__(self, threshold: float) -> None:
        from rensa import RMinHash, RMinHashLSH  # type: ignore[import-untyped]

        self._threshold = threshold
        self._make: Callable[[int, int], Any] = RMinHash
        bands = _BANDS if threshold < _NARROW_BANDS_FROM else _NARROW_BANDS
        self._index: Any = RMinHashLSH(threshold, _PERMUTATIONS, bands)
        self._hashes: dict[int, Any] = {}
        # digest of the words -> number, for exact duplicates
        self._equal: dict[bytes, int] = {}
        self._count = 0

    def add(self, text: str) -> int | None:
        """Add a text; return the number, from 0, of an earlier near-duplicate, or None."""
        number, self._count = self._count, self._count + 1
        words = _WORD.findall(text.lower())
        digest = hashlib.blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=16)
        original = self._equal.setdefault(digest.digest(), number)
        if original != number:
            return original
        if len(words) < _SHINGLE:
            return None
        hashed = self._make(_PERMUTATIONS, _SEED)
        hashed.update([" ".join(words[i : i + _SHINGLE]) for i in range(len(words) - 2)])
        candidates: list[int] = sorted(self._index.query(hashed))
        for candidate in candidates[:_MAX_CANDIDATES]:
            if self._hashes[candidate].jaccard(hashed) >= self._threshold:
                return candidate
        if (
            len(candidates) < _MAX_CANDIDATES
        ):  # of many similar texts only the first ones are indexed
            self._hashes[number] = hashed
            self._index.insert(number, hashed)
        return None

"""Embeddings from word hashes, FOR TESTS ONLY: fast and deterministic, without meaning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import sqrt
from zlib import crc32

import anyio

from lexigram.ai.workers.embeddings.batching import embed_in_thread
from lexigram.ai.workers.embeddings.checks import check_texts

DIMENSION = 256
BATCH_SIZE = 64

_WORD = re.compile(r"\w+|[^\w\s]")


class HashingEmbeddings:
    """Implements EmbeddingProviderProtocol without a model. FOR TESTS ONLY.

    Only texts with common words are similar; "car" and "automobile" are unrelated. The
    ``model_id`` contains the warning, in case such vectors are found in a store.
    """

    def __init__(self, dimension: int = DIMENSION) -> None:
        self.dimension = dimension
        self.model_id = f"hashing-for-tests-only-{dimension}"
        self._limiter = anyio.CapacityLimiter(1)

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """Return one unit vector per text; equal in every process."""
        return await embed_in_thread(check_texts(texts), BATCH_SIZE, self._embed, self._limiter)

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimension
        for word in _WORD.findall(text.lower()) or [text]:
            hashed = crc32(word.encode("utf-8", "surrogatepass"))
            vector[(hashed & 0x7FFFFFFF) % self.dimension] += 1.0 if hashed >> 31 else -1.0
        length = sqrt(sum(value * value for value in vector))
        if not length:  # opposite words cancel each other out
            vector[crc32(text.encode("utf-8", "surrogatepass")) % self.dimension] = length = 1.0
        return [value / length for value in vector]

"""A cache of embeddings by model and text."""

from __future__ import annotations

import base64
import binascii
import hashlib
from array import array
from collections.abc import Sequence
from typing import Any, Final

from lexigram.ai.workers.embeddings.checks import check_vectors
from lexigram.ai.workers.embeddings.errors import ModelsMixedError
from lexigram.ai.workers.embeddings.named import TextEmbedder
from lexigram.cache.memory import MemoryCache
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheError, CacheWriteError
from lexigram.observability import get_logger

logger = get_logger(__name__)

MAX_ENTRIES = 10_000
KEY_PREFIX = "lexigram.embedding:"  # of every key; the rest is a sha256

_FLOAT: Final = "f"  # 4 bytes per number, the precision of the models


async def embed_with_cache(
    provider: EmbeddingProviderProtocol, cache: EmbeddingCache | None, texts: Sequence[str]
) -> tuple[list[list[float]], int, int]:
    """Embed texts; returns a vector per text, the cache hits and the cache misses.

    The worker and the durable step both use it. A text that occurs twice in ``texts`` is computed
    once. Raises when the provider returns a wrong number or length of vectors. Without a cache
    all vectors are computed.
    """
    return await _embed(provider, provider.model_id, provider.dimension, cache, texts)


class EmbeddingCache:
    """Caches vectors in any CacheBackendProtocol; the key is the sha256 of model and text.

    Without a backend they are kept in this process: at most ``max_entries``, the least recently
    used is evicted. A backend of yours has its own limits. ``ttl`` is in seconds. Vectors are
    stored as 4-byte numbers. An error of the backend is logged and counts as a cache miss.
    """

    def __init__(
        self,
        backend: CacheBackendProtocol | None = None,
        max_entries: int = MAX_ENTRIES,
        ttl: float | None = None,
    ) -> None:
        self._memory_cache: MemoryCache | None = None
        if backend is None:
            backend = self._memory_cache = MemoryCache(max_entries=max_entries)
        self._backend = backend
        self._ttl = ttl
        # A cache that serializes to JSON rejects bytes.
        self._as_text = False

    async def get(self, text: str, model_name: str) -> list[float] | None:
        """Return the vector, or None."""
        vectors, _ = await self.get_batch([text], model_name)
        return vectors[0]

    async def set(self, text: str, model_name: str, embedding: Sequence[float]) -> None:
        """Store a vector."""
        await self.set_batch([(text, embedding)], model_name)

    async def get_batch(
        self, texts: Sequence[str], model_name: str
    ) -> tuple[list[list[float] | None], list[tuple[int, str]]]:
        """Return a vector or None per text, and (index, text) of the misses."""
        keys = [cache_key(text, model_name) for text in texts]
        cached: dict[str, Any] = {}
        if keys:
            cached = self._unwrap_or_default(
                await self._backend.get_many(dict.fromkeys(keys)), {}, "read"
            )
        vectors = [_unpack(cached.get(key)) for key in keys]
        miss_count = [
            (number, text)
            for number, (text, vector) in enumerate(zip(texts, vectors, strict=True))
            if vector is None
        ]
        return vectors, miss_count

    async def set_batch(
        self, pairs: Sequence[tuple[str, Sequence[float]]], model_name: str
    ) -> None:
        """Store the vectors of several texts."""
        if not pairs:
            return
        outcome = await self._write(pairs, model_name)
        refused = isinstance(outcome, Err) and isinstance(outcome.unwrap_err(), CacheWriteError)
        if refused and not self._as_text:
            self._as_text = True
            outcome = await self._write(pairs, model_name)
        self._unwrap_or_default(outcome, None, "write")

    async def clear(self) -> None:
        """Delete all vectors; other entries of the backend are kept."""
        self._unwrap_or_default(await self._backend.delete_pattern(f"{KEY_PREFIX}*"), 0, "clear")

    def size(self) -> int:
        """Number of vectors in this process; 0 with a backend of yours."""
        return 0 if self._memory_cache is None else len(self._memory_cache)

    async def get_embeddings_with_cache(
        self, texts: Sequence[str], model_name: str, provider: TextEmbedder
    ) -> tuple[list[list[float]], int, int]:
        """``embed_with_cache`` for a given model name.

        A provider with a ``model_id`` must have this one.
        """
        own = getattr(provider, "model_id", model_name)
        if own != model_name:
            raise ModelsMixedError(
                model_name,
                own,
                "the provider",
                hint=f"use the model name {own!r}, or bind another provider",
            )
        dimension = getattr(provider, "dimension", None)
        return await _embed(provider, model_name, dimension, self, texts)

    async def _write(
        self, pairs: Sequence[tuple[str, Sequence[float]]], model_name: str
    ) -> Result[None, CacheError]:
        items = {cache_key(text, model_name): self._pack(vector) for text, vector in pairs}
        return await self._backend.set_many(items, self._ttl)

    def _pack(self, vector: Sequence[float]) -> bytes | str:
        data = array(_FLOAT, vector).tobytes()
        return base64.b85encode(data).decode() if self._as_text else data

    def _unwrap_or_default(
        self, outcome: Result[Any, CacheError], default: Any, operation: str
    ) -> Any:
        if isinstance(outcome, Ok):
            return outcome.unwrap()
        logger.warning("embedding cache failed", during=operation, error=str(outcome.unwrap_err()))
        return default


async def _embed(
    embedder: TextEmbedder,
    model: str,
    dimension: int | None,
    cache: EmbeddingCache | None,
    texts: Sequence[str],
) -> tuple[list[list[float]], int, int]:
    cached: list[list[float] | None] = [None] * len(texts)
    if cache is not None:
        cached, _ = await cache.get_batch(texts, model)
    if dimension is not None:
        # Another length: the name belonged to another model before. Computed again.
        cached = [item if item is not None and len(item) == dimension else None for item in cached]
    pairs = list(zip(texts, cached, strict=True))
    unknown = list(dict.fromkeys(text for text, vector in pairs if vector is None))
    computed_by_text: dict[str, list[float]] = {}
    if unknown:
        vectors = await embedder.embed_texts(unknown)
        computed = check_vectors(vectors, len(unknown), dimension, model)
        computed_by_text = dict(zip(unknown, computed, strict=True))
        if cache is not None:
            await cache.set_batch(list(computed_by_text.items()), model)
    miss_count = sum(vector is None for vector in cached)
    vectors_in_order = [
        computed_by_text[text] if vector is None else vector for text, vector in pairs
    ]
    return vectors_in_order, len(texts) - miss_count, miss_count


def cache_key(text: str, model_name: str) -> str:
    """The cache key of a text and a model; equal in every process."""
    data = f"{model_name}\0{text}".encode("utf-8", "surrogatepass")
    return KEY_PREFIX + hashlib.sha256(data).hexdigest()


def _unpack(value: Any) -> list[float] | None:
    """Decode a cached vector; None for a missing or foreign value."""
    if isinstance(value, str):
        try:
            value = base64.b85decode(value)
        except (ValueError, binascii.Error):
            return None
    if not isinstance(value, bytes) or not value or len(value) % 4:
        return None
    vector = array(_FLOAT)
    vector.frombytes(value)
    return vector.tolist()

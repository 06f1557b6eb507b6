"""Remembers vectors by model and text, so that no text is computed twice."""

from __future__ import annotations

import base64
import binascii
import hashlib
from array import array
from collections.abc import Sequence
from typing import Any, Final

from lexigram.ai.workers.embeddings.checks import checked_vectors
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

_FLOAT: Final = "f"  # 4 bytes a number, as models compute them


async def cached_embeddings(
    provider: EmbeddingProviderProtocol, cache: EmbeddingCache | None, texts: Sequence[str]
) -> tuple[list[list[float]], int, int]:
    """A vector per text, how many were known, and how many were not.

    The one way to vectors of worker and durable step: a text is computed once, also when it
    comes twice in ``texts``; as many and as long vectors as there should be, or an error.
    Without a cache all are computed.
    """
    return await _embedded(provider, provider.model_id, provider.dimension, cache, texts)


class EmbeddingCache:
    """Vectors under the sha256 of model and text, in any CacheBackendProtocol.

    Without a backend they are in this process: at most ``max_entries``, the least recently used
    out. A backend of yours is bounded by its own settings. ``ttl`` is seconds. Vectors are kept
    as 4-byte numbers. A backend that fails costs time, never a vector: it is logged, and the
    text counts as not known.
    """

    def __init__(
        self,
        backend: CacheBackendProtocol | None = None,
        max_entries: int = MAX_ENTRIES,
        ttl: float | None = None,
    ) -> None:
        self._own: MemoryCache | None = None
        if backend is None:
            backend = self._own = MemoryCache(max_entries=max_entries)
        self._backend = backend
        self._ttl = ttl
        # A cache that serializes to JSON refuses bytes.
        self._as_text = False

    async def get(self, text: str, model_name: str) -> list[float] | None:
        """The vector, or None."""
        vectors, _ = await self.get_batch([text], model_name)
        return vectors[0]

    async def set(self, text: str, model_name: str, embedding: Sequence[float]) -> None:
        """Remember a vector."""
        await self.set_batch([(text, embedding)], model_name)

    async def get_batch(
        self, texts: Sequence[str], model_name: str
    ) -> tuple[list[list[float] | None], list[tuple[int, str]]]:
        """A vector or None per text, and place and text of those that are not known."""
        keys = [key_of(text, model_name) for text in texts]
        known: dict[str, Any] = {}
        if keys:
            known = self._taken(await self._backend.get_many(dict.fromkeys(keys)), {}, "read")
        vectors = [_unpacked(known.get(key)) for key in keys]
        misses = [
            (number, text)
            for number, (text, vector) in enumerate(zip(texts, vectors, strict=True))
            if vector is None
        ]
        return vectors, misses

    async def set_batch(
        self, pairs: Sequence[tuple[str, Sequence[float]]], model_name: str
    ) -> None:
        """Remember the vectors of several texts."""
        if not pairs:
            return
        answer = await self._write(pairs, model_name)
        refused = isinstance(answer, Err) and isinstance(answer.unwrap_err(), CacheWriteError)
        if refused and not self._as_text:
            self._as_text = True
            answer = await self._write(pairs, model_name)
        self._taken(answer, None, "write")

    async def clear(self) -> None:
        """Forget the vectors, and nothing else that is in the backend."""
        self._taken(await self._backend.delete_pattern(f"{KEY_PREFIX}*"), 0, "clear")

    def size(self) -> int:
        """Vectors kept in this process; 0 when they are in a backend of yours."""
        return 0 if self._own is None else len(self._own)

    async def get_embeddings_with_cache(
        self, texts: Sequence[str], model_name: str, provider: TextEmbedder
    ) -> tuple[list[list[float]], int, int]:
        """``cached_embeddings`` for a model under the name given here.

        A provider that has a name of its own must have this one.
        """
        own = getattr(provider, "model_id", model_name)
        if own != model_name:
            raise ModelsMixedError(
                model_name, own, "the provider", hint=f"ask for {own!r}, or bind another provider"
            )
        dimension = getattr(provider, "dimension", None)
        return await _embedded(provider, model_name, dimension, self, texts)

    async def _write(
        self, pairs: Sequence[tuple[str, Sequence[float]]], model_name: str
    ) -> Result[None, CacheError]:
        items = {key_of(text, model_name): self._packed(vector) for text, vector in pairs}
        return await self._backend.set_many(items, self._ttl)

    def _packed(self, vector: Sequence[float]) -> bytes | str:
        data = array(_FLOAT, vector).tobytes()
        return base64.b85encode(data).decode() if self._as_text else data

    def _taken(self, answer: Result[Any, CacheError], otherwise: Any, what: str) -> Any:
        if isinstance(answer, Ok):
            return answer.unwrap()
        logger.warning("the cache of vectors failed", during=what, error=str(answer.unwrap_err()))
        return otherwise


async def _embedded(
    embedder: TextEmbedder,
    model: str,
    dimension: int | None,
    cache: EmbeddingCache | None,
    texts: Sequence[str],
) -> tuple[list[list[float]], int, int]:
    known: list[list[float] | None] = [None] * len(texts)
    if cache is not None:
        known, _ = await cache.get_batch(texts, model)
    if dimension is not None:
        # Of another length: the name was given to another model before. Computed anew.
        known = [item if item is not None and len(item) == dimension else None for item in known]
    pairs = list(zip(texts, known, strict=True))
    unknown = list(dict.fromkeys(text for text, vector in pairs if vector is None))
    made: dict[str, list[float]] = {}
    if unknown:
        vectors = await embedder.embed_texts(unknown)
        computed = checked_vectors(vectors, len(unknown), dimension, model)
        made = dict(zip(unknown, computed, strict=True))
        if cache is not None:
            await cache.set_batch(list(made.items()), model)
    misses = sum(vector is None for vector in known)
    found = [made[text] if vector is None else vector for text, vector in pairs]
    return found, len(texts) - misses, misses


def key_of(text: str, model_name: str) -> str:
    """The same in every process; no two texts or models share one."""
    data = f"{model_name}\0{text}".encode("utf-8", "surrogatepass")
    return KEY_PREFIX + hashlib.sha256(data).hexdigest()


def _unpacked(kept: Any) -> list[float] | None:
    """The vector; None for nothing, and for what somebody else wrote there."""
    if isinstance(kept, str):
        try:
            kept = base64.b85decode(kept)
        except (ValueError, binascii.Error):
            return None
    if not isinstance(kept, bytes) or not kept or len(kept) % 4:
        return None
    vector = array(_FLOAT)
    vector.frombytes(kept)
    return vector.tolist()

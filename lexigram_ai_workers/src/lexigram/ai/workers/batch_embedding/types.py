"""Types of batch embedding: job, progress, result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Self, cast

from attrs import define, field, frozen

from lexigram import clock

DEFAULT_BATCH_SIZE = 100
# The default model name of the 0.1 line; it means "the model of the worker".
OLD_DEFAULT_MODEL = "text-embedding-ada-002"


class EmbeddingStatus(StrEnum):
    """Status of an attempt; COMPLETED and FAILED are final, but a failed job may be retried."""

    PENDING = "pending"
    PROCESSING = "processing"
    CACHING = "caching"
    STORING = "storing"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """True when this attempt has ended."""
        return self in (EmbeddingStatus.COMPLETED, EmbeddingStatus.FAILED)


# Positional in the 0.1 line, so not keyword-only here.
@define
class BatchEmbeddingProgress:
    """Progress of a job; the tracker updates it, readers get snapshots."""

    job_id: str
    status: EmbeddingStatus
    total_texts: int = 0
    texts_processed: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    started_at: datetime = field(factory=clock.now)
    updated_at: datetime = field(factory=clock.now)
    error: str | None = None

    @property
    def progress_percent(self) -> float:
        """Between 0 and 100; 0 for a job without texts."""
        if self.total_texts == 0:
            return 0.0
        return min(100.0, 100.0 * self.texts_processed / self.total_texts)

    @property
    def cache_hit_rate(self) -> float:
        """Cache hits in percent of the texts looked up so far."""
        total = self.cache_hits + self.cache_misses
        return 100.0 * self.cache_hits / total if total else 0.0

    def update(
        self,
        status: EmbeddingStatus | None = None,
        texts_processed: int | None = None,
        cache_hits: int | None = None,
        cache_misses: int | None = None,
        error: str | None = None,
    ) -> None:
        """Set ``texts_processed``, add hits and misses; an error sets FAILED."""
        if status is not None:
            self.status = status
        if texts_processed is not None:
            self.texts_processed = texts_processed
        self.cache_hits += cache_hits or 0
        self.cache_misses += cache_misses or 0
        if error is not None:
            self.error = error
            self.status = EmbeddingStatus.FAILED
        self.updated_at = clock.now()

    def to_dict(self) -> dict[str, Any]:
        """The progress as JSON-ready data."""
        return {
            "job_id": self.job_id,
            "status": self.status.value,
            "total_texts": self.total_texts,
            "texts_processed": self.texts_processed,
            "cache_hits": self.cache_hits,
            "cache_misses": self.cache_misses,
            "progress_percent": self.progress_percent,
            "cache_hit_rate": self.cache_hit_rate,
            "started_at": self.started_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "error": self.error,
        }


@frozen
class BatchEmbeddingResult:
    """Result of a job."""

    job_id: str
    success: bool
    embeddings_generated: int = 0
    cache_hits: int = 0
    duration_seconds: float = 0.0
    error: str | None = None
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])

    @classmethod
    def success_result(
        cls,
        job_id: str,
        embeddings_generated: int,
        cache_hits: int,
        duration: float,
        metadata: Mapping[str, Any] | None = None,
    ) -> Self:
        """The result of a job whose vectors are all stored."""
        return cls(
            job_id, True, embeddings_generated, cache_hits, duration, metadata=dict(metadata or {})
        )

    @classmethod
    def failure_result(
        cls, job_id: str, error: str, duration: float, metadata: Mapping[str, Any] | None = None
    ) -> Self:
        """The result of a job that failed permanently."""
        return cls(
            job_id,
            False,
            duration_seconds=duration,
            error=error,
            metadata=dict(metadata or {}),
        )

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-ready data."""
        return {
            "job_id": self.job_id,
            "success": self.success,
            "embeddings_generated": self.embeddings_generated,
            "cache_hits": self.cache_hits,
            "duration_seconds": self.duration_seconds,
            "error": self.error,
            "metadata": dict(self.metadata),
        }


@frozen
class BatchEmbeddingJob:
    """Chunks to embed, and the target collection."""

    # texts, objects with text and metadata, or mappings with these keys
    chunks: Sequence[Any]
    collection_name: str
    # None: the model of the worker
    model_name: str | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    use_cache: bool = True

    def to_job_kwargs(self) -> dict[str, Any]:
        """Return the arguments of the handler ``batch_embed`` as plain data."""
        return {
            "chunks": [as_chunk(chunk) for chunk in self.chunks],
            "collection_name": self.collection_name,
            "model_name": resolve_model_name(self.model_name),
            "batch_size": self.batch_size,
            "use_cache": self.use_cache,
        }


def resolve_model_name(name: str | None) -> str | None:
    """Return the requested model; None for the model of the worker."""
    return None if name in (None, "", OLD_DEFAULT_MODEL) else name


def as_chunk(chunk: Any) -> dict[str, Any]:
    """Convert a chunk to plain data: text, metadata, and the id if it has one."""
    if isinstance(chunk, str):
        return {"text": chunk, "metadata": {}}
    text, metadata, chunk_id = (_read_field(chunk, name) for name in ("text", "metadata", "id"))
    if not isinstance(text, str):
        raise TypeError(
            f"invalid chunk of type {type(chunk).__name__}: it must be a str or have a str `text`"
        )
    data: dict[str, Any] = {"text": text, "metadata": dict(metadata or {})}
    if chunk_id is not None:
        data["id"] = str(chunk_id)
    return data


def _read_field(chunk: Any, name: str) -> Any:
    """Read a key of a mapping, or an attribute of any other object."""
    if isinstance(chunk, Mapping):
        return cast("Mapping[str, Any]", chunk).get(name)
    return getattr(chunk, name, None)

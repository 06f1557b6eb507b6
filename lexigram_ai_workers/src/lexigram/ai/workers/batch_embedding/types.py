"""Values of batch embedding: a job, how far it is, how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Self, cast

from attrs import define, field, frozen

from lexigram import clock

DEFAULT_BATCH_SIZE = 100
# The model name of the 0.1 line, where every caller had to give one: it stands for "the model".
OLD_DEFAULT_MODEL = "text-embedding-ada-002"


class EmbeddingStatus(StrEnum):
    """Where a job is; COMPLETED and FAILED are final, but a failed one may be tried again."""

    PENDING = "pending"
    PROCESSING = "processing"
    CACHING = "caching"
    STORING = "storing"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """True when this attempt is over."""
        return self in (EmbeddingStatus.COMPLETED, EmbeddingStatus.FAILED)


# Positional in the 0.1 line, so not keyword-only here.
@define
class BatchEmbeddingProgress:
    """How far a job is; the tracker changes it, readers get it as it is at that moment."""

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
        """Between 0 and 100; 0 for a job without texts until it is done."""
        if self.total_texts == 0:
            return 0.0
        return min(100.0, 100.0 * self.texts_processed / self.total_texts)

    @property
    def cache_hit_rate(self) -> float:
        """Percent of the texts looked up so far that were known."""
        asked = self.cache_hits + self.cache_misses
        return 100.0 * self.cache_hits / asked if asked else 0.0

    def update(
        self,
        status: EmbeddingStatus | None = None,
        texts_processed: int | None = None,
        cache_hits: int | None = None,
        cache_misses: int | None = None,
        error: str | None = None,
    ) -> None:
        """``texts_processed`` is set; hits and misses are added; an error means FAILED."""
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
    """How a job ended."""

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
        """All texts have a vector in the store."""
        return cls(
            job_id, True, embeddings_generated, cache_hits, duration, metadata=dict(metadata or {})
        )

    @classmethod
    def failure_result(
        cls, job_id: str, error: str, duration: float, metadata: Mapping[str, Any] | None = None
    ) -> Self:
        """The job is given up."""
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
    """Chunks to embed, and where to."""

    # texts, objects with text and metadata, or mappings with these keys
    chunks: Sequence[Any]
    collection_name: str
    # None: the model of the worker
    model_name: str | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    use_cache: bool = True

    def to_job_kwargs(self) -> dict[str, Any]:
        """As the handler ``batch_embed`` takes them; plain data."""
        return {
            "chunks": [as_chunk(chunk) for chunk in self.chunks],
            "collection_name": self.collection_name,
            "model_name": meant_model(self.model_name),
            "batch_size": self.batch_size,
            "use_cache": self.use_cache,
        }


def meant_model(name: str | None) -> str | None:
    """The model a caller asks for; None for any."""
    return None if name in (None, "", OLD_DEFAULT_MODEL) else name


def as_chunk(chunk: Any) -> dict[str, Any]:
    """A chunk as plain data: text, metadata, and the id where it has one."""
    if isinstance(chunk, str):
        return {"text": chunk, "metadata": {}}
    text, metadata, known = (_told(chunk, name) for name in ("text", "metadata", "id"))
    if not isinstance(text, str):
        raise TypeError(f"a chunk is a text, or has one as `text`; not {type(chunk).__name__}")
    made: dict[str, Any] = {"text": text, "metadata": dict(metadata or {})}
    if known is not None:
        made["id"] = str(known)
    return made


def _told(chunk: Any, name: str) -> Any:
    """What a mapping has under the name, or another object as its attribute."""
    if isinstance(chunk, Mapping):
        return cast("Mapping[str, Any]", chunk).get(name)
    return getattr(chunk, name, None)

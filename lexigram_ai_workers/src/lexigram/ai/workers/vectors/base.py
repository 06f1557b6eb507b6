"""What stores and collections have in common, whatever they write to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from lexigram.ai.workers.vectors.errors import CollectionNotFoundError
from lexigram.ai.workers.vectors.records import DEFAULT_COLLECTION, config_for, records_of_texts
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.vector import (
    CollectionConfig,
    DistanceMetric,
    UpsertResult,
    VectorRecord,
    VectorStoreError,
)


class CollectionBase(ABC):
    """A collection is what it was made as, and texts are records."""

    def __init__(self, made_as: CollectionConfig) -> None:
        self.made_as = made_as

    @property
    def name(self) -> str:
        """The name of the collection."""
        return self.made_as.name

    @property
    def dimension(self) -> int:
        """The length of every vector in it."""
        return self.made_as.dimension

    @property
    def distance_metric(self) -> DistanceMetric:
        """How nearness is measured."""
        return self.made_as.distance_metric

    @property
    def model_id(self) -> str | None:
        """What made its vectors; None when nobody said."""
        return self.made_as.model_id

    @abstractmethod
    async def upsert(self, records: Sequence[VectorRecord]) -> UpsertResult:
        """Write records, replacing those with the same id."""

    async def add_texts(
        self,
        texts: Sequence[str],
        embeddings: Sequence[Sequence[float]],
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        ids: Sequence[str] | None = None,
    ) -> UpsertResult:
        """Write texts with their vectors."""
        return await self.upsert(records_of_texts(texts, embeddings, metadatas, ids))


class StoreBase(ABC):
    """A store takes texts too, and makes the collection they need."""

    @abstractmethod
    async def get_collection(self, name: str) -> CollectionBase:
        """The collection. Raises CollectionNotFoundError when there is none."""

    @abstractmethod
    async def create_collection(self, config: CollectionConfig) -> CollectionBase:
        """Make a collection; an equal one that exists is returned."""

    async def add_texts(
        self,
        texts: Sequence[str],
        embeddings: Sequence[Sequence[float]] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        collection_name: str | None = None,
    ) -> UpsertResult:
        """Write texts to a collection, making it where needed; embeddings must be given."""
        records = records_of_texts(texts, embeddings, metadatas)
        if not records:
            return UpsertResult(0)
        name = collection_name or DEFAULT_COLLECTION
        try:
            collection = await self.get_collection(name)
        except CollectionNotFoundError:
            collection = await self.create_collection(config_for(name, records))
        return await collection.upsert(records)


async def health_by(
    look: Callable[[], Awaitable[str]], component: str, timeout: float
) -> HealthCheckResult:
    """HEALTHY with what ``look`` tells, UNHEALTHY when it fails or takes too long."""
    started = anyio.current_time()
    problem, told = None, ""
    try:
        with anyio.fail_after(timeout):
            told = await look()
    except TimeoutError:
        problem = f"no answer within {timeout:g} s"
    except VectorStoreError as error:
        problem = error.message
    return HealthCheckResult(
        component=component,
        status=HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY,
        message=problem or told,
        error=problem,
        duration_ms=(anyio.current_time() - started) * 1000,
    )

"""Base classes of vector stores and collections."""

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
    """Base class of collections: the configuration, and records from texts."""

    def __init__(self, collection_config: CollectionConfig) -> None:
        self.collection_config = collection_config

    @property
    def name(self) -> str:
        """The name of the collection."""
        return self.collection_config.name

    @property
    def dimension(self) -> int:
        """The length of the vectors."""
        return self.collection_config.dimension

    @property
    def distance_metric(self) -> DistanceMetric:
        """The metric of similarity."""
        return self.collection_config.distance_metric

    @property
    def model_id(self) -> str | None:
        """The model of the vectors; None if unknown."""
        return self.collection_config.model_id

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
    """Base class of stores: adds texts, creating the collection if needed."""

    @abstractmethod
    async def get_collection(self, name: str) -> CollectionBase:
        """Return a collection. Raises CollectionNotFoundError."""

    @abstractmethod
    async def create_collection(self, config: CollectionConfig) -> CollectionBase:
        """Create a collection; an existing equal collection is returned."""

    async def add_texts(
        self,
        texts: Sequence[str],
        embeddings: Sequence[Sequence[float]] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        collection_name: str | None = None,
    ) -> UpsertResult:
        """Write texts with embeddings to a collection, creating it if needed."""
        records = records_of_texts(texts, embeddings, metadatas)
        if not records:
            return UpsertResult(0)
        name = collection_name or DEFAULT_COLLECTION
        try:
            collection = await self.get_collection(name)
        except CollectionNotFoundError:
            collection = await self.create_collection(config_for(name, records))
        return await collection.upsert(records)


async def check_health_with(
    probe: Callable[[], Awaitable[str]], component: str, timeout: float
) -> HealthCheckResult:
    """Run ``probe``: HEALTHY with its message, UNHEALTHY on an error or timeout."""
    started = anyio.current_time()
    problem, message = None, ""
    try:
        with anyio.fail_after(timeout):
            message = await probe()
    except TimeoutError:
        problem = f"no response within {timeout:g} s"
    except VectorStoreError as error:
        problem = error.message
    return HealthCheckResult(
        component=component,
        status=HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY,
        message=problem or message,
        error=problem,
        duration_ms=(anyio.current_time() - started) * 1000,
    )

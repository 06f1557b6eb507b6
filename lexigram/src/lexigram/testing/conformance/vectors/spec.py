"""What the specs of the vector store contract share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from enum import StrEnum
from typing import Any

import pytest

from lexigram.contracts.data.vector import (
    CollectionConfig,
    VectorCollectionProtocol,
    VectorRecord,
    VectorStoreProtocol,
)
from lexigram.testing.conformance.suite import ConformanceSuite

DIMENSION = 4
MODEL = "test-model"


class VectorCapability(StrEnum):
    """What a store can do. All but the last four are the core."""

    COLLECTIONS = "collections"
    RECORDS = "records"
    SEARCH = "search"
    FILTERS = "filters"
    REPLACE = "replace"
    MODELS = "models"  # vectors of two models are not mixed
    HEALTH = "health"
    METRICS = "metrics"  # euclidean and dot product besides cosine
    WORDS = "words"  # SearchMode.TEXT and HYBRID
    SHARING = "sharing"  # several stores on the same data; fixture `peer`
    MAINTENANCE = "maintenance"  # the subject is a VectorMaintenanceProtocol


class VectorSpec(ConformanceSuite):
    """The contract, the core, and a collection to work on."""

    contract = VectorStoreProtocol
    core = frozenset(VectorCapability) - {
        VectorCapability.METRICS,
        VectorCapability.WORDS,
        VectorCapability.SHARING,
        VectorCapability.MAINTENANCE,
    }

    @pytest.fixture
    async def collection(
        self, subject: VectorStoreProtocol
    ) -> AsyncIterator[VectorCollectionProtocol]:
        """An empty collection of the subject."""
        await subject.connect()
        yield await subject.create_collection(config("documents"))
        await subject.disconnect()

    @pytest.fixture
    def peer(self, subject: VectorStoreProtocol) -> VectorStoreProtocol:
        """Another store on the same data, as another process has it."""
        pytest.fail("declares 'sharing' but gives no fixture `peer`", pytrace=False)


def config(name: str, **changes: Any) -> CollectionConfig:
    """A collection for the vectors of these tests."""
    return CollectionConfig(**{"name": name, "dimension": DIMENSION, "model_id": MODEL, **changes})


def record(
    key: str,
    vector: Iterable[float] = (1.0, 0.0, 0.0, 0.0),
    content: str | None = "some text",
    **metadata: Any,
) -> VectorRecord:
    """A record with its metadata as keywords."""
    return VectorRecord(id=key, vector=list(vector), metadata=metadata, content=content)


def axis(number: int, length: float = 1.0) -> list[float]:
    """A vector along one axis."""
    return [length if n == number else 0.0 for n in range(DIMENSION)]


async def ids_in(collection: VectorCollectionProtocol, among: Iterable[str]) -> set[str]:
    """Which of these ids are there."""
    return {found.id for found in await collection.get(list(among))}

"""Contracts of vector stores."""

from lexigram.contracts.data.vector.errors import (
    EmbeddingError,
    VectorError,
    VectorIndexError,
    VectorStoreError,
)
from lexigram.contracts.data.vector.protocols import (
    VectorCollectionProtocol,
    VectorMaintenanceProtocol,
    VectorStoreProtocol,
)
from lexigram.contracts.data.vector.types import (
    CollectionConfig,
    CollectionInfo,
    DeleteResult,
    DistanceMetric,
    IndexState,
    IndexType,
    SearchMode,
    SearchQuery,
    SearchResult,
    UpsertResult,
    VectorRecord,
)

__all__ = [
    "CollectionConfig",
    "CollectionInfo",
    "DeleteResult",
    "DistanceMetric",
    "EmbeddingError",
    "IndexState",
    "IndexType",
    "SearchMode",
    "SearchQuery",
    "SearchResult",
    "UpsertResult",
    "VectorCollectionProtocol",
    "VectorError",
    "VectorIndexError",
    "VectorMaintenanceProtocol",
    "VectorRecord",
    "VectorStoreError",
    "VectorStoreProtocol",
]

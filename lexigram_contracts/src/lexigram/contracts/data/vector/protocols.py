"""Keep vectors with their texts and find the nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.core.health import HealthCheckResult
    from lexigram.contracts.data.vector.types import (
        CollectionConfig,
        CollectionInfo,
        DeleteResult,
        DistanceMetric,
        SearchQuery,
        SearchResult,
        UpsertResult,
        VectorRecord,
    )


@runtime_checkable
class VectorCollectionProtocol(Protocol):
    """Vectors of one dimension under unique ids.

    Guaranteed: one record per id, also when several processes write the same ids; a write that
    returned is durable as far as the store is, and found by ``get``. Not guaranteed: that a
    search finds it at once, that a search by index finds the exact nearest, and atomicity over
    the records of one call. Methods raise VectorStoreError when the store fails or a vector
    has the wrong dimension; then nothing of that call is promised.
    """

    @property
    def name(self) -> str:
        """The name of the collection."""
        ...

    @property
    def dimension(self) -> int:
        """The length of every vector in it."""
        ...

    @property
    def distance_metric(self) -> DistanceMetric:
        """How nearness is measured."""
        ...

    @property
    def model_id(self) -> str | None:
        """What made its vectors; None when nobody said."""
        ...

    async def upsert(self, records: Sequence[VectorRecord]) -> UpsertResult:
        """Write records, replacing those with the same id; writing again changes nothing."""
        ...

    async def replace(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
        records: Sequence[VectorRecord],
    ) -> UpsertResult:
        """Make ``records`` all there is under the filter: write them, remove the others.

        The way to store a document again: pieces it no longer has disappear. New records come
        before old ones go, so a reader never finds nothing. Raises ValueError for an empty
        filter, or a record that does not match it.
        """
        ...

    async def add_texts(
        self,
        texts: Sequence[str],
        embeddings: Sequence[Sequence[float]],
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        ids: Sequence[str] | None = None,
    ) -> UpsertResult:
        """Write texts with their vectors; all sequences have one length.

        Ids are derived from the text when not given, so adding a text again replaces it.
        """
        ...

    async def search(self, query: SearchQuery) -> Sequence[SearchResult]:
        """The nearest, best first, at most ``top_k``; equal scores in no order."""
        ...

    async def get(self, ids: Sequence[str]) -> Sequence[VectorRecord]:
        """The records that are there, in no order; unknown ids are left out."""
        ...

    async def delete(self, ids: Sequence[str]) -> DeleteResult:
        """Remove records; unknown ids are not counted."""
        ...

    async def delete_by_filter(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
    ) -> DeleteResult:
        """Remove what matches (see SearchQuery). Raises ValueError for an empty filter."""
        ...

    async def update_metadata(
        self,
        id: str,  # noqa: A002 - the name users write
        metadata: Mapping[str, Any],
    ) -> bool:
        """Replace the metadata of a record; False when it is unknown."""
        ...

    async def count(self) -> int:
        """How many records there are; may already be stale."""
        ...


@runtime_checkable
class VectorStoreProtocol(Protocol):
    """Collections of vectors. Methods raise VectorStoreError when the store fails."""

    async def connect(self) -> None:
        """Open the store; a second call does nothing."""
        ...

    async def disconnect(self) -> None:
        """Let go of the store; a second call, or one before connect, does nothing."""
        ...

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Whether the store really answers within ``timeout`` seconds; never raises."""
        ...

    async def list_collections(self) -> Sequence[CollectionInfo]:
        """All collections, by name."""
        ...

    async def create_collection(self, config: CollectionConfig) -> VectorCollectionProtocol:
        """Make a collection; an equal one that exists is returned.

        Raises VectorStoreError when one of that name differs, and VectorIndexError for an
        index type the store cannot build.
        """
        ...

    async def delete_collection(self, name: str) -> bool:
        """Remove a collection with all it holds; False when there was none."""
        ...

    async def collection_exists(self, name: str) -> bool:
        """True when there is such a collection; may already be stale."""
        ...

    async def get_collection(self, name: str) -> VectorCollectionProtocol:
        """The collection. Raises VectorStoreError when there is none."""
        ...

    async def add_texts(
        self,
        texts: Sequence[str],
        embeddings: Sequence[Sequence[float]] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        collection_name: str | None = None,
    ) -> UpsertResult:
        """Write texts to a collection, "default" when not named, making it where needed.

        Without embeddings the store computes them itself or raises EmbeddingError. Adding a
        text again replaces it.
        """
        ...


@runtime_checkable
class VectorMaintenanceProtocol(Protocol):
    """What a store with files of its own needs now and then; others do not have it."""

    async def optimize_indexes(self, collection_name: str | None = None) -> int:
        """Build and refresh the indexes of a collection, or of all; how many were worked on."""
        ...

    async def vacuum(self, collection_name: str | None = None) -> int:
        """Compact and remove old versions, nobody writing meanwhile; bytes given back."""
        ...

    async def checksum(self, collection_name: str | None = None) -> str:
        """A sha256 over the files as they are: it changes with every write of anybody."""
        ...

"""The Qdrant vector store: a server, or its local mode in a folder."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import numpy as np
from anyio.to_thread import run_sync

from lexigram.ai.workers.vectors.base import CollectionBase, StoreBase, check_health_with
from lexigram.ai.workers.vectors.errors import CollectionNotFoundError, SearchRefusedError
from lexigram.ai.workers.vectors.filters import all_facts, check_filter, filter_facts
from lexigram.ai.workers.vectors.records import (
    check_compatible,
    check_config,
    check_matches,
    check_query,
    check_records,
    json_of,
    keep_last_by_id,
    replace_metadata,
)
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.data.vector import (
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
    VectorIndexError,
    VectorRecord,
    VectorStoreError,
)
from lexigram.observability.errors import MissingLibraryError

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

T = TypeVar("T")

_METRICS: Final = {
    DistanceMetric.COSINE: "Cosine",
    DistanceMetric.EUCLIDEAN: "Euclid",
    DistanceMetric.DOT_PRODUCT: "Dot",
    DistanceMetric.MANHATTAN: "Manhattan",
}
_INDEXES: Final = (IndexType.AUTO, IndexType.FLAT, IndexType.HNSW)
# Qdrant ids are UUIDs; they are derived from record ids with this namespace.
_NAMESPACE: Final = uuid.UUID("8f5d3a52-6f0e-5d0e-9d2f-2d1a6f1f7c11")
_BATCH = 500  # points in one request


class QdrantVectorStore(StoreBase):
    """Implements VectorStoreProtocol with a Qdrant server (``url``) or a folder (``path``).

    Qdrant guarantees unique ids, so no lock is needed. A folder can be opened by one process at
    a time.
    """

    def __init__(
        self, *, url: str | None = None, api_key: str | None = None, path: str | None = None
    ) -> None:
        self._url = url
        self._api_key = api_key
        self._path = path
        self._client: QdrantClient | None = None
        # The local mode is not thread-safe.
        self._limiter = anyio.CapacityLimiter(1 if url is None else 8)
        self._opening = anyio.Lock()
        self.replacing = anyio.Lock()

    async def connect(self) -> None:
        """Open the store; a second call does nothing."""
        async with self._opening:
            if self._client is None:
                self._client = await run_sync(self._open, limiter=self._limiter)

    async def disconnect(self) -> None:
        """Close the store; the next use opens it again."""
        client, self._client = self._client, None
        if client is not None:
            await run_sync(client.close, limiter=self._limiter)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY if the collections can be listed."""

        async def probe() -> str:
            await self.call(lambda client: client.get_collections())
            return "the collections can be listed"

        return await check_health_with(probe, "vectors.qdrant", timeout)

    async def list_collections(self) -> Sequence[CollectionInfo]:
        """List all collections, sorted by name."""
        found = await self.call(lambda client: client.get_collections())
        names = sorted(collection.name for collection in found.collections)
        return [await (await self.get_collection(name)).info() for name in names]

    async def create_collection(self, config: CollectionConfig) -> QdrantCollection:
        """Create a collection; an existing equal collection is returned."""
        check_config(config)
        if config.index_type not in _INDEXES:
            raise VectorIndexError(
                f"the Qdrant store does not support the index type {config.index_type.value}",
                hint=f"use {', '.join(_INDEXES)}",
            )
        if not await self.collection_exists(config.name):
            await self._create(config)
        found = await self.get_collection(config.name)
        check_compatible(config, found)
        return found

    async def delete_collection(self, name: str) -> bool:
        """Delete a collection with all records."""
        if not await self.collection_exists(name):
            return False
        return await self.call(partial(_delete, name))

    async def collection_exists(self, name: str) -> bool:
        """True if the collection exists."""
        return await self.call(lambda client: client.collection_exists(name))

    async def get_collection(self, name: str) -> QdrantCollection:
        """Return a collection. Raises CollectionNotFoundError."""
        if not await self.collection_exists(name):
            raise CollectionNotFoundError(
                f"unknown collection {name!r} in Qdrant", details={"collection": name}
            )
        found = await self.call(lambda client: client.get_collection(name))
        return QdrantCollection(self, _config_of(name, found))

    async def call(self, work: Callable[[QdrantClient], T]) -> T:
        """Run ``work`` with the client in a thread; errors become VectorStoreErrors."""
        await self.connect()
        client = self._client
        assert client is not None  # connect() made it
        try:
            return await run_sync(partial(work, client), limiter=self._limiter)
        except LexigramError:
            raise
        except Exception as error:
            # The client raises errors of httpx, grpc, pydantic and its local mode.
            raise VectorStoreError(f"Qdrant failed: {error}") from error

    def _open(self) -> QdrantClient:
        try:
            qdrant = importlib.import_module("qdrant_client")
        except ImportError as error:
            raise MissingLibraryError("the Qdrant store", "qdrant") from error
        try:
            client: QdrantClient = (
                qdrant.QdrantClient(path=self._path, force_disable_check_same_thread=True)
                if self._url is None
                else qdrant.QdrantClient(url=self._url, api_key=self._api_key)
            )
        except (RuntimeError, OSError, ValueError) as error:
            raise VectorStoreError(
                f"cannot open Qdrant at {self._url or self._path}: {error}",
                hint="use a Qdrant server for several processes; a folder is for one process at a time",
            ) from error
        return client

    async def _create(self, config: CollectionConfig) -> None:
        from qdrant_client import models

        def create(client: QdrantClient) -> bool:
            # Another process may have created it meanwhile.
            return client.collection_exists(config.name) or client.create_collection(
                config.name,
                vectors_config=models.VectorParams(
                    size=config.dimension,
                    distance=models.Distance(_METRICS[config.distance_metric]),
                    hnsw_config=models.HnswConfigDiff(
                        m=0 if config.index_type is IndexType.FLAT else config.hnsw_m,
                        ef_construct=config.hnsw_ef_construction,
                    ),
                ),
                metadata={"model_id": config.model_id, "index_type": config.index_type.value},
            )

        await self.call(create)
        if self._url is not None:  # the local mode has no indexes and warns about them
            await self.call(
                lambda client: client.create_payload_index(
                    config.name, "facts", models.PayloadSchemaType.KEYWORD
                )
            )


class QdrantCollection(CollectionBase):
    """A collection in Qdrant."""

    def __init__(self, store: QdrantVectorStore, config: CollectionConfig) -> None:
        super().__init__(config)
        self._store = store

    async def upsert(self, records: Sequence[VectorRecord]) -> UpsertResult:
        """Write records; records with the same id are replaced."""
        unique = keep_last_by_id(records)
        vectors = check_records(unique, self)
        points = [_point(record, vector) for record, vector in zip(unique, vectors, strict=True)]
        for start in range(0, len(points), _BATCH):
            batch = points[start : start + _BATCH]
            await self._call(partial(_upsert, self.name, batch))
        return UpsertResult(len(points))

    async def replace(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
        records: Sequence[VectorRecord],
    ) -> UpsertResult:
        """Replace all records that match the filter: write ``records``, then delete the others."""
        check_filter(filter)
        check_matches(records, filter)
        async with self._store.replacing:
            # Looked up before writing, so that concurrent replaces do not delete records of each
            # other. Both results remain until the next replace.
            before = await self._call(lambda client: _ids_under(client, self.name, filter))
            written = await self.upsert(records)
            await self.delete(sorted(before - {record.id for record in records}))
        return written

    async def search(self, query: SearchQuery) -> Sequence[SearchResult]:
        """Search by vector; returns results, best first. Keyword searches are not supported."""
        check_query(query, self)
        if query.mode is not SearchMode.DENSE:
            raise SearchRefusedError(
                f"the Qdrant store does not support {query.mode.value} searches",
                hint="use the mode dense, or LanceDB",
            )
        answer = await self._call(
            lambda client: client.query_points(
                self.name,
                query=list(map(float, query.vector)),
                query_filter=_filter(query.filter) if query.filter else None,
                limit=query.top_k,
                with_payload=True,
                with_vectors=query.include_vectors,
            )
        )
        results = [self._result(point, query) for point in answer.points]
        return [r for r in results if query.min_score is None or r.score >= query.min_score]

    async def get(self, ids: Sequence[str]) -> Sequence[VectorRecord]:
        """Return the existing records."""
        point_ids = [_point_id(key) for key in ids]
        found = await self._call(
            lambda client: client.retrieve(
                self.name, point_ids, with_payload=True, with_vectors=True
            )
        )
        return [
            VectorRecord(
                id=point.payload["id"],
                vector=_restore_length(point),
                metadata=point.payload["metadata"],
                content=point.payload["content"],
            )
            for point in found
        ]

    async def delete(self, ids: Sequence[str]) -> DeleteResult:
        """Delete records; unknown ids are not counted."""
        from qdrant_client import models

        if not ids:
            return DeleteResult(0)
        point_ids: list[Any] = [_point_id(key) for key in ids]
        return await self._delete(models.Filter(must=[models.HasIdCondition(has_id=point_ids)]))

    async def delete_by_filter(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
    ) -> DeleteResult:
        """Delete the matching records."""
        check_filter(filter)
        return await self._delete(_filter(filter))

    async def update_metadata(
        self,
        id: str,  # noqa: A002 - the name users write
        metadata: Mapping[str, Any],
    ) -> bool:
        """Replace the metadata of a record; False if it is unknown."""
        found = await self.get([id])
        if not found:
            return False
        await self.upsert([replace_metadata(found[0], metadata)])
        return True

    async def count(self) -> int:
        """Return the number of records."""
        return int((await self._call(lambda client: client.count(self.name, exact=True))).count)

    async def info(self) -> CollectionInfo:
        """Return information about the collection."""
        found = await self._call(lambda client: client.get_collection(self.name))
        return CollectionInfo(
            name=self.name,
            dimension=self.dimension,
            distance_metric=self.distance_metric,
            index_type=self.collection_config.index_type,
            vector_count=await self.count(),
            state=_STATES.get(str(found.status.value), IndexState.ERROR),
            model_id=self.model_id,
        )

    async def _delete(self, selected: models.Filter) -> DeleteResult:
        def delete(client: QdrantClient) -> int:
            count = client.count(self.name, count_filter=selected, exact=True).count
            client.delete(self.name, points_selector=selected, wait=True)
            return count

        return DeleteResult(await self._call(delete))

    async def _call(self, work: Callable[[QdrantClient], Any]) -> Any:
        return await self._store.call(work)

    def _result(self, point: models.ScoredPoint, query: SearchQuery) -> SearchResult:
        payload = point.payload or {}
        far = self.distance_metric in {DistanceMetric.EUCLIDEAN, DistanceMetric.MANHATTAN}
        return SearchResult(
            id=payload["id"],
            score=1.0 / (1.0 + point.score) if far else point.score,
            metadata=payload["metadata"] if query.include_metadata else {},
            vector=_restore_length(point) if query.include_vectors else None,
            content=payload["content"],
        )


_STATES = {"green": IndexState.READY, "yellow": IndexState.UPDATING, "grey": IndexState.UPDATING}


def _delete(name: str, client: QdrantClient) -> bool:
    # The local mode deletes a collection without closing its file.
    local: Any = getattr(client, "_client", None)
    kept = getattr(local, "collections", {}).get(name)
    deleted = client.delete_collection(name)
    if kept is not None:
        kept.close()
    return deleted


def _upsert(name: str, points: list[models.PointStruct], client: QdrantClient) -> None:
    client.upsert(name, points, wait=True)


def _point_id(key: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, key))


def _point(record: VectorRecord, vector: Any) -> models.PointStruct:
    from qdrant_client import models

    json_of(record.metadata, record.id)  # the client would convert other values to text
    payload = {
        "id": record.id,
        "content": record.content,
        "metadata": dict(record.metadata),
        "facts": all_facts(record.metadata),
        # With the metric cosine Qdrant stores normalized vectors.
        "length": float(np.linalg.norm(vector)),
    }
    return models.PointStruct(id=_point_id(record.id), vector=vector.tolist(), payload=payload)


def _restore_length(point: Any) -> list[float]:
    vector = np.asarray(point.vector, dtype=np.float32)
    kept = float(np.linalg.norm(vector))
    scale = point.payload["length"] / kept if kept else 1.0
    given: list[float] = (vector * np.float32(scale)).tolist()
    return given


def _filter(point_ids: Mapping[str, Any]) -> models.Filter:
    from qdrant_client import models

    return models.Filter(
        must=[
            models.FieldCondition(key="facts", match=models.MatchAny(any=facts))
            for facts in filter_facts(point_ids)
        ]
    )


def _ids_under(client: QdrantClient, name: str, point_ids: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    place: Any = None
    while True:
        points, place = client.scroll(
            name, scroll_filter=_filter(point_ids), limit=_BATCH, offset=place, with_payload=["id"]
        )
        found |= {point.payload["id"] for point in points if point.payload}
        if place is None:
            return found


def _config_of(name: str, found: models.CollectionInfo) -> CollectionConfig:
    vectors = found.config.params.vectors
    metadata = found.config.metadata or {}
    metrics = {theirs: ours for ours, theirs in _METRICS.items()}
    if vectors is None or isinstance(vectors, Mapping):
        raise VectorStoreError(
            f"collection {name!r} was not created by this store: it has several named vectors"
        )
    return CollectionConfig(
        name=name,
        dimension=vectors.size,
        distance_metric=metrics[vectors.distance.value],
        index_type=IndexType(metadata.get("index_type", IndexType.AUTO)),
        model_id=metadata.get("model_id"),
    )

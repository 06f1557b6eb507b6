"""Vectors in LanceDB: a folder is a database, a table a collection."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import anyio
import numpy as np
from anyio.to_thread import run_sync

from lexigram.ai.workers.vectors.base import CollectionBase, StoreBase, health_by
from lexigram.ai.workers.vectors.checksum import folder_checksum, folder_size
from lexigram.ai.workers.vectors.config import VectorConfig
from lexigram.ai.workers.vectors.errors import (
    CollectionNotFoundError,
    VectorDataCorruptError,
)
from lexigram.ai.workers.vectors.filters import check_filter, ids_in, where
from lexigram.ai.workers.vectors.lancedb_rows import (
    Arrow,
    AsyncConnection,
    AsyncTable,
    config_of,
    metadata_of,
    records_of,
    rows_with_vectors,
    schema_of,
)
from lexigram.ai.workers.vectors.lancedb_writer import MANY, LanceWriter, Write, remove_doubles
from lexigram.ai.workers.vectors.locks import LOCK_SUFFIX, FileLock, SqlLock, WriterLock
from lexigram.ai.workers.vectors.records import (
    check_config,
    check_query,
    check_same,
    check_under,
    checked,
    evolved,
    last_of_each,
)
from lexigram.ai.workers.vectors.scores import best_of, fused, similarity
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.data.locks import ResourceLockProtocol
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

T = TypeVar("T")

METRICS: Final = {
    DistanceMetric.COSINE: "cosine",
    DistanceMetric.EUCLIDEAN: "l2",
    DistanceMetric.DOT_PRODUCT: "dot",
}
INDEXES: Final = (IndexType.AUTO, IndexType.FLAT, IndexType.IVFFLAT, IndexType.IVF_RQ)

# Parts of the index a search looks into, and candidates each half of a hybrid search gives.
_PROBES = 40
_CANDIDATES = 5
_FEWEST_CANDIDATES = 50
# Per dimension in the index. Recall@10 at 100k rows, refined by 10: 0.94 with 1, 1.0 with 2 and 4;
# p50 4.5, 4.9 and 5.0 ms (1 bit refined by 20: 1.0 in 5.4 ms). How many parts made no difference.
_BITS = 2
_RQ_STEP = 8  # the dimensions it takes
# Nothing but the latest version is kept by a vacuum (LanceDB warns about a plain zero).
_KEEP = timedelta(milliseconds=1)
# optimize_indexes() compacts but leaves old versions to the vacuum.
_KEEP_ALL = timedelta(days=36_500)
_DAMAGE = ("sufficient data", "corrupt", "magic", "not found", "no such file", "decode", "protobuf")


class LanceVectorStore(StoreBase):
    """The collections of one folder, or of one URI that LanceDB knows.

    Reads see what any process wrote before. Writes take a lock per collection: a file lock on
    a local folder, the SQL lock on shared storage.
    """

    def __init__(
        self,
        path: str | Path,
        config: VectorConfig | None = None,
        *,
        locks: ResourceLockProtocol | None = None,
    ) -> None:
        self.uri = str(path)
        self._config = config or VectorConfig()
        self._locks = locks
        self._remote = "://" in self.uri
        self._shared = self._remote or self._config.shared_storage
        # What other machines know it by.
        self._place = self.uri
        self._connection: AsyncConnection | None = None
        self._collections: dict[str, LanceCollection] = {}

    async def connect(self) -> None:
        """Open the store; the folder is made by the first write."""
        await self._connected()

    async def disconnect(self) -> None:
        """Let go of the store; the next use opens it again."""
        self._collections.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when every collection can be opened and counted."""

        async def look() -> str:
            return f"{len(await self.list_collections())} collections in {self.uri}"

        return await health_by(look, "vectors.lancedb", timeout)

    async def list_collections(self) -> Sequence[CollectionInfo]:
        """All collections, by name."""
        return [await (await self._opened(name)).info() for name in await self._names()]

    async def create_collection(self, config: CollectionConfig) -> LanceCollection:
        """Make a collection; an equal one that exists is returned."""
        check_config(config)
        if config.distance_metric not in METRICS:
            raise VectorStoreError(
                f"LanceDB has no metric {config.distance_metric.value}",
                hint=f"use {', '.join(METRICS)}",
            )
        if config.index_type not in INDEXES:
            raise VectorIndexError(
                f"LanceDB builds no index {config.index_type.value} here",
                hint=f"use {', '.join(INDEXES)}",
            )
        if config.index_type is IndexType.IVF_RQ and config.dimension % _RQ_STEP:
            raise VectorIndexError(
                f"IVF_RQ needs a dimension divisible by {_RQ_STEP}, not {config.dimension}",
                hint="use auto, which takes ivfflat for it",
            )
        try:
            found = await self._opened(config.name)
        except CollectionNotFoundError:
            found = await self._created(config)
        check_same(config, found)
        return found

    async def delete_collection(self, name: str) -> bool:
        """Remove a collection with all it holds."""
        try:
            collection = await self._opened(name)
        except CollectionNotFoundError:
            return False
        connection = await self._connected()

        async def drop() -> int:
            with _translated(name):
                await connection.drop_table(name, ignore_missing=True)
            return 1

        await collection.alone(drop)
        self._collections.pop(name, None)
        return True

    async def collection_exists(self, name: str) -> bool:
        """True when there is such a collection."""
        return name in await self._names()

    async def get_collection(self, name: str) -> LanceCollection:
        """The collection. Raises CollectionNotFoundError when there is none."""
        return await self._opened(name)

    # --- maintenance ----------------------------------------------------------------------------

    async def optimize_indexes(self, collection_name: str | None = None) -> int:
        """Build and refresh the indexes of a collection, or of all; how many collections."""
        names = await self._names() if collection_name is None else [collection_name]
        for name in names:
            await (await self._opened(name)).optimize(_KEEP_ALL)
        return len(names)

    async def vacuum(self, collection_name: str | None = None) -> int:
        """Index, compact, and remove old versions, nobody writing meanwhile; bytes given back.

        A reader of another process that was just reading an old version reads again.
        """
        names = await self._names() if collection_name is None else [collection_name]
        before = await self._size()
        for name in names:
            await (await self._opened(name)).optimize(_KEEP)
        return max(0, before - await self._size())

    async def checksum(self, collection_name: str | None = None) -> str:
        """A sha256 over the files of a collection, or of all."""
        if self._remote:
            raise VectorStoreError(
                f"{self.uri} is no folder of this machine", hint="sum it where its files are"
            )
        if collection_name is None:
            return await run_sync(folder_checksum, Path(self.uri))
        await self._opened(collection_name)
        return await run_sync(folder_checksum, Path(self.uri) / f"{collection_name}.lance")

    # --- inside ---------------------------------------------------------------------------------

    async def _connected(self) -> AsyncConnection:
        if self._connection is None:
            if self._shared and self._locks is None:
                raise VectorStoreError(
                    f"{self.uri} is shared storage, and there are no locks to share it by",
                    hint="add SqlModule to the application, or unset shared_storage for a folder "
                    "that only this machine writes to",
                )
            if not self._remote:
                self._place = await run_sync(os.path.abspath, self.uri)
            # It takes seconds to import: not on the event loop.
            lancedb = await run_sync(importlib.import_module, "lancedb")
            with _translated(self.uri):
                self._connection = await lancedb.connect_async(
                    self.uri, read_consistency_interval=timedelta(0)
                )
        return self._connection

    async def _names(self) -> list[str]:
        if not self._remote and not await anyio.Path(self.uri).is_dir():
            return []
        connection = await self._connected()
        names: list[str] = []
        token: str | None = None
        with _translated(self.uri):
            while True:
                page = await connection.list_tables(page_token=token, limit=1000)
                names += page.tables
                token = page.page_token
                if not token:
                    return sorted(names)

    async def _opened(self, name: str) -> LanceCollection:
        """The collection as it is now; the same object as long as it is the same table.

        Opened again each time, which costs half a millisecond: another process may have
        removed it, or made it anew for another model.
        """
        if not self._remote and not await anyio.Path(self.uri, f"{name}.lance").is_dir():
            self._collections.pop(name, None)
            raise _missing(name, self.uri)
        connection = await self._connected()
        with _translated(name):
            table = await connection.open_table(name)
            schema = await table.schema()
        made = self._collection(name, table, schema)
        known = self._collections.get(name)
        if known is None or known.made_as != made.made_as:
            self._collections[name] = made
        return self._collections[name]

    def _collection(self, name: str, table: AsyncTable, schema: Arrow) -> LanceCollection:
        try:
            config = config_of(name, schema)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise VectorDataCorruptError(
                f"table {name!r} in {self.uri} was not made by this store: {error!r}",
                hint="give the store a folder of its own",
            ) from error
        writer = LanceWriter(
            table, self._lock(name), max_wait=self._config.lock_wait, shared=self._shared
        )
        return LanceCollection(table, config, writer, self._config)

    async def _created(self, config: CollectionConfig) -> LanceCollection:
        connection = await self._connected()
        async with self._lock("").held(self._config.lock_wait):
            # Another process may have made it while this one waited.
            if config.name not in await self._names():
                with _translated(config.name):
                    table = await connection.create_table(config.name, schema=schema_of(config))
                    await _index_words(table)
        return await self._opened(config.name)

    def _lock(self, name: str) -> WriterLock:
        """The lock of a collection; of the list of collections for an empty name."""
        if self._shared and self._locks is not None:
            return SqlLock(self._locks, f"vectors:{self._place}/{name}", ttl=self._config.lock_ttl)
        return FileLock(Path(self.uri, f".{name}{LOCK_SUFFIX}"), f"{self.uri}/{name}")

    async def _size(self) -> int:
        return 0 if self._remote else await run_sync(folder_size, Path(self.uri))


class LanceCollection(CollectionBase):
    """One table."""

    def __init__(
        self,
        table: AsyncTable,
        made_as: CollectionConfig,
        writer: LanceWriter,
        config: VectorConfig,
    ) -> None:
        super().__init__(made_as)
        self._table = table
        self._writer = writer
        self._config = config

    # --- writing --------------------------------------------------------------------------------

    async def upsert(self, records: Sequence[VectorRecord]) -> UpsertResult:
        """Write records, replacing those with the same id; calls at one time share a commit."""
        return await self._written(records, None)

    async def replace(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
        records: Sequence[VectorRecord],
    ) -> UpsertResult:
        """Make ``records`` all there is under the filter: write them, then remove the others."""
        check_filter(filter)
        check_under(records, filter)
        return await self._written(records, dict(filter))

    async def delete(self, ids: Sequence[str]) -> DeleteResult:
        """Remove records; unknown ids are not counted."""
        return await self._deleted(ids_in(list(ids))) if ids else DeleteResult(0)

    async def delete_by_filter(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
    ) -> DeleteResult:
        """Remove what matches."""
        check_filter(filter)
        return await self._deleted(where(filter))

    async def update_metadata(
        self,
        id: str,  # noqa: A002 - the name users write
        metadata: Mapping[str, Any],
    ) -> bool:
        """Replace the metadata of a record; False when it is unknown."""

        async def work() -> int:
            found = await self.get([id])
            if not found:
                return 0
            changed = evolved(found[0], metadata)
            await self._writer.merge({id: changed}, checked([changed], self))
            return 1

        with _translated(self.name):
            return await self._writer.alone(work) == 1

    # --- reading --------------------------------------------------------------------------------

    async def search(self, query: SearchQuery) -> Sequence[SearchResult]:
        """The best, best first."""
        check_query(query, self)
        if query.mode is SearchMode.TEXT:
            found = await self._by_words(query, query.top_k)
            scores: Mapping[str, float] = {row["id"]: row["_score"] for row in found}
        elif query.mode is SearchMode.DENSE:
            found = await self._by_vector(query, query.top_k)
            scores = {row["id"]: self._score(row["_distance"]) for row in found}
        else:
            found, scores = await self._by_both(query)
        rows = {row["id"]: row for row in found}
        return [
            SearchResult(
                id=key,
                score=float(scores[key]),
                metadata=metadata_of(rows[key]) if query.include_metadata else {},
                vector=rows[key]["vector"].tolist() if query.include_vectors else None,
                content=rows[key]["content"],
            )
            for key in best_of(scores, query)
        ]

    async def get(self, ids: Sequence[str]) -> Sequence[VectorRecord]:
        """The records that are there."""
        if not ids:
            return []
        columns = ["id", "vector", "metadata", "content"]

        async def read() -> Arrow:
            query = self._table.query().where(ids_in(list(ids))).select(columns)
            return await query.to_arrow()

        return list(records_of(await self._read(read)))

    async def count(self) -> int:
        """How many records there are."""
        return await self._read(self._table.count_rows)

    async def documents(
        self,
        limit: int = 100,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the name users write
    ) -> list[dict[str, Any]]:
        """The documents in it, by uri and id, each with how many pieces it has."""
        columns = ["document_id", "source", "uri", "mime_type"]

        async def read() -> Arrow:
            query = self._table.query().select(columns)
            return await (query.where(where(filter)) if filter else query).to_arrow()

        grouped = (await self._read(read)).group_by(columns).aggregate([([], "count_all")])
        rows: list[dict[str, Any]] = grouped.rename_columns([*columns, "chunks"]).to_pylist()
        rows.sort(key=lambda row: (row["uri"] or "", row["document_id"] or ""))
        return rows[offset : offset + limit]

    async def info(self) -> CollectionInfo:
        """What the collection is."""
        count = await self.count()
        indexes = await self._read(self._table.list_indices)
        vector = [index for index in indexes if "vector" in index.columns]
        behind = count - sum((index.num_indexed_rows or 0) for index in vector)
        return CollectionInfo(
            name=self.name,
            dimension=self.dimension,
            distance_metric=self.distance_metric,
            index_type=self._index_type(count) if vector else IndexType.FLAT,
            vector_count=count,
            state=IndexState.UPDATING if self._wants_index(behind) else IndexState.READY,
            model_id=self.model_id,
        )

    # --- maintenance ----------------------------------------------------------------------------

    async def alone(self, work: Callable[[], Awaitable[int]]) -> int:
        """Do something while nobody writes to this collection."""
        return await self._writer.alone(work)

    async def optimize(self, keep: timedelta) -> None:
        """Build what indexes its size asks for, compact, forget versions older than ``keep``."""

        async def work() -> int:
            with _translated(self.name):
                await self._table.checkout_latest()
                await remove_doubles(self._table)
                await self._index(await self._table.count_rows())
                # Files of a commit that a kill cut off are removed: nobody else writes now.
                await self._table.optimize(
                    cleanup_older_than=keep,
                    delete_unverified=keep is _KEEP and not self._writer.shared,
                )
            return 0

        await self._writer.alone(work)

    async def _index(self, rows: int) -> None:
        from lancedb.index import BTree, IvfFlat, IvfRq

        there = {index.columns[0] for index in await self._table.list_indices()}
        if "content" not in there:
            await _index_words(self._table)
        if rows < max(1, self._config.flat_below):
            return
        for column in {"id", "document_id"} - there:
            await self._table.create_index(column, config=BTree())
        kind = self._index_type(rows)
        if "vector" not in there and kind is not IndexType.FLAT:
            metric: Any = METRICS[self.distance_metric]
            config = (
                IvfFlat(distance_type=metric)
                if kind is IndexType.IVFFLAT
                else IvfRq(distance_type=metric, num_bits=_BITS)
            )
            await self._table.create_index("vector", config=config)

    def _index_type(self, rows: int) -> IndexType:
        if self.made_as.index_type is not IndexType.AUTO:
            return self.made_as.index_type
        if rows < self._config.flat_below:
            return IndexType.FLAT
        return IndexType.IVFFLAT if self.dimension % _RQ_STEP else IndexType.IVF_RQ

    def _wants_index(self, rows: int) -> bool:
        """Whether that many rows outside the index are too many."""
        wanted = self._index_type(rows)
        return wanted is not IndexType.FLAT and rows >= max(1, self._config.flat_below)

    # --- inside ---------------------------------------------------------------------------------

    async def _written(
        self, records: Sequence[VectorRecord], instead_of: Mapping[str, Any] | None
    ) -> UpsertResult:
        unique = last_of_each(records)
        if len(unique) > MANY:
            vectors = await run_sync(checked, unique, self)
        else:
            vectors = checked(unique, self)
        if not unique and instead_of is None:
            return UpsertResult(0)
        with _translated(self.name):
            write = Write(records=unique, vectors=vectors, instead_of=instead_of)
            return UpsertResult(await self._writer.write(write))

    async def _deleted(self, condition: str) -> DeleteResult:
        async def work() -> int:
            return int((await self._table.delete(condition)).num_deleted_rows)

        with _translated(self.name):
            return DeleteResult(await self._writer.alone(work))

    async def _by_vector(self, query: SearchQuery, limit: int) -> list[dict[str, Any]]:
        metric: Any = METRICS[self.distance_metric]
        # As many vectors are compared exactly, however many candidates are asked for.
        refine = max(1, self._config.refine_factor * query.top_k // limit)
        columns = self._columns(query, "_distance")

        async def read() -> Arrow:
            built = (
                self._table.query()
                .nearest_to(np.asarray(query.vector, dtype=np.float32))
                .distance_type(metric)
                # More parts, all if need be, when a filter leaves too few in the nearest ones.
                .maximum_nprobes(0)
                .minimum_nprobes(_PROBES)
                .refine_factor(refine)
                .select(columns)
                .limit(limit)
            )
            return await (built.where(where(query.filter)) if query.filter else built).to_arrow()

        return rows_with_vectors(await self._read(read))

    async def _by_words(self, query: SearchQuery, limit: int) -> list[dict[str, Any]]:
        lancedb: Any = importlib.import_module("lancedb.query")
        columns = self._columns(query, "_score")

        async def read() -> Arrow:
            # MatchQuery takes words only: nothing in the text is an operator.
            words = lancedb.MatchQuery(query.text or "", "content")
            built = self._table.query().nearest_to_text(words).select(columns).limit(limit)
            return await (built.where(where(query.filter)) if query.filter else built).to_arrow()

        return rows_with_vectors(await self._read(read))

    async def _by_both(
        self, query: SearchQuery
    ) -> tuple[list[dict[str, Any]], Mapping[str, float]]:
        """Candidates of both, each scored by both: what only words found is compared exactly."""
        limit = max(_FEWEST_CANDIDATES, _CANDIDATES * query.top_k)
        near: list[dict[str, Any]] = []
        worded: list[dict[str, Any]] = []

        async def by_vector() -> None:
            near.extend(await self._by_vector(query, limit))

        async def by_words() -> None:
            worded.extend(await self._by_words(query, limit))

        await _both(by_vector, by_words)
        dense = {row["id"]: self._score(row["_distance"]) for row in near}
        missing = [row for row in worded if row["id"] not in dense]
        if missing:
            vectors = np.stack([row["vector"] for row in missing])
            exact = similarity(
                vectors, np.asarray(query.vector, dtype=np.float32), self.distance_metric
            )
            dense |= {row["id"]: float(s) for row, s in zip(missing, exact, strict=True)}
        words = {row["id"]: row["_score"] for row in worded}
        return [*near, *missing], fused(dense, words, self._config.dense_weight)

    def _columns(self, query: SearchQuery, score: str) -> list[str]:
        columns = ["id", "content", "metadata", score]
        # Words only candidates of a hybrid search are compared by their vector.
        with_vector = query.include_vectors or (
            query.mode is SearchMode.HYBRID and score == "_score"
        )
        return [*columns, "vector"] if with_vector else columns

    def _score(self, distance: float) -> float:
        if self.distance_metric is DistanceMetric.EUCLIDEAN:
            return 1.0 / (1.0 + math.sqrt(max(0.0, distance)))  # LanceDB gives the square
        return 1.0 - distance

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        except (RuntimeError, OSError, ValueError):
            # A vacuum of another process may have removed the version that was being read.
            with _translated(self.name):
                await self._table.checkout_latest()
                return await read()


async def _both(*works: Callable[[], Awaitable[None]]) -> None:
    """Do two things side by side; the first error as it is, not in a group."""
    failures: list[Exception] = []

    async def guarded(work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except VectorStoreError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(guarded, work)
    if failures:
        raise failures[0]


async def _index_words(table: AsyncTable) -> None:
    """The index of words: rows written after it are searched too, one by one, until vacuum."""
    from lancedb.index import FTS

    await table.create_index("content", config=FTS())


def _missing(name: str, uri: str) -> CollectionNotFoundError:
    return CollectionNotFoundError(
        f"there is no collection {name!r} in {uri}",
        details={"collection": name, "uri": uri},
        hint="the first write makes it; list_collections() has those that exist",
    )


class _translated(AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """Errors of LanceDB as ours."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        # VectorStoreErrors that are ValueErrors too pass as they are.
        if not isinstance(error, RuntimeError | OSError | ValueError) or isinstance(
            error, LexigramError
        ):
            return
        text = str(error).partition(", /root/")[0].removeprefix("lance error: ")
        if "was not found" in text or ("Not found" in text and "_versions" in text):
            raise _missing(self._what, "the store") from error
        if any(sign in text.lower() for sign in _DAMAGE):
            raise VectorDataCorruptError(
                f"the files of {self._what} cannot be read: {text}",
                details={"what": self._what},
                hint="restore the folder from a copy, or delete it and ingest again",
            ) from error
        raise VectorStoreError(f"LanceDB failed on {self._what}: {text}") from error

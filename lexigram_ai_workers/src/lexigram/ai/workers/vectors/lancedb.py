"""The LanceDB vector store: a folder is a database, a table is a collection."""

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

from lexigram.ai.workers._imports import import_without
from lexigram.ai.workers.vectors.base import CollectionBase, StoreBase, check_health_with
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
from lexigram.ai.workers.vectors.lancedb_writer import (
    THREAD_ROW_COUNT,
    LanceWriter,
    Write,
    remove_duplicates,
)
from lexigram.ai.workers.vectors.locks import LOCK_SUFFIX, FileLock, SqlLock, WriterLock
from lexigram.ai.workers.vectors.records import (
    check_compatible,
    check_config,
    check_matches,
    check_query,
    check_records,
    is_valid_name,
    keep_last_by_id,
    replace_metadata,
)
from lexigram.ai.workers.vectors.scores import best_of, fuse_scores, similarity
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

_REST_CLIENT: Final = "lance_namespace_urllib3_client"
METRICS: Final = {
    DistanceMetric.COSINE: "cosine",
    DistanceMetric.EUCLIDEAN: "l2",
    DistanceMetric.DOT_PRODUCT: "dot",
}
INDEXES: Final = (IndexType.AUTO, IndexType.FLAT, IndexType.IVFFLAT, IndexType.IVF_RQ)

# Index partitions per search, and candidates of each half of a hybrid search.
_INDEX_PARTITIONS_SEARCHED = 40
_CANDIDATES_PER_RESULT = 5
_MIN_CANDIDATES = 50
# Recall@10 at 100k rows with refine factor 10: 0.94 with 1 bit, 1.0 with 2 and 4; p50 4.5, 4.9 and
# 5.0 ms (1 bit with factor 20: 1.0 in 5.4 ms). The number of partitions made no difference.
_BITS_PER_DIMENSION = 2
_RQ_DIMENSION_STEP = 8  # dimensions must be a multiple
# A vacuum keeps only the latest version (LanceDB warns about zero).
_KEEP_NO_OLD_VERSIONS = timedelta(milliseconds=1)
# optimize_indexes() compacts but leaves old versions to the vacuum.
_KEEP_ALL_VERSIONS = timedelta(days=36_500)
_DAMAGE_MARKERS = (
    "sufficient data",
    "corrupt",
    "magic",
    "not found",
    "no such file",
    "decode",
    "protobuf",
)


class LanceVectorStore(StoreBase):
    """Implements VectorStoreProtocol with a LanceDB folder or URI.

    Reads see the writes of all processes. Writes hold a lock per collection: a file lock for a
    local folder, the SQL lock for shared storage.
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
        # The lock key, absolute after connecting.
        self._lock_place = self.uri
        self._connection: AsyncConnection | None = None
        self._collections: dict[str, LanceCollection] = {}

    async def connect(self) -> None:
        """Open the store; the first write creates the folder."""
        await self._connect()

    async def disconnect(self) -> None:
        """Close the store; the next use opens it again."""
        self._collections.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY if all collections can be opened and counted."""

        async def probe() -> str:
            return f"{len(await self.list_collections())} collections in {self.uri}"

        return await check_health_with(probe, "vectors.lancedb", timeout)

    async def list_collections(self) -> Sequence[CollectionInfo]:
        """List all collections, sorted by name."""
        return [
            await (await self._open_collection(name)).info() for name in await self._list_names()
        ]

    async def create_collection(self, config: CollectionConfig) -> LanceCollection:
        """Create a collection; an existing equal collection is returned."""
        check_config(config)
        if config.distance_metric not in METRICS:
            raise VectorStoreError(
                f"LanceDB does not support the metric {config.distance_metric.value}",
                hint=f"use {', '.join(METRICS)}",
            )
        if config.index_type not in INDEXES:
            raise VectorIndexError(
                f"the LanceDB store does not support the index type {config.index_type.value}",
                hint=f"use {', '.join(INDEXES)}",
            )
        if config.index_type is IndexType.IVF_RQ and config.dimension % _RQ_DIMENSION_STEP:
            raise VectorIndexError(
                f"IVF_RQ requires a dimension divisible by {_RQ_DIMENSION_STEP}, "
                f"not {config.dimension}",
                hint="use auto, which selects ivfflat",
            )
        try:
            found = await self._open_collection(config.name)
        except CollectionNotFoundError:
            found = await self._create(config)
        check_compatible(config, found)
        return found

    async def delete_collection(self, name: str) -> bool:
        """Delete a collection with all records."""
        try:
            collection = await self._open_collection(name)
        except CollectionNotFoundError:
            return False
        connection = await self._connect()

        async def drop() -> int:
            with _translate_errors(name):
                await connection.drop_table(name, ignore_missing=True)
            return 1

        await collection.run_exclusively(drop)
        self._collections.pop(name, None)
        return True

    async def collection_exists(self, name: str) -> bool:
        """True if the collection exists."""
        return name in await self._list_names()

    async def get_collection(self, name: str) -> LanceCollection:
        """Return a collection. Raises CollectionNotFoundError."""
        return await self._open_collection(name)

    # --- maintenance ----------------------------------------------------------------------------

    async def optimize_indexes(self, collection_name: str | None = None) -> int:
        """Build and update the indexes of one or all collections; returns their number."""
        names = await self._list_names() if collection_name is None else [collection_name]
        for name in names:
            await (await self._open_collection(name)).optimize(_KEEP_ALL_VERSIONS)
        return len(names)

    async def vacuum(self, collection_name: str | None = None) -> int:
        """Index, compact and remove old versions under the lock; returns the freed bytes.

        A concurrent reader of an old version repeats its read.
        """
        names = await self._list_names() if collection_name is None else [collection_name]
        before = await self._size()
        for name in names:
            await (await self._open_collection(name)).optimize(_KEEP_NO_OLD_VERSIONS)
        return max(0, before - await self._size())

    async def checksum(self, collection_name: str | None = None) -> str:
        """Return the sha256 of the files of one or all collections."""
        if self._remote:
            raise VectorStoreError(
                f"{self.uri} is not a local folder", hint="run it on the machine with the files"
            )
        if collection_name is None:
            return await run_sync(folder_checksum, Path(self.uri))
        await self._open_collection(collection_name)
        return await run_sync(folder_checksum, Path(self.uri) / f"{collection_name}.lance")

    # --- internals ---------------------------------------------------------------------------------

    async def _connect(self) -> AsyncConnection:
        if self._connection is None:
            if self._shared and self._locks is None:
                raise VectorStoreError(
                    f"{self.uri} is shared storage, but the application has no SQL lock",
                    hint="add SqlModule to the application, or disable shared_storage for a folder "
                    "that only this machine writes to",
                )
            if not self._remote:
                self._lock_place = await run_sync(os.path.abspath, self.uri)
            # The import takes seconds: not on the event loop. Half of it is a REST client that
            # LanceDB imports for its remote namespaces (decision 0023).
            lancedb: Any = await run_sync(import_without, "lancedb", _REST_CLIENT)
            with _translate_errors(self.uri):
                self._connection = await lancedb.connect_async(
                    self.uri, read_consistency_interval=timedelta(0)
                )
        return self._connection

    async def _list_names(self) -> list[str]:
        if not self._remote and not await anyio.Path(self.uri).is_dir():
            return []
        connection = await self._connect()
        names: list[str] = []
        token: str | None = None
        with _translate_errors(self.uri):
            while True:
                page = await connection.list_tables(page_token=token, limit=1000)
                names += page.tables
                token = page.page_token
                if not token:
                    return sorted(names)

    async def _open_collection(self, name: str) -> LanceCollection:
        """Open a collection; returns the same object as long as the table is the same.

        It is opened again each time, which takes half a millisecond: another process may have
        deleted it, or created it again for another model.
        """
        if not is_valid_name(name):  # it could be outside of the folder, or too long
            raise _missing(name, self.uri)
        if not self._remote and not await anyio.Path(self.uri, f"{name}.lance").is_dir():
            self._collections.pop(name, None)
            raise _missing(name, self.uri)
        connection = await self._connect()
        with _translate_errors(name):
            table = await connection.open_table(name)
            schema = await table.schema()
        made = self._collection(name, table, schema)
        known = self._collections.get(name)
        if known is None or known.collection_config != made.collection_config:
            self._collections[name] = made
        return self._collections[name]

    def _collection(self, name: str, table: AsyncTable, schema: Arrow) -> LanceCollection:
        try:
            config = config_of(name, schema)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise VectorDataCorruptError(
                f"table {name!r} in {self.uri} was not created by this store: {error!r}",
                hint="use a separate folder for the store",
            ) from error
        writer = LanceWriter(
            table, self._lock(name), max_wait=self._config.lock_wait, shared=self._shared
        )
        return LanceCollection(table, config, writer, self._config)

    async def _create(self, config: CollectionConfig) -> LanceCollection:
        connection = await self._connect()
        async with self._lock("").hold(self._config.lock_wait):
            # Another process may have created it meanwhile.
            if config.name not in await self._list_names():
                with _translate_errors(config.name):
                    table = await connection.create_table(config.name, schema=schema_of(config))
                    await _index_words(table)
        return await self._open_collection(config.name)

    def _lock(self, name: str) -> WriterLock:
        """Return the lock of a collection, or of the database for an empty name."""
        if self._shared and self._locks is not None:
            return SqlLock(
                self._locks, f"vectors:{self._lock_place}/{name}", ttl=self._config.lock_ttl
            )
        return FileLock(Path(self.uri, f".{name}{LOCK_SUFFIX}"), f"{self.uri}/{name}")

    async def _size(self) -> int:
        return 0 if self._remote else await run_sync(folder_size, Path(self.uri))


class LanceCollection(CollectionBase):
    """A collection: a LanceDB table."""

    def __init__(
        self,
        table: AsyncTable,
        collection_config: CollectionConfig,
        writer: LanceWriter,
        config: VectorConfig,
    ) -> None:
        super().__init__(collection_config)
        self._table = table
        self._writer = writer
        self._config = config

    # --- writing --------------------------------------------------------------------------------

    async def upsert(self, records: Sequence[VectorRecord]) -> UpsertResult:
        """Write records; records with the same id are replaced. Concurrent calls share a commit."""
        return await self._write(records, None)

    async def replace(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
        records: Sequence[VectorRecord],
    ) -> UpsertResult:
        """Replace all records that match the filter: write ``records``, then delete the others."""
        check_filter(filter)
        check_matches(records, filter)
        return await self._write(records, dict(filter))

    async def delete(self, ids: Sequence[str]) -> DeleteResult:
        """Delete records; unknown ids are not counted."""
        return await self._delete(ids_in(list(ids))) if ids else DeleteResult(0)

    async def delete_by_filter(
        self,
        filter: Mapping[str, Any],  # noqa: A002 - the name users write
    ) -> DeleteResult:
        """Delete the matching records."""
        check_filter(filter)
        return await self._delete(where(filter))

    async def update_metadata(
        self,
        id: str,  # noqa: A002 - the name users write
        metadata: Mapping[str, Any],
    ) -> bool:
        """Replace the metadata of a record; False if it is unknown."""

        async def work() -> int:
            found = await self.get([id])
            if not found:
                return 0
            changed = replace_metadata(found[0], metadata)
            await self._writer.merge({id: changed}, check_records([changed], self))
            return 1

        with _translate_errors(self.name):
            return await self._writer.run_exclusively(work) == 1

    # --- reading --------------------------------------------------------------------------------

    async def search(self, query: SearchQuery) -> Sequence[SearchResult]:
        """Search; returns results, best first."""
        check_query(query, self)
        if query.mode is SearchMode.TEXT:
            found = await self._search_words(query, query.top_k)
            scores: Mapping[str, float] = {row["id"]: row["_score"] for row in found}
        elif query.mode is SearchMode.DENSE:
            found = await self._search_vectors(query, query.top_k)
            scores = {row["id"]: self._score(row["_distance"]) for row in found}
        else:
            found, scores = await self._search_hybrid(query)
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
        """Return the existing records."""
        if not ids:
            return []
        columns = ["id", "vector", "metadata", "content"]

        async def read() -> Arrow:
            query = self._table.query().where(ids_in(list(ids))).select(columns)
            return await query.to_arrow()

        return list(records_of(await self._read(read)))

    async def count(self) -> int:
        """Return the number of records."""
        return await self._read(self._table.count_rows)

    async def documents(
        self,
        limit: int = 100,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the name users write
    ) -> list[dict[str, Any]]:
        """List the documents by URI and id, with their number of chunks."""
        columns = ["document_id", "source", "uri", "mime_type"]

        async def read() -> Arrow:
            query = self._table.query().select(columns)
            return await (query.where(where(filter)) if filter else query).to_arrow()

        grouped = (await self._read(read)).group_by(columns).aggregate([([], "count_all")])
        rows: list[dict[str, Any]] = grouped.rename_columns([*columns, "chunks"]).to_pylist()
        rows.sort(key=lambda row: (row["uri"] or "", row["document_id"] or ""))
        return rows[offset : offset + limit]

    async def info(self) -> CollectionInfo:
        """Return information about the collection."""
        count = await self.count()
        indexes = await self._read(self._table.list_indices)
        vector = [index for index in indexes if "vector" in index.columns]
        unindexed_rows = count - sum((index.num_indexed_rows or 0) for index in vector)
        return CollectionInfo(
            name=self.name,
            dimension=self.dimension,
            distance_metric=self.distance_metric,
            index_type=self._index_type(count) if vector else IndexType.FLAT,
            vector_count=count,
            state=IndexState.UPDATING if self._needs_index(unindexed_rows) else IndexState.READY,
            model_id=self.model_id,
        )

    # --- maintenance ----------------------------------------------------------------------------

    async def run_exclusively(self, work: Callable[[], Awaitable[int]]) -> int:
        """Run ``work`` under the write lock of the collection."""
        return await self._writer.run_exclusively(work)

    async def optimize(self, keep: timedelta) -> None:
        """Build the indexes for the size, compact, and remove versions older than ``keep``."""

        async def work() -> int:
            with _translate_errors(self.name):
                await self._table.checkout_latest()
                await remove_duplicates(self._table)
                await self._build_indexes(await self._table.count_rows())
                # Files of interrupted commits are removed: the lock excludes other writers.
                await self._table.optimize(
                    cleanup_older_than=keep,
                    delete_unverified=keep is _KEEP_NO_OLD_VERSIONS and not self._writer.shared,
                )
            return 0

        await self._writer.run_exclusively(work)

    async def _build_indexes(self, rows: int) -> None:
        from lancedb.index import BTree, IvfFlat, IvfRq

        indexed_columns = {index.columns[0] for index in await self._table.list_indices()}
        if "content" not in indexed_columns:
            await _index_words(self._table)
        if rows < max(1, self._config.flat_below):
            return
        for column in {"id", "document_id"} - indexed_columns:
            await self._table.create_index(column, config=BTree())
        kind = self._index_type(rows)
        if "vector" not in indexed_columns and kind is not IndexType.FLAT:
            metric: Any = METRICS[self.distance_metric]
            config = (
                IvfFlat(distance_type=metric)
                if kind is IndexType.IVFFLAT
                else IvfRq(distance_type=metric, num_bits=_BITS_PER_DIMENSION)
            )
            await self._table.create_index("vector", config=config)

    def _index_type(self, rows: int) -> IndexType:
        if self.collection_config.index_type is not IndexType.AUTO:
            return self.collection_config.index_type
        if rows < self._config.flat_below:
            return IndexType.FLAT
        return IndexType.IVFFLAT if self.dimension % _RQ_DIMENSION_STEP else IndexType.IVF_RQ

    def _needs_index(self, rows: int) -> bool:
        """True if so many unindexed rows require an index update."""
        wanted = self._index_type(rows)
        return wanted is not IndexType.FLAT and rows >= max(1, self._config.flat_below)

    # --- internals ---------------------------------------------------------------------------------

    async def _write(
        self, records: Sequence[VectorRecord], replace_filter: Mapping[str, Any] | None
    ) -> UpsertResult:
        unique = keep_last_by_id(records)
        if len(unique) > THREAD_ROW_COUNT:
            vectors = await run_sync(check_records, unique, self)
        else:
            vectors = check_records(unique, self)
        if not unique and replace_filter is None:
            return UpsertResult(0)
        with _translate_errors(self.name):
            write = Write(records=unique, vectors=vectors, replace_filter=replace_filter)
            return UpsertResult(await self._writer.write(write))

    async def _delete(self, condition: str) -> DeleteResult:
        async def work() -> int:
            return int((await self._table.delete(condition)).num_deleted_rows)

        with _translate_errors(self.name):
            return DeleteResult(await self._writer.run_exclusively(work))

    async def _search_vectors(self, query: SearchQuery, limit: int) -> list[dict[str, Any]]:
        metric: Any = METRICS[self.distance_metric]
        # The number of exactly compared vectors does not depend on the number of candidates.
        refine = max(1, self._config.refine_factor * query.top_k // limit)
        columns = self._columns(query, "_distance")

        async def read() -> Arrow:
            built = (
                self._table.query()
                .nearest_to(np.asarray(query.vector, dtype=np.float32))
                .distance_type(metric)
                # Searches more partitions if a filter leaves too few results.
                .maximum_nprobes(0)
                .minimum_nprobes(_INDEX_PARTITIONS_SEARCHED)
                .refine_factor(refine)
                .select(columns)
                .limit(limit)
            )
            return await (built.where(where(query.filter)) if query.filter else built).to_arrow()

        return rows_with_vectors(await self._read(read))

    async def _search_words(self, query: SearchQuery, limit: int) -> list[dict[str, Any]]:
        lancedb: Any = importlib.import_module("lancedb.query")
        columns = self._columns(query, "_score")

        async def read() -> Arrow:
            # MatchQuery has no operators, so that any text is valid.
            words = lancedb.MatchQuery(query.text or "", "content")
            built = self._table.query().nearest_to_text(words).select(columns).limit(limit)
            return await (built.where(where(query.filter)) if query.filter else built).to_arrow()

        return rows_with_vectors(await self._read(read))

    async def _search_hybrid(
        self, query: SearchQuery
    ) -> tuple[list[dict[str, Any]], Mapping[str, float]]:
        """Combine both searches; keyword results without a vector score are compared exactly."""
        limit = max(_MIN_CANDIDATES, _CANDIDATES_PER_RESULT * query.top_k)
        vector_rows: list[dict[str, Any]] = []
        word_rows: list[dict[str, Any]] = []

        async def by_vector() -> None:
            vector_rows.extend(await self._search_vectors(query, limit))

        async def by_words() -> None:
            word_rows.extend(await self._search_words(query, limit))

        await _run_both(by_vector, by_words)
        dense = {row["id"]: self._score(row["_distance"]) for row in vector_rows}
        missing = [row for row in word_rows if row["id"] not in dense]
        if missing:
            vectors = np.stack([row["vector"] for row in missing])
            exact = similarity(
                vectors, np.asarray(query.vector, dtype=np.float32), self.distance_metric
            )
            dense |= {row["id"]: float(s) for row, s in zip(missing, exact, strict=True)}
        words = {row["id"]: row["_score"] for row in word_rows}
        return [*vector_rows, *missing], fuse_scores(dense, words, self._config.dense_weight)

    def _columns(self, query: SearchQuery, score: str) -> list[str]:
        columns = ["id", "content", "metadata", score]
        # Keyword results of a hybrid search are also compared by vector.
        with_vector = query.include_vectors or (
            query.mode is SearchMode.HYBRID and score == "_score"
        )
        return [*columns, "vector"] if with_vector else columns

    def _score(self, distance: float) -> float:
        if self.distance_metric is DistanceMetric.EUCLIDEAN:
            return 1.0 / (1.0 + math.sqrt(max(0.0, distance)))  # LanceDB returns the square
        return 1.0 - distance

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        except (RuntimeError, OSError, ValueError):
            # A vacuum of another process may have removed the version being read.
            with _translate_errors(self.name):
                await self._table.checkout_latest()
                return await read()


async def _run_both(*works: Callable[[], Awaitable[None]]) -> None:
    """Run functions concurrently; raise the first error without a group."""
    failures: list[Exception] = []

    async def run(work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except VectorStoreError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(run, work)
    if failures:
        raise failures[0]


async def _index_words(table: AsyncTable) -> None:
    """Create the full-text index; rows written later are searched without it until a vacuum."""
    from lancedb.index import FTS

    await table.create_index("content", config=FTS())


def _missing(name: str, uri: str) -> CollectionNotFoundError:
    return CollectionNotFoundError(
        f"unknown collection {name!r} in {uri}",
        details={"collection": name, "uri": uri},
        hint="write to it first, or use a name of list_collections()",
    )


class _translate_errors(AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """Translates errors of LanceDB to VectorStoreErrors."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        # VectorStoreErrors that are also ValueErrors are not translated.
        if not isinstance(error, RuntimeError | OSError | ValueError) or isinstance(
            error, LexigramError
        ):
            return
        text = str(error).partition(", /root/")[0].removeprefix("lance error: ")
        if "was not found" in text or ("Not found" in text and "_versions" in text):
            raise _missing(self._what, "the store") from error
        if any(sign in text.lower() for sign in _DAMAGE_MARKERS):
            raise VectorDataCorruptError(
                f"cannot read the files of {self._what}: {text}",
                details={"what": self._what},
                hint="restore the folder from a backup, or delete it and ingest again",
            ) from error
        raise VectorStoreError(f"LanceDB failed on {self._what}: {text}") from error

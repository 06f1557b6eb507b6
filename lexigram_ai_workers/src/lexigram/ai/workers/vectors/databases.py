"""Manage the LanceDB databases below a folder, for the command line and the REST API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync
from attrs import asdict, frozen

from lexigram.ai.workers.vectors.checksum import (
    checksum_file,
    folder_checksum,
    folder_size,
    read_checksum,
    write_checksum,
)
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.ai.workers.vectors.errors import VectorDatabaseNotFoundError
from lexigram.ai.workers.vectors.lancedb import LanceVectorStore
from lexigram.ai.workers.vectors.locks import hold_rag_lock, rag_key
from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.contracts.data.vector import CollectionInfo, VectorStoreError


@frozen(kw_only=True)
class VacuumResult:
    """Result of a vacuum."""

    database: str
    freed_bytes: int
    size_bytes: int
    # None for a URI: its files are not local
    checksum: str | None


@frozen(kw_only=True)
class VerifyResult:
    """Result of comparing a database with its checksum."""

    database: str
    ok: bool
    reason: str
    expected: str | None
    found: str


class VectorDatabases:
    """Lists, describes, vacuums and verifies databases, the folders below the configured path."""

    def __init__(self, stores: VectorStores) -> None:
        self._stores = stores

    async def names(self) -> list[str]:
        """Return the names of the databases, sorted."""
        root = anyio.Path(self._get_root())
        if not await root.is_dir():
            return []
        return sorted([path.name async for path in root.iterdir() if await _is_database(path)])

    async def describe_all(self) -> list[dict[str, Any]]:
        """Describe all databases with size and number of collections, or with an error."""
        return [await self._describe(name) for name in await self.names()]

    async def info(self, database: str) -> dict[str, Any]:
        """Describe a database with its collections."""
        folder = await self.folder(database)
        collections = await self._get_store(database).list_collections()
        return {
            "database": database,
            "path": str(folder),
            "size_bytes": await run_sync(folder_size, folder),
            "rows": sum(found.vector_count for found in collections),
            "collections": [_describe_collection(found) for found in collections],
        }

    async def documents(
        self,
        database: str,
        *,
        collection: str | None = None,
        limit: int = 100,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the name users write
    ) -> list[dict[str, Any]]:
        """List the documents of a collection, or of all, with their number of chunks."""
        await self.folder(database)
        store = self._get_store(database)
        names = [collection] if collection else [c.name for c in await store.list_collections()]
        found: list[dict[str, Any]] = []
        for name in names:
            part = await store.get_collection(name)
            documents = await part.documents(limit + offset, 0, filter)
            found += [{"collection": name, **document} for document in documents]
        return found[offset : offset + limit]

    async def vacuum(
        self,
        database: str,
        *,
        kind: ResourceLockKind,
        max_wait: float | None = 0,
        force: bool = False,
    ) -> VacuumResult:
        """Compact a database, remove old versions and write its checksum.

        Raises VectorWriterBusyError if the lock is not free within ``max_wait`` seconds.
        ``force`` releases the SQL lock first; a file lock cannot be released.
        """
        folder = None if self._remote else await self.folder(database)
        place = self._stores.path_of(database) if folder is None else folder
        if force and self._stores.locks is not None:
            reason = f"vacuum --force ({kind.value})"
            key = await run_sync(rag_key, place)
            await self._stores.locks.force_release(key, reason=reason)
        async with hold_rag_lock(place, kind, max_wait, locks=self._stores.locks):
            freed = await self._get_store(database).vacuum()
            checksum = None if folder is None else await run_sync(write_checksum, folder)
        return VacuumResult(
            database=database,
            freed_bytes=freed,
            size_bytes=0 if folder is None else await run_sync(folder_size, folder),
            checksum=checksum,
        )

    async def verify(self, database: str) -> VerifyResult:
        """Compare the files with the checksum of the last vacuum, and open every collection."""
        folder = await self.folder(database)
        found = await run_sync(folder_checksum, folder)
        expected = await run_sync(read_checksum, folder)
        if expected is None:
            reason = f"{checksum_file(folder).name} does not exist; run a vacuum to write it"
        elif expected != found:
            reason = "the files differ from the checksum"
        else:
            reason = await self._find_read_error(database)
        return VerifyResult(
            database=database,
            ok=not reason,
            reason=reason or "the files match the checksum",
            expected=expected,
            found=found,
        )

    async def folder(self, database: str) -> Path:
        """Return the folder of a database. Raises VectorDatabaseNotFoundError."""
        self._get_root()
        folder = Path(await run_sync(os.path.abspath, self._stores.path_of(database)))
        if not await anyio.Path(folder).is_dir():
            raise VectorDatabaseNotFoundError(
                f"unknown database {database!r}",
                details={"database": database},
                hint="list the databases with `lexigram lancedb list`",
            )
        return folder

    @property
    def _remote(self) -> bool:
        return "://" in self._stores.config.path

    def _get_store(self, database: str) -> LanceVectorStore:
        store = self._stores.at(database)
        if not isinstance(store, LanceVectorStore):
            raise VectorStoreError(
                f"the vector store {self._stores.config.provider} has no LanceDB databases",
                hint="use the tools of that vector store",
            )
        return store

    def _get_root(self) -> Path:
        if self._remote:
            raise VectorStoreError(
                f"{self._stores.config.path} is not a local folder",
                hint="run the command on the machine with the files; only vacuum works with a URI",
            )
        return Path(self._stores.config.path)

    async def _describe(self, name: str) -> dict[str, Any]:
        try:
            info = await self.info(name)
        except VectorStoreError as error:
            return {"database": name, "error": error.message}
        return {**info, "collections": len(info["collections"]), "error": None}

    async def _find_read_error(self, database: str) -> str:
        try:
            await self._get_store(database).list_collections()
        except VectorStoreError as error:
            return error.message
        return ""


def as_data(outcome: VacuumResult | VerifyResult) -> dict[str, Any]:
    """Convert a result to JSON-ready data."""
    return asdict(outcome)


def _describe_collection(info: CollectionInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "rows": info.vector_count,
        "dimension": info.dimension,
        "metric": info.distance_metric.value,
        "model_id": info.model_id,
        "index": info.index_type.value,
        "state": info.state.value,
    }


async def _is_database(path: anyio.Path) -> bool:
    if not await path.is_dir() or path.name.startswith("."):
        return False
    return any([child.suffix == ".lance" async for child in path.iterdir()])

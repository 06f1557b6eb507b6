"""The LanceDB databases below one folder: what the command line and the routes do to them."""

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
class Vacuumed:
    """What a vacuum did."""

    database: str
    freed_bytes: int
    size_bytes: int
    # None for a URI: its files are not here to be summed
    checksum: str | None


@frozen(kw_only=True)
class Verified:
    """Whether a database is as it was when its sum was written."""

    database: str
    ok: bool
    reason: str
    expected: str | None
    found: str


class VectorDatabases:
    """Lists, describes, vacuums and verifies; a database is a folder below the configured path."""

    def __init__(self, stores: VectorStores) -> None:
        self._stores = stores

    async def names(self) -> list[str]:
        """The databases, by name."""
        root = anyio.Path(self._root())
        if not await root.is_dir():
            return []
        return sorted([path.name async for path in root.iterdir() if await _is_database(path)])

    async def describe_all(self) -> list[dict[str, Any]]:
        """Every database with its size and number of collections; a broken one with its error."""
        return [await self._described(name) for name in await self.names()]

    async def info(self, database: str) -> dict[str, Any]:
        """A database with its collections."""
        folder = await self.folder(database)
        collections = await self._store(database).list_collections()
        return {
            "database": database,
            "path": str(folder),
            "size_bytes": await run_sync(folder_size, folder),
            "rows": sum(found.vector_count for found in collections),
            "collections": [_told(found) for found in collections],
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
        """The documents of a collection, or of all, each with how many pieces it has."""
        await self.folder(database)
        store = self._store(database)
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
    ) -> Vacuumed:
        """Compact a database, remove old versions, write its sum beside it.

        VectorWriterBusyError when somebody holds it for longer than ``max_wait``. ``force``
        takes the SQL lock away from a holder that is stuck; a file lock cannot be taken from
        a living process.
        """
        folder = None if self._remote else await self.folder(database)
        place = self._stores.path_of(database) if folder is None else folder
        if force and self._stores.locks is not None:
            reason = f"vacuum --force ({kind.value})"
            key = await run_sync(rag_key, place)
            await self._stores.locks.force_release(key, reason=reason)
        async with hold_rag_lock(place, kind, max_wait, locks=self._stores.locks):
            freed = await self._store(database).vacuum()
            checksum = None if folder is None else await run_sync(write_checksum, folder)
        return Vacuumed(
            database=database,
            freed_bytes=freed,
            size_bytes=0 if folder is None else await run_sync(folder_size, folder),
            checksum=checksum,
        )

    async def verify(self, database: str) -> Verified:
        """Compare the files with the sum written by the last vacuum, and open every collection."""
        folder = await self.folder(database)
        found = await run_sync(folder_checksum, folder)
        expected = await run_sync(read_checksum, folder)
        if expected is None:
            reason = f"there is no {checksum_file(folder).name}: a vacuum writes it"
        elif expected != found:
            reason = "the files are not those the sum was made of"
        else:
            reason = await self._unreadable(database)
        return Verified(
            database=database,
            ok=not reason,
            reason=reason or "as it was summed",
            expected=expected,
            found=found,
        )

    async def folder(self, database: str) -> Path:
        """Where a database is. Raises VectorDatabaseNotFoundError when there is none."""
        self._root()
        folder = Path(await run_sync(os.path.abspath, self._stores.path_of(database)))
        if not await anyio.Path(folder).is_dir():
            raise VectorDatabaseNotFoundError(
                f"there is no database {database!r}",
                details={"database": database},
                hint="`lexigram lancedb list` shows those that exist",
            )
        return folder

    @property
    def _remote(self) -> bool:
        return "://" in self._stores.config.path

    def _store(self, database: str) -> LanceVectorStore:
        store = self._stores.at(database)
        if not isinstance(store, LanceVectorStore):
            raise VectorStoreError(
                f"vectors are kept by {self._stores.config.provider}, which has no such files",
                hint="use the tools of that store",
            )
        return store

    def _root(self) -> Path:
        if self._remote:
            raise VectorStoreError(
                f"{self._stores.config.path} is no folder of this machine",
                hint="only a vacuum needs no folder",
            )
        return Path(self._stores.config.path)

    async def _described(self, name: str) -> dict[str, Any]:
        try:
            info = await self.info(name)
        except VectorStoreError as error:
            return {"database": name, "error": error.message}
        return {**info, "collections": len(info["collections"]), "error": None}

    async def _unreadable(self, database: str) -> str:
        try:
            await self._store(database).list_collections()
        except VectorStoreError as error:
            return error.message
        return ""


def as_data(outcome: Vacuumed | Verified) -> dict[str, Any]:
    """An outcome for programs."""
    return asdict(outcome)


def _told(info: CollectionInfo) -> dict[str, Any]:
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

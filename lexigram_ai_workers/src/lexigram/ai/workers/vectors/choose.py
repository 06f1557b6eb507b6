"""Create the configured vector store, one per database."""

from __future__ import annotations

import os
from pathlib import Path

from lexigram.ai.workers.vectors.config import VectorConfig
from lexigram.ai.workers.vectors.errors import VectorDatabaseNotFoundError
from lexigram.contracts.data.locks import ResourceLockProtocol
from lexigram.contracts.data.vector import VectorStoreProtocol

# Limits of file systems: bytes of a name, characters of a path.
_MAX_PART_BYTES = 255
_MAX_PATH_LENGTH = 1024


class VectorStores:
    """``stores.at("my_database")`` returns the store of a database, the same for every caller.

    Sharing the store matters: concurrent writes share a commit.
    """

    def __init__(
        self, config: VectorConfig | None = None, *, locks: ResourceLockProtocol | None = None
    ) -> None:
        self.config = config or VectorConfig()
        self.locks = locks
        self._stores: dict[str, VectorStoreProtocol] = {}

    def at(self, database: str | None = None) -> VectorStoreProtocol:
        """Return the store of a database below the configured path; None: the default database."""
        path = self.path_of(database or self.config.database)
        if path not in self._stores:
            self._stores[path] = choose_store(self.config, path, locks=self.locks)
        return self._stores[path]

    def path_of(self, database: str) -> str:
        """Return the path of a database. Raises for a name outside of the folder."""
        if "://" in self.config.path:
            return f"{self.config.path.rstrip('/')}/{_safe(database)}"
        return str(Path(self.config.path, _safe(database)))

    async def close(self) -> None:
        """Close all stores."""
        for store in self._stores.values():
            await store.disconnect()
        self._stores.clear()


def choose_store(
    config: VectorConfig, path: str, *, locks: ResourceLockProtocol | None = None
) -> VectorStoreProtocol:
    """Create a store of the configured provider; its library is imported on first use."""
    if config.provider == "memory":
        from lexigram.ai.workers.vectors.memory import MemoryVectorStore

        return MemoryVectorStore(dense_weight=config.dense_weight)
    if config.provider == "qdrant":
        from lexigram.ai.workers.vectors.qdrant import QdrantVectorStore

        return QdrantVectorStore(url=config.qdrant_url, api_key=config.qdrant_api_key, path=path)
    from lexigram.ai.workers.vectors.lancedb import LanceVectorStore

    return LanceVectorStore(path, config, locks=locks)


def _safe(database: str) -> str:
    parts = Path(database).parts
    if (
        not parts
        or Path(database).is_absolute()
        or ".." in parts
        or "\0" in database
        or len(database) > _MAX_PATH_LENGTH
        or any(len(os.fsencode(part)) > _MAX_PART_BYTES for part in parts)
    ):
        raise VectorDatabaseNotFoundError(
            f"invalid database name {database!r}",
            hint="use the name of a folder below vectors.path",
        )
    return database

"""The store that the settings name, one for each database."""

from __future__ import annotations

from pathlib import Path

from lexigram.ai.workers.vectors.config import VectorConfig
from lexigram.ai.workers.vectors.errors import VectorDatabaseNotFoundError
from lexigram.contracts.data.locks import ResourceLockProtocol
from lexigram.contracts.data.vector import VectorStoreProtocol


class VectorStores:
    """``stores.at("my_database")``: its store, the same object for every caller.

    One object per database matters: writes that come at one time share a commit.
    """

    def __init__(
        self, config: VectorConfig | None = None, *, locks: ResourceLockProtocol | None = None
    ) -> None:
        self.config = config or VectorConfig()
        self.locks = locks
        self._stores: dict[str, VectorStoreProtocol] = {}

    def at(self, database: str | None = None) -> VectorStoreProtocol:
        """The store of a database below the configured path; None: the configured one."""
        path = self.path_of(database or self.config.database)
        if path not in self._stores:
            self._stores[path] = choose_store(self.config, path, locks=self.locks)
        return self._stores[path]

    def path_of(self, database: str) -> str:
        """Where a database lies. Raises for a name that leads out of the folder."""
        if "://" in self.config.path:
            return f"{self.config.path.rstrip('/')}/{_safe(database)}"
        return str(Path(self.config.path, _safe(database)))

    async def close(self) -> None:
        """Let go of all stores."""
        for store in self._stores.values():
            await store.disconnect()
        self._stores.clear()


def choose_store(
    config: VectorConfig, path: str, *, locks: ResourceLockProtocol | None = None
) -> VectorStoreProtocol:
    """A new store of the configured kind; its library is imported on first use."""
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
    if not parts or Path(database).is_absolute() or ".." in parts or "\0" in database:
        raise VectorDatabaseNotFoundError(
            f"{database!r} is no database", hint="give the name of a folder below vectors.path"
        )
    return database

"""One suite for every vector store."""

import pytest

from lexigram.ai.workers.vectors import (
    LanceVectorStore,
    MemoryVectorStore,
    QdrantVectorStore,
    VectorConfig,
)
from lexigram.sql import Database
from lexigram.sql.locks import SqlResourceLocks
from lexigram.testing.conformance.vectors import VectorCapability, VectorConformance

ALL = set(VectorCapability)


class TestMemory(VectorConformance):
    capabilities = ALL - {VectorCapability.SHARING, VectorCapability.MAINTENANCE}

    @pytest.fixture
    def subject(self):
        return MemoryVectorStore()


class TestLanceDB(VectorConformance):
    capabilities = ALL

    @pytest.fixture
    def subject(self, tmp_path):
        return LanceVectorStore(tmp_path / "db")

    @pytest.fixture
    def peer(self, subject, tmp_path):
        return LanceVectorStore(tmp_path / "db")


class TestLanceDBOnSharedStorage(VectorConformance):
    """Writers exclude each other by the SQL lock."""

    capabilities = ALL

    @pytest.fixture
    async def locks(self, sqlite_url):
        async with Database(sqlite_url) as database:
            yield SqlResourceLocks(database)

    @pytest.fixture
    def subject(self, tmp_path, locks):
        return LanceVectorStore(tmp_path / "db", VectorConfig(shared_storage=True), locks=locks)

    @pytest.fixture
    def peer(self, subject, tmp_path, locks):
        return LanceVectorStore(tmp_path / "db", VectorConfig(shared_storage=True), locks=locks)


class TestQdrant(VectorConformance):
    """Its local mode; a folder belongs to one process at a time."""

    capabilities = ALL - {
        VectorCapability.WORDS,
        VectorCapability.SHARING,
        VectorCapability.MAINTENANCE,
    }

    @pytest.fixture
    async def subject(self, tmp_path):
        store = QdrantVectorStore(path=str(tmp_path / "db"))
        yield store
        await store.disconnect()

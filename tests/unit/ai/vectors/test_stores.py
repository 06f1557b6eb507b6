"""The settings name the store; a database is one object, below one folder."""

import sqlite3
import subprocess
import sys
from functools import partial

import pytest

from lexigram.ai.workers.vectors import (
    LanceVectorStore,
    MemoryVectorStore,
    QdrantVectorStore,
    VectorConfig,
    VectorStores,
    hold_rag_lock,
    rag_key,
)
from lexigram.ai.workers.vectors.errors import VectorDatabaseNotFoundError, VectorWriterBusyError
from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.contracts.data.vector import SearchMode, SearchQuery
from lexigram.sql import Database
from lexigram.sql.locks import SqlResourceLocks
from lexigram.workflow.durable.definitions.model import StepDefinition, resource_key

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("provider", "kind"),
    [("lancedb", LanceVectorStore), ("qdrant", QdrantVectorStore), ("memory", MemoryVectorStore)],
)
def test_the_provider_is_chosen_by_the_settings(tmp_path, provider, kind):
    stores = VectorStores(VectorConfig(provider=provider, path=str(tmp_path)))
    assert isinstance(stores.at(), kind)


def test_a_database_is_one_object_for_all(tmp_path):
    stores = VectorStores(VectorConfig(path=str(tmp_path)))
    assert stores.at("a") is stores.at("a") is not stores.at("b")
    assert stores.at() is stores.at("default")


@pytest.mark.parametrize("name", ["../up", "/etc", "a/../../b", "a\0b", "."])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path, name):
    stores = VectorStores(VectorConfig(path=str(tmp_path)))
    with pytest.raises(VectorDatabaseNotFoundError):
        stores.at(name)


def test_the_key_of_a_database_is_its_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert rag_key("lancedb/x") == f"rag:{tmp_path}/lancedb/x"
    assert rag_key("s3://bucket/x") == "rag:s3://bucket/x"
    # what durable runs stamp their store steps with
    step = StepDefinition(key="s", step_type="store", name="s", method="m:f")
    stamped = resource_key(step, {"data_dir": "x"}, "./lancedb")
    assert stamped == rag_key(VectorStores(VectorConfig(path="./lancedb")).path_of("x"))


async def test_the_rag_lock_is_the_row_that_store_steps_wait_for(tmp_path, sqlite_url):
    async with Database(sqlite_url) as database:
        locks = SqlResourceLocks(database)
        async with hold_rag_lock(tmp_path / "db", ResourceLockKind.LIFECYCLE, locks=locks):
            hold = await locks.get(f"rag:{tmp_path}/db")
            assert hold is not None
            assert hold.holder_kind is ResourceLockKind.LIFECYCLE
            with pytest.raises(TimeoutError, match=hold.holder_id):
                async with hold_rag_lock(tmp_path / "db", max_wait=0, locks=locks):
                    pytest.fail("held twice")
        assert await locks.get(f"rag:{tmp_path}/db") is None


async def test_without_sql_the_rag_lock_is_a_file(tmp_path):
    async with hold_rag_lock(tmp_path / "db"):
        with pytest.raises(VectorWriterBusyError, match="process"):
            async with hold_rag_lock(tmp_path / "db", max_wait=0):
                pytest.fail("held twice")
    async with hold_rag_lock(tmp_path / "db", max_wait=0):
        pass


async def test_qdrant_says_that_it_has_no_words(tmp_path):
    store = QdrantVectorStore(path=str(tmp_path))
    await store.add_texts(["one"], [[1.0, 0.0]])
    collection = await store.get_collection("default")
    with pytest.raises(ValueError, match="does not support text searches"):
        await collection.search(SearchQuery(text="one", mode=SearchMode.TEXT))
    await store.disconnect()


async def test_a_deleted_collection_of_a_folder_keeps_no_file_open(tmp_path, monkeypatch):
    class Watched(sqlite3.Connection):
        def close(self):
            closed.append(self)
            super().close()

    closed = []
    connect = partial(sqlite3.connect, factory=Watched)
    monkeypatch.setattr("qdrant_client.local.persistence.sqlite3.connect", connect)
    store = QdrantVectorStore(path=str(tmp_path))
    await store.add_texts(["one"], [[1.0, 0.0]])
    assert await store.delete_collection("default")
    assert len(closed) == 1
    await store.disconnect()


def test_importing_the_stores_loads_no_library_of_theirs():
    code = (
        "import sys, lexigram.ai.workers.vectors as v; v.VectorConfig; v.VectorStores; "
        "print([m for m in ('lancedb', 'qdrant_client', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"

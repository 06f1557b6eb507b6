"""On shared storage a lock can be lost unnoticed: the table is looked at after every commit."""

from contextlib import asynccontextmanager

import pytest

from lexigram.ai.workers.vectors import LanceVectorStore, VectorConfig
from lexigram.contracts.core.lock import LockLostError
from lexigram.contracts.data.vector import CollectionConfig, VectorRecord
from lexigram.sql import Database
from lexigram.sql.locks import SqlResourceLocks

pytestmark = pytest.mark.anyio

RECORDS = [VectorRecord(id=f"r{n}", vector=[1.0, n]) for n in range(5)]


@pytest.fixture
async def collection(tmp_path, sqlite_url):
    async with Database(sqlite_url) as database:
        store = LanceVectorStore(
            tmp_path / "db", VectorConfig(shared_storage=True), locks=SqlResourceLocks(database)
        )
        yield await store.create_collection(CollectionConfig(name="c", dimension=2))
        await store.disconnect()


async def test_rows_of_a_writer_without_the_lock_are_not_kept_twice(collection, monkeypatch):
    await collection.upsert(RECORDS)
    table, merge = collection._table, collection._writer.merge

    async def interrupted(rows, vectors):
        await table.add(await table.query().to_arrow())  # somebody who slept through his lock
        return await merge(rows, vectors)

    monkeypatch.setattr(collection._writer, "merge", interrupted)
    await collection.upsert([VectorRecord(id="new", vector=[2.0, 2.0])])
    assert await collection.count() == 6


async def test_a_lock_lost_while_writing_leaves_the_write_and_no_row_twice(collection, monkeypatch):
    writer = collection._writer
    real = writer._lock
    lost = []

    class Losing:
        @asynccontextmanager
        async def hold(self, max_wait):
            async with real.hold(max_wait):
                yield
            if not lost:
                lost.append(True)
                raise LockLostError("the lock was lost")

    monkeypatch.setattr(writer, "_lock", Losing())
    assert (await collection.upsert(RECORDS)).upserted_count == 5
    assert lost
    assert await collection.count() == 5

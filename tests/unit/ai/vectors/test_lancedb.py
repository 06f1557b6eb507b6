"""What LanceDB does beyond the contract: few commits, indexes by size, damage told."""

import shutil

import anyio
import numpy as np
import pytest

from lexigram.ai.workers.vectors import LanceVectorStore, VectorConfig
from lexigram.ai.workers.vectors.errors import VectorDataCorruptError, VectorWriterBusyError
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.data.vector import (
    CollectionConfig,
    DistanceMetric,
    IndexState,
    IndexType,
    SearchMode,
    SearchQuery,
    VectorIndexError,
    VectorRecord,
    VectorStoreError,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "db"


@pytest.fixture
async def store(folder):
    store = LanceVectorStore(folder, VectorConfig(flat_below=300))
    yield store
    await store.disconnect()


@pytest.fixture
async def collection(store):
    return await store.create_collection(CollectionConfig(name="c", dimension=8))


def records(count, start=0, **metadata):
    chance = np.random.default_rng(start)
    return [
        VectorRecord(
            id=f"r{n}", vector=chance.standard_normal(8), content=f"text{n}", metadata=metadata
        )
        for n in range(start, start + count)
    ]


async def test_writes_that_come_at_one_time_share_a_commit(collection):
    before = await collection._table.version()
    async with anyio.create_task_group() as tasks:
        for start in range(0, 100, 5):
            own = records(5, start, document_id=f"d{start}")
            tasks.start_soon(collection.replace, {"document_id": f"d{start}"}, own)
    assert await collection.count() == 100
    # The first goes alone; those that waited meanwhile go together.
    assert await collection._table.version() - before <= 3


async def test_a_bad_write_fails_alone(collection):
    async def refused():
        with pytest.raises(VectorStoreError):
            await collection.upsert([VectorRecord(id="bad", vector=[1.0])])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collection.upsert, records(5))
        tasks.start_soon(refused)
        tasks.start_soon(collection.upsert, records(5, 5))
    assert await collection.count() == 10


async def test_the_index_is_chosen_by_size_and_finds_what_comes_after_it(store, collection):
    await collection.upsert(records(200))
    await store.optimize_indexes()
    info = (await store.list_collections())[0]
    assert (info.index_type, info.state) == (IndexType.FLAT, IndexState.READY)
    await collection.upsert(records(400, 200))
    assert (await store.list_collections())[0].state is IndexState.UPDATING
    await store.optimize_indexes()
    info = (await store.list_collections())[0]
    assert (info.index_type, info.state) == (IndexType.IVF_RQ, IndexState.READY)
    (late,) = records(1, 5000)
    await collection.upsert([late])
    for wanted in (late, records(600, 200)[7]):
        found = await collection.search(SearchQuery(vector=wanted.vector, top_k=1))
        assert [hit.id for hit in found] == [wanted.id]
    await collection.upsert(records(600))
    assert await collection.count() == 601


@pytest.mark.parametrize("count", [1, 5, 300])
@pytest.mark.parametrize("dimension", [3, 16])
async def test_every_dimension_and_size_can_be_indexed(folder, dimension, count):
    store = LanceVectorStore(folder, VectorConfig(flat_below=0))
    collection = await store.create_collection(CollectionConfig(name="c", dimension=dimension))
    vectors = np.random.default_rng(1).standard_normal((count, dimension))
    await collection.upsert(
        [VectorRecord(id=str(n), vector=vector) for n, vector in enumerate(vectors)]
    )
    await store.vacuum()
    info = (await store.list_collections())[0]
    assert info.index_type is (IndexType.IVF_RQ if dimension == 16 else IndexType.IVFFLAT)
    found = await collection.search(SearchQuery(vector=vectors[0], top_k=1))
    assert [hit.id for hit in found] == ["0"]
    await store.disconnect()


async def test_a_filter_finds_what_is_outside_the_nearest_index_partitions(
    store, collection, monkeypatch
):
    chance = np.random.default_rng(1)
    await collection.upsert(
        [
            VectorRecord(id=str(n), vector=chance.standard_normal(8), metadata={"part": n // 10})
            for n in range(13_000)
        ]
    )
    await store.vacuum()
    monkeypatch.setattr("lexigram.ai.workers.vectors.lancedb._INDEX_PARTITIONS_SEARCHED", 1)
    for part in range(0, 1300, 100):
        query = SearchQuery(vector=[1.0] + [0.0] * 7, top_k=50, filter={"part": part})
        assert len(await collection.search(query)) == 10


async def test_words_are_indexed_by_a_vacuum_and_found_before_it(store, collection):
    await collection.upsert(records(5))
    for _ in range(2):
        query = SearchQuery(text="text3", mode=SearchMode.TEXT)
        assert [hit.id for hit in await collection.search(query)] == ["r3"]
        await store.vacuum()


async def test_what_lancedb_cannot_do_is_refused_by_name(store):
    with pytest.raises(VectorIndexError, match="hnsw"):
        await store.create_collection(
            CollectionConfig(name="c", dimension=8, index_type=IndexType.HNSW)
        )
    with pytest.raises(VectorIndexError, match="divisible by 8, not 3"):
        await store.create_collection(
            CollectionConfig(name="c", dimension=3, index_type=IndexType.IVF_RQ)
        )
    with pytest.raises(VectorStoreError, match="manhattan"):
        await store.create_collection(
            CollectionConfig(name="c", dimension=8, distance_metric=DistanceMetric.MANHATTAN)
        )


async def test_shared_storage_without_locks_is_refused(folder):
    for store in (
        LanceVectorStore(folder, VectorConfig(shared_storage=True)),
        LanceVectorStore("s3://bucket/db"),
    ):
        with pytest.raises(VectorStoreError, match="the application has no SQL lock"):
            await store.connect()


async def test_a_reader_goes_on_through_the_vacuum_of_another_process(folder, store, collection):
    for _ in range(3):
        await collection.upsert(records(50))
    reader = await LanceVectorStore(folder).get_collection("c")
    assert await reader.count() == 50
    await store.vacuum()
    found = await reader.search(SearchQuery(vector=[1.0] * 8, top_k=100))
    assert len(found) == 50


async def test_damaged_files_raise_corrupt_data_errors(folder, store, collection):
    await collection.upsert(records(5))
    await store.disconnect()
    for path in (folder / "c.lance" / "_versions").iterdir():
        await anyio.Path(path).write_bytes(b"rubbish")
    with pytest.raises(VectorDataCorruptError, match="restore the folder"):
        await store.get_collection("c")
    health = await store.health_check(timeout=30)
    assert health.status is HealthStatus.UNHEALTHY
    await store.disconnect()


async def test_missing_data_files_raise_corrupt_data_errors(folder, store, collection):
    await collection.upsert(records(5))
    for path in (folder / "c.lance" / "data").iterdir():
        await anyio.Path(path).unlink()
    with pytest.raises(VectorDataCorruptError):
        await collection.search(SearchQuery(vector=[1.0] * 8))


async def test_a_folder_that_was_removed_is_a_missing_collection(folder, store, collection):
    await store.disconnect()
    await anyio.to_thread.run_sync(shutil.rmtree, folder)
    assert await store.list_collections() == []
    with pytest.raises(LookupError, match="unknown collection 'c'"):
        await store.get_collection("c")
    assert not folder.exists()


async def test_a_collection_made_anew_by_another_process_is_seen(folder, store, collection):
    other = LanceVectorStore(folder)
    await other.delete_collection("c")
    with pytest.raises(LookupError):
        await collection.count()
    with pytest.raises(LookupError):
        await store.get_collection("c")
    await other.create_collection(CollectionConfig(name="c", dimension=2, model_id="new"))
    again = await store.get_collection("c")
    assert (again.dimension, again.model_id) == (2, "new")
    assert again is await store.get_collection("c")


async def test_a_writer_that_waits_too_long_gets_an_error_that_names_the_holder(folder, collection):
    impatient = LanceVectorStore(folder, VectorConfig(lock_wait=0.05))
    other = await impatient.get_collection("c")
    entered, done = anyio.Event(), anyio.Event()

    async def slow():
        entered.set()
        await done.wait()
        return 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collection.run_exclusively, slow)
        await entered.wait()
        with pytest.raises(VectorWriterBusyError, match="is locked by process"):
            await other.upsert(records(1))
        done.set()
    assert (await other.upsert(records(1))).upserted_count == 1


async def test_rows_that_are_there_twice_are_read_once_and_removed_by_a_vacuum(store, collection):
    await collection.upsert(records(5))
    table = collection._table
    await table.add(await table.query().to_arrow())  # what no writer of ours does
    assert await collection.count() == 10
    found = await collection.search(SearchQuery(vector=[1.0] * 8, top_k=10))
    assert len({hit.id for hit in found}) == len(found) == 5
    assert len(await collection.get(["r1"])) == 1
    await store.vacuum()
    assert await collection.count() == 5

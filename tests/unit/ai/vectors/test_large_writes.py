"""Large writes to LanceDB are converted batch by batch, in one commit."""

import pytest

from lexigram.ai.workers.vectors.errors import VectorRecordError
from lexigram.ai.workers.vectors.lancedb import LanceVectorStore
from lexigram.ai.workers.vectors.lancedb_rows import BATCH_ROW_COUNT
from lexigram.contracts.data.vector import CollectionConfig, VectorRecord

COUNT = 2 * BATCH_ROW_COUNT + 7


@pytest.fixture
async def collection(tmp_path):
    store = LanceVectorStore(tmp_path)
    yield await store.create_collection(CollectionConfig(name="pages", dimension=4))
    await store.disconnect()


def pages(metadata=None):
    facts = {"document_id": "book"}
    return [
        VectorRecord(
            id=f"page-{number}",
            vector=[1.0, float(number), 0.0, 0.0],
            metadata={**facts, "number": number, **(metadata or {}).get(number, {})},
            content=f"page {number}",
        )
        for number in range(COUNT)
    ]


async def test_all_rows_are_written_in_one_commit(collection):
    before = await collection._table.version()
    result = await collection.replace({"document_id": "book"}, pages())
    assert result.upserted_count == COUNT
    assert await collection._table.version() == before + 1
    last = COUNT - 1
    [record] = await collection.get([f"page-{last}"])
    assert (record.content, list(record.vector)[1]) == (f"page {last}", float(last))
    assert record.metadata["number"] == last


async def test_writing_again_replaces_all_rows(collection):
    for _ in range(2):
        await collection.replace({"document_id": "book"}, pages())
    assert await collection.count() == COUNT


async def test_an_error_of_the_last_row_is_raised_as_it_is_and_nothing_is_stored(collection):
    bad = pages({COUNT - 1: {"when": object()}})
    with pytest.raises(VectorRecordError, match="not a JSON value"):
        await collection.upsert(bad)
    assert await collection.count() == 0
    assert (await collection.upsert(pages())).upserted_count == COUNT

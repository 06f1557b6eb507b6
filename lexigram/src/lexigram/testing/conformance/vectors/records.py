"""One record per id, found as it was written."""

from __future__ import annotations

import math
from collections.abc import Sequence

import anyio
import pytest

from lexigram.contracts.data.vector import VectorCollectionProtocol, VectorStoreError
from lexigram.testing.conformance.vectors.spec import (
    VectorCapability,
    VectorSpec,
    axis,
    ids_in,
    record,
)


class RecordsSpec(VectorSpec, capability=VectorCapability.RECORDS):
    """upsert, add_texts, get, delete, update_metadata, count."""

    async def test_a_record_comes_back_as_it_was_written(
        self, collection: VectorCollectionProtocol
    ) -> None:
        told = {"title": "Ä 'quoted'", "page": 3, "share": 0.5, "tags": ["x", "y"], "old": None}
        await collection.upsert([record("a'b", [0.5, -2.0, 0.0, 1.0], "the text", **told)])
        (found,) = await collection.get(["a'b", "unknown"])
        assert (found.id, found.content, dict(found.metadata)) == ("a'b", "the text", told)
        assert list(found.vector) == pytest.approx([0.5, -2.0, 0.0, 1.0])

    async def test_writing_an_id_again_replaces_its_record(
        self, collection: VectorCollectionProtocol
    ) -> None:
        for _ in range(2):
            await collection.upsert([record("a", axis(0), "old", n=1), record("b")])
        result = await collection.upsert([record("a", axis(1), "new")])
        assert (result.upserted_count, await collection.count()) == (1, 2)
        (found,) = await collection.get(["a"])
        assert (list(found.vector), found.content, dict(found.metadata)) == (axis(1), "new", {})

    async def test_of_one_id_twice_in_a_call_the_last_stays(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a", content="first"), record("a", content="last")])
        assert [found.content for found in await collection.get(["a"])] == ["last"]
        assert await collection.count() == 1

    async def test_concurrent_writes_of_the_same_ids_leave_one_record_each(
        self, collection: VectorCollectionProtocol
    ) -> None:
        async def write(start: int) -> None:
            await collection.upsert([record(f"r{n}") for n in range(start, start + 20)])

        async with anyio.create_task_group() as tasks:
            for start in range(0, 40, 5):
                tasks.start_soon(write, start)
        assert await collection.count() == 55

    async def test_writing_nothing_is_fine(self, collection: VectorCollectionProtocol) -> None:
        assert (await collection.upsert([])).upserted_count == 0
        assert list(await collection.get([])) == []
        assert (await collection.delete([])).deleted_count == 0
        assert await collection.count() == 0

    async def test_a_text_added_again_replaces_itself(
        self, collection: VectorCollectionProtocol
    ) -> None:
        for _ in range(2):
            await collection.add_texts(["one", "two"], [axis(0), axis(1)], [{"n": 1}, {"n": 2}])
        await collection.add_texts(["three"], [axis(2)], ids=["3"])
        assert await collection.count() == 3
        assert await ids_in(collection, ["3"]) == {"3"}

    async def test_deleted_records_are_gone_and_unknown_ones_not_counted(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record(key) for key in "abc"])
        assert (await collection.delete(["a", "b", "x"])).deleted_count == 2
        assert await ids_in(collection, "abc") == {"c"}

    async def test_metadata_is_replaced_and_the_rest_stays(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a", axis(2), "text", page=1, source="x")])
        assert await collection.update_metadata("a", {"page": 2})
        assert not await collection.update_metadata("unknown", {"page": 2})
        (found,) = await collection.get(["a"])
        assert (dict(found.metadata), found.content) == ({"page": 2}, "text")
        assert list(found.vector) == axis(2)

    @pytest.mark.parametrize(
        "vector", [[], [1.0], [1.0] * 5, [math.nan, 0, 0, 0], [math.inf, 0, 0, 0]]
    )
    async def test_a_vector_of_another_dimension_or_no_number_is_refused_whole(
        self, collection: VectorCollectionProtocol, vector: Sequence[float]
    ) -> None:
        with pytest.raises(VectorStoreError, match="bad"):
            await collection.upsert([record("good"), record("bad", vector)])
        assert await collection.count() == 0

    async def test_metadata_that_is_no_json_is_refused(
        self, collection: VectorCollectionProtocol
    ) -> None:
        with pytest.raises(VectorStoreError):
            await collection.upsert([record("a", thing=object())])
        assert await collection.count() == 0

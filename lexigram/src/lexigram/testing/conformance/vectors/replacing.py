"""Storing a document again leaves nothing of the old one."""

from __future__ import annotations

import anyio
import pytest

from lexigram.contracts.data.vector import VectorCollectionProtocol
from lexigram.testing.conformance.vectors.spec import (
    VectorCapability,
    VectorSpec,
    ids_in,
    record,
)


class ReplaceSpec(VectorSpec, capability=VectorCapability.REPLACE):
    """replace."""

    async def test_pieces_a_document_no_longer_has_disappear(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("other", document_id="d2")])
        first = [record(key, document_id="d1") for key in "abc"]
        assert (await collection.replace({"document_id": "d1"}, first)).upserted_count == 3
        second = [record(key, content="new", document_id="d1") for key in "bd"]
        await collection.replace({"document_id": "d1"}, second)
        assert await ids_in(collection, ["a", "b", "c", "d", "other"]) == {"b", "d", "other"}
        (found,) = await collection.get(["b"])
        assert found.content == "new"

    async def test_replacing_by_nothing_removes_the_document(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a", lang="de"), record("b", lang="en")])
        await collection.replace({"lang": "de"}, [])
        assert await ids_in(collection, "ab") == {"b"}

    async def test_documents_replaced_at_one_time_do_not_touch_each_other(
        self, collection: VectorCollectionProtocol
    ) -> None:
        async def store(document: int, version: int, pieces: int) -> None:
            own = [
                record(f"{document}.{version}.{n}", document_id=f"d{document}")
                for n in range(pieces)
            ]
            await collection.replace({"document_id": f"d{document}"}, own)

        for version, pieces in enumerate((4, 3)):
            async with anyio.create_task_group() as tasks:
                for document in range(8):
                    tasks.start_soon(store, document, version, pieces)
        assert await collection.count() == 8 * 3

    async def test_of_two_versions_of_a_document_at_one_time_one_stays_whole(
        self, collection: VectorCollectionProtocol
    ) -> None:
        async with anyio.create_task_group() as tasks:
            for version in "ab":
                own = [record(f"{version}{n}", document_id="d") for n in range(3)]
                tasks.start_soon(collection.replace, {"document_id": "d"}, own)
        left = await ids_in(collection, [f"{version}{n}" for version in "ab" for n in range(3)])
        assert left in ({"a0", "a1", "a2"}, {"b0", "b1", "b2"})

    async def test_an_empty_filter_and_a_record_outside_it_are_refused(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a", document_id="d1")])
        with pytest.raises(ValueError, match="empty"):
            await collection.replace({}, [])
        with pytest.raises(ValueError, match="does not match"):
            await collection.replace({"document_id": "d1"}, [record("b", document_id="d2")])
        assert await ids_in(collection, "ab") == {"a"}

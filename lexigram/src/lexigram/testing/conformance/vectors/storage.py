"""Collections and their records: add, replace, delete, and the model they belong to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import anyio
import pytest

from lexigram.contracts.data.vector import (
    DistanceMetric,
    EmbeddingError,
    VectorCollectionProtocol,
    VectorStoreError,
    VectorStoreProtocol,
)
from lexigram.testing.conformance.vectors.spec import (
    DIMENSION,
    MODEL,
    VectorCapability,
    VectorSpec,
    axis,
    config,
    ids_in,
    record,
)


class CollectionsSpec(VectorSpec, capability=VectorCapability.COLLECTIONS):
    """create, list, exists, get, delete, and add_texts of the store."""

    async def test_a_collection_satisfies_its_contract(
        self, collection: VectorCollectionProtocol
    ) -> None:
        assert isinstance(collection, VectorCollectionProtocol)
        assert (collection.name, collection.dimension) == ("documents", DIMENSION)
        assert (collection.distance_metric, collection.model_id) == (DistanceMetric.COSINE, MODEL)

    async def test_a_new_store_has_no_collections(self, subject: VectorStoreProtocol) -> None:
        await subject.connect()
        assert list(await subject.list_collections()) == []
        assert not await subject.collection_exists("documents")
        with pytest.raises(VectorStoreError, match="documents"):
            await subject.get_collection("documents")
        assert not await subject.delete_collection("documents")
        await subject.disconnect()

    async def test_collections_are_listed_by_name_with_what_they_are(
        self, subject: VectorStoreProtocol, collection: VectorCollectionProtocol
    ) -> None:
        await subject.create_collection(config("attachments"))
        await collection.upsert([record("a"), record("b")])
        listed = await subject.list_collections()
        assert [(info.name, info.vector_count) for info in listed] == [
            ("attachments", 0),
            ("documents", 2),
        ]
        assert {(info.dimension, info.model_id) for info in listed} == {(DIMENSION, MODEL)}

    async def test_making_an_equal_collection_again_keeps_what_it_holds(
        self, subject: VectorStoreProtocol, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a")])
        again = await subject.create_collection(config("documents"))
        assert await again.count() == 1

    async def test_a_deleted_collection_is_gone_and_can_be_made_anew(
        self, subject: VectorStoreProtocol, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a")])
        assert await subject.delete_collection("documents")
        assert not await subject.collection_exists("documents")
        assert await (await subject.create_collection(config("documents"))).count() == 0

    @pytest.mark.parametrize("name", ["", "../up", "a/b", "a\\b", ".hidden", "x" * 300, "a'b"])
    async def test_a_name_that_could_lead_out_is_refused(
        self, subject: VectorStoreProtocol, name: str
    ) -> None:
        with pytest.raises(VectorStoreError):
            await subject.create_collection(config(name))

    async def test_texts_added_to_the_store_make_their_collection(
        self, subject: VectorStoreProtocol
    ) -> None:
        await subject.connect()
        await subject.add_texts(["one"], [axis(0)])
        await subject.add_texts(["one", "two"], [axis(0), axis(1)], collection_name="default")
        assert await (await subject.get_collection("default")).count() == 2
        await subject.disconnect()

    async def test_texts_without_their_vectors_are_refused(
        self, subject: VectorStoreProtocol
    ) -> None:
        with pytest.raises(EmbeddingError):
            await subject.add_texts(["one", "two"], [axis(0)])


class RecordsSpec(VectorSpec, capability=VectorCapability.RECORDS):
    """upsert, add_texts, get, delete, update_metadata, count."""

    async def test_a_record_comes_back_as_it_was_written(
        self, collection: VectorCollectionProtocol
    ) -> None:
        metadata_given = {
            "title": "Ä 'quoted'",
            "page": 3,
            "share": 0.5,
            "tags": ["x", "y"],
            "old": None,
        }
        await collection.upsert(
            [record("a'b", [0.5, -2.0, 0.0, 1.0], "the text", **metadata_given)]
        )
        (found,) = await collection.get(["a'b", "unknown"])
        assert (found.id, found.content, dict(found.metadata)) == (
            "a'b",
            "the text",
            metadata_given,
        )
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


class ModelsSpec(VectorSpec, capability=VectorCapability.MODELS):
    """model_id and dimension."""

    async def test_another_model_is_refused_naming_both(
        self, subject: VectorStoreProtocol, collection: VectorCollectionProtocol
    ) -> None:
        with pytest.raises(VectorStoreError, match=f"{MODEL}.*other-model"):
            await subject.create_collection(config("documents", model_id="other-model"))

    @pytest.mark.parametrize(
        "change", [{"dimension": 5}, {"distance_metric": DistanceMetric.DOT_PRODUCT}]
    )
    async def test_a_collection_that_differs_is_refused(
        self,
        subject: VectorStoreProtocol,
        collection: VectorCollectionProtocol,
        change: dict[str, object],
    ) -> None:
        with pytest.raises(VectorStoreError, match="documents"):
            await subject.create_collection(config("documents", **change))

    async def test_a_record_of_another_model_is_refused(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a", model_id=MODEL)])
        with pytest.raises(VectorStoreError, match="other-model"):
            await collection.upsert([record("b", model_id="other-model")])
        assert await collection.count() == 1

    async def test_the_model_of_added_texts_is_remembered(
        self, subject: VectorStoreProtocol
    ) -> None:
        await subject.connect()
        await subject.add_texts(["one"], [axis(0)], [{"model_id": MODEL}])
        assert (await subject.get_collection("default")).model_id == MODEL
        await subject.disconnect()

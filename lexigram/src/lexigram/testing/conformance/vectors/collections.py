"""Collections are made once, listed, and removed."""

from __future__ import annotations

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

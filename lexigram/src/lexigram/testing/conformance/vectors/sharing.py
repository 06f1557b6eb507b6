"""Several stores on the same data see each other's writes."""

from __future__ import annotations

import anyio

from lexigram.contracts.data.vector import (
    SearchQuery,
    VectorCollectionProtocol,
    VectorStoreProtocol,
)
from lexigram.testing.conformance.vectors.spec import (
    VectorCapability,
    VectorSpec,
    axis,
    config,
    record,
)


class SharingSpec(VectorSpec, capability=VectorCapability.SHARING):
    """Two stores as two processes have them; fixture ``peer``."""

    async def test_what_one_wrote_the_other_finds(
        self, collection: VectorCollectionProtocol, peer: VectorStoreProtocol
    ) -> None:
        theirs = await peer.get_collection("documents")
        await collection.upsert([record("a", axis(0))])
        assert [hit.id for hit in await theirs.search(SearchQuery(vector=axis(0)))] == ["a"]
        await theirs.upsert([record("b", axis(1))])
        assert await collection.count() == 2
        await theirs.delete(["a"])
        assert [found.id for found in await collection.get(["a", "b"])] == ["b"]
        await peer.disconnect()

    async def test_the_same_ids_written_by_both_at_once_are_there_once(
        self, collection: VectorCollectionProtocol, peer: VectorStoreProtocol
    ) -> None:
        theirs = await peer.get_collection("documents")
        async with anyio.create_task_group() as tasks:
            for start in range(0, 60, 10):
                own = [record(f"r{n}") for n in range(start, start + 20)]
                tasks.start_soon(collection.upsert, own)
                tasks.start_soon(theirs.upsert, own)
        assert await collection.count() == 70
        assert await theirs.count() == 70
        await peer.disconnect()

    async def test_a_collection_made_by_both_at_once_is_one(
        self, subject: VectorStoreProtocol, peer: VectorStoreProtocol
    ) -> None:
        async def fill(store: VectorStoreProtocol, key: str) -> None:
            await (await store.create_collection(config("new"))).upsert([record(key)])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill, subject, "a")
            tasks.start_soon(fill, peer, "b")
        assert await (await subject.get_collection("new")).count() == 2
        await subject.disconnect()
        await peer.disconnect()

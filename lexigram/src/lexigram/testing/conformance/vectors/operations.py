"""Maintenance, sharing between stores, and health."""

from __future__ import annotations

import anyio

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.data.vector import (
    SearchQuery,
    VectorCollectionProtocol,
    VectorMaintenanceProtocol,
    VectorStoreProtocol,
)
from lexigram.testing.conformance.vectors.spec import (
    VectorCapability,
    VectorSpec,
    axis,
    config,
    record,
)


class MaintenanceSpec(VectorSpec, capability=VectorCapability.MAINTENANCE):
    """optimize_indexes, vacuum, checksum."""

    async def test_a_vacuum_gives_space_back_and_keeps_every_record(
        self, subject: VectorStoreProtocol, collection: VectorCollectionProtocol
    ) -> None:
        assert isinstance(subject, VectorMaintenanceProtocol)
        for round_ in range(5):
            await collection.upsert([record(f"r{n}", content=f"{round_}") for n in range(20)])
        assert await subject.vacuum() > 0
        assert await subject.optimize_indexes() == 1
        assert await subject.optimize_indexes("documents") == 1
        found = await collection.search(SearchQuery(vector=axis(0), top_k=50))
        assert {hit.content for hit in found} == {"4"}
        assert len(found) == await collection.count() == 20

    async def test_writing_goes_on_after_a_vacuum(
        self, subject: VectorStoreProtocol, collection: VectorCollectionProtocol
    ) -> None:
        assert isinstance(subject, VectorMaintenanceProtocol)
        await collection.upsert([record("a", document_id="d"), record("b", document_id="d")])
        await subject.vacuum("documents")
        await collection.replace({"document_id": "d"}, [record("b", document_id="d")])
        assert await collection.count() == 1

    async def test_the_checksum_changes_with_every_write_and_only_then(
        self, subject: VectorStoreProtocol, collection: VectorCollectionProtocol
    ) -> None:
        assert isinstance(subject, VectorMaintenanceProtocol)
        await collection.upsert([record("a")])
        first = await subject.checksum()
        await collection.search(SearchQuery(vector=axis(0)))
        assert await subject.checksum() == first
        await collection.upsert([record("b")])
        assert await subject.checksum() != first
        assert await subject.checksum("documents") != first


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


class HealthSpec(VectorSpec, capability=VectorCapability.HEALTH):
    """connect, disconnect, health_check."""

    async def test_a_store_that_answers_is_healthy(self, subject: VectorStoreProtocol) -> None:
        await subject.connect()
        assert (await subject.health_check(timeout=30)).status is HealthStatus.HEALTHY
        await subject.disconnect()

    async def test_opening_and_closing_twice_does_nothing(
        self, subject: VectorStoreProtocol
    ) -> None:
        await subject.disconnect()
        await subject.connect()
        await subject.connect()
        await subject.disconnect()
        await subject.disconnect()

"""Files are put in order without losing or changing a record."""

from __future__ import annotations

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

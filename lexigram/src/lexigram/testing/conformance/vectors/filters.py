"""A filter holds when every key equals its value or one of a list."""

from __future__ import annotations

from typing import Any

import pytest

from lexigram.contracts.data.vector import SearchQuery, VectorCollectionProtocol
from lexigram.testing.conformance.vectors.spec import (
    VectorCapability,
    VectorSpec,
    axis,
    ids_in,
    record,
)

RECORDS: dict[str, dict[str, Any]] = {
    "a": {"document_id": "d1", "page": 1, "lang": "de", "draft": True},
    "b": {"document_id": "d1", "page": 2, "lang": "en", "draft": False},
    "c": {"document_id": "d2", "page": 1, "lang": 'it\'s "x" \\', "share": 0.5},
    "d": {"page": 1.0, "lang": None, "source": "s3://x"},
}
NASTY = "' OR 1=1 --"


class FiltersSpec(VectorSpec, capability=VectorCapability.FILTERS):
    """filter of search, and delete_by_filter."""

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ({"document_id": "d1"}, "ab"),
            ({"document_id": ["d1", "d2"]}, "abc"),
            ({"source": "s3://x"}, "d"),
            ({"page": 1}, "acd"),
            ({"page": 1, "document_id": "d1"}, "a"),
            ({"page": [2, 3]}, "b"),
            ({"page": "1"}, ""),
            ({"draft": True}, "a"),
            ({"draft": 1}, ""),
            ({"share": 0.5}, "c"),
            ({"lang": None}, "d"),
            ({"lang": 'it\'s "x" \\'}, "c"),
            ({"lang": []}, ""),
            ({"document_id": []}, ""),
            ({"unknown": 1}, ""),
            ({"document_id": NASTY}, ""),
            ({NASTY: NASTY}, ""),
            ({"lang": [NASTY, "de"]}, "a"),
        ],
    )
    async def test_a_search_finds_only_what_matches(
        self, collection: VectorCollectionProtocol, wanted: dict[str, Any], expected: str
    ) -> None:
        await fill(collection)
        found = await collection.search(SearchQuery(vector=axis(0), filter=wanted))
        assert sorted(hit.id for hit in found) == sorted(expected)

    async def test_the_nearest_of_those_that_match_are_found(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record(f"n{n}", axis(0), lang="en") for n in range(50)])
        await collection.upsert([record("far", axis(1), lang="de")])
        found = await collection.search(SearchQuery(vector=axis(0), top_k=1, filter={"lang": "de"}))
        assert [hit.id for hit in found] == ["far"]

    async def test_what_matches_is_deleted_and_counted(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await fill(collection)
        assert (await collection.delete_by_filter({"page": 1})).deleted_count == 3
        assert (await collection.delete_by_filter({"document_id": NASTY})).deleted_count == 0
        assert await ids_in(collection, "abcd") == {"b"}

    async def test_an_empty_filter_deletes_nothing(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await fill(collection)
        with pytest.raises(ValueError, match="empty"):
            await collection.delete_by_filter({})
        assert await collection.count() == len(RECORDS)

    async def test_new_metadata_is_filtered_by(self, collection: VectorCollectionProtocol) -> None:
        await fill(collection)
        await collection.update_metadata("a", {"lang": "fr", "document_id": "d9"})
        for wanted in ({"lang": "fr"}, {"document_id": "d9"}):
            found = await collection.search(SearchQuery(vector=axis(0), filter=wanted))
            assert [hit.id for hit in found] == ["a"]


async def fill(collection: VectorCollectionProtocol) -> None:
    """Write the records of these tests."""
    await collection.upsert([record(key, axis(0), **told) for key, told in RECORDS.items()])

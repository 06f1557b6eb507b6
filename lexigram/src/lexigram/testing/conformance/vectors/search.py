"""Search by vector, by words and with filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lexigram.contracts.data.vector import (
    DistanceMetric,
    SearchMode,
    SearchQuery,
    SearchResult,
    VectorCollectionProtocol,
    VectorStoreProtocol,
)
from lexigram.testing.conformance.vectors.spec import (
    VectorCapability,
    VectorSpec,
    axis,
    config,
    ids_in,
    record,
)


class SearchSpec(VectorSpec, capability=VectorCapability.SEARCH):
    """search by vector."""

    async def test_the_nearest_come_first_and_no_more_than_asked_for(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert(
            [
                record("exact", [2, 0, 0, 0]),
                record("near", [1, 0.5, 0, 0]),
                record("far", [0.1, 1, 0, 0]),
                record("against", [-1, 0, 0, 0]),
            ]
        )
        found = await collection.search(SearchQuery(vector=axis(0), top_k=3))
        assert [hit.id for hit in found] == ["exact", "near", "far"]
        scores = [hit.score for hit in found]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] == pytest.approx(1.0, abs=1e-3)

    async def test_a_hit_has_text_and_metadata_and_its_vector_when_asked(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a", axis(1, 3.0), "the text", page=7)])
        (plain,) = await collection.search(SearchQuery(vector=axis(1)))
        assert (plain.content, dict(plain.metadata), plain.vector) == (
            "the text",
            {"page": 7},
            None,
        )
        query = SearchQuery(vector=axis(1), include_vectors=True, include_metadata=False)
        (full,) = await collection.search(query)
        assert dict(full.metadata) == {}
        assert full.vector is not None
        assert list(full.vector) == pytest.approx(axis(1, 3.0))

    async def test_hits_below_the_lowest_score_are_left_out(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a", axis(0)), record("b", axis(1))])
        found = await collection.search(SearchQuery(vector=axis(0), min_score=0.5))
        assert [hit.id for hit in found] == ["a"]

    async def test_an_empty_collection_has_no_hits(
        self, collection: VectorCollectionProtocol
    ) -> None:
        assert list(await collection.search(SearchQuery(vector=axis(0)))) == []

    async def test_what_was_deleted_is_not_found(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record("a"), record("b")])
        await collection.delete(["a"])
        found = await collection.search(SearchQuery(vector=axis(0)))
        assert [hit.id for hit in found] == ["b"]

    @pytest.mark.parametrize(
        "query",
        [
            SearchQuery(vector=[]),
            SearchQuery(vector=[1.0]),
            SearchQuery(vector=axis(0), top_k=0),
        ],
    )
    async def test_a_query_without_what_it_needs_is_refused(
        self, collection: VectorCollectionProtocol, query: SearchQuery
    ) -> None:
        with pytest.raises(ValueError, match=r"vector|top_k"):
            await collection.search(query)


class MetricsSpec(VectorSpec, capability=VectorCapability.METRICS):
    """Other metrics: a higher score is a better hit with all of them."""

    @pytest.mark.parametrize(
        ("metric", "order"),
        [
            (DistanceMetric.EUCLIDEAN, ["one", "two", "ten"]),
            (DistanceMetric.DOT_PRODUCT, ["ten", "two", "one"]),
        ],
    )
    async def test_the_best_hit_has_the_highest_score(
        self, subject: VectorStoreProtocol, metric: DistanceMetric, order: list[str]
    ) -> None:
        await subject.connect()
        collection = await subject.create_collection(config("measured", distance_metric=metric))
        lengths = {"one": 1.0, "two": 2.0, "ten": 10.0}
        await collection.upsert([record(key, axis(0, size)) for key, size in lengths.items()])
        found = await collection.search(SearchQuery(vector=axis(0)))
        assert [hit.id for hit in found] == order
        scores = [hit.score for hit in found]
        assert scores == sorted(scores, reverse=True)
        best = 1.0 if metric is DistanceMetric.EUCLIDEAN else 10.0
        assert scores[0] == pytest.approx(best)
        await subject.disconnect()


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
    """Write the records of the filter tests."""
    await collection.upsert([record(key, axis(0), **metadata) for key, metadata in RECORDS.items()])


NEAR, MIDDLE, FAR = axis(0), [1.0, 1.0, 0.0, 0.0], axis(1)


class WordsSpec(VectorSpec, capability=VectorCapability.WORDS):
    """SearchMode.TEXT and HYBRID."""

    async def test_words_find_texts_that_have_them_rarer_words_first(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await fill_texts(collection)
        found = await search(collection, "harbour crane", SearchMode.TEXT)
        assert found[0].id == "crane"
        assert {hit.id for hit in found} == {"crane", "harbour", "boats"}

    async def test_words_written_after_the_index_are_found(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await fill_texts(collection)
        await collection.upsert([record("late", FAR, "a lighthouse keeper")])
        assert [hit.id for hit in await search(collection, "Lighthouse", SearchMode.TEXT)] == [
            "late"
        ]

    @pytest.mark.parametrize("text", ['"', "crane AND (", "content:crane*", "' OR 1=1", "+-~^"])
    async def test_nothing_in_the_text_is_an_operator(
        self, collection: VectorCollectionProtocol, text: str
    ) -> None:
        await fill_texts(collection)
        found = await search(collection, text, SearchMode.TEXT)
        assert {hit.id for hit in found} <= {"crane"}

    async def test_both_together_prefer_what_is_near_and_has_the_words(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await fill_texts(collection)
        found = await search(collection, "harbour", SearchMode.HYBRID)
        assert found[0].id == "harbour"
        assert {hit.id for hit in found} == {"harbour", "boats", "crane", "meadow"}
        scores = [hit.score for hit in found]
        assert scores == sorted(scores, reverse=True)
        assert all(0.0 <= score <= 1.0 for score in scores)

    async def test_words_alone_bring_a_far_text_into_the_hits(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await collection.upsert([record(f"n{n}", NEAR, f"filler {n}") for n in range(80)])
        await collection.upsert([record("far", MIDDLE, "the zebra crossing")])
        found = await search(collection, "zebra", SearchMode.HYBRID, top_k=90)
        assert "far" in {hit.id for hit in found}

    async def test_filters_and_the_lowest_score_hold_for_both_modes(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await fill_texts(collection)
        for mode in (SearchMode.TEXT, SearchMode.HYBRID):
            query = SearchQuery(vector=NEAR, text="harbour", mode=mode, filter={"lang": "de"})
            assert {hit.id for hit in await collection.search(query)} == {"boats"}
            query = SearchQuery(vector=NEAR, text="harbour", mode=mode, min_score=1e9)
            assert list(await collection.search(query)) == []

    async def test_a_search_by_words_without_words_is_refused(
        self, collection: VectorCollectionProtocol
    ) -> None:
        for mode in (SearchMode.TEXT, SearchMode.HYBRID):
            with pytest.raises(ValueError, match="text"):
                await collection.search(SearchQuery(vector=NEAR, text=" ", mode=mode))
        with pytest.raises(ValueError, match="vector"):
            await collection.search(SearchQuery(text="harbour", mode=SearchMode.HYBRID))


async def fill_texts(collection: VectorCollectionProtocol) -> None:
    """Write the texts of these tests."""
    await collection.upsert(
        [
            record("harbour", NEAR, "the old harbour", lang="en"),
            record("boats", FAR, "boats in the harbour at night", lang="de"),
            record("crane", FAR, "a crane lifts boxes", lang="en"),
            record("meadow", MIDDLE, "flowers on a meadow", lang="en"),
        ]
    )


async def search(
    collection: VectorCollectionProtocol, text: str, mode: SearchMode, top_k: int = 10
) -> Sequence[SearchResult]:
    """Search near the first axis."""
    return await collection.search(SearchQuery(vector=NEAR, text=text, mode=mode, top_k=top_k))

"""Searches by words, alone and together with the vector."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lexigram.contracts.data.vector import (
    SearchMode,
    SearchQuery,
    SearchResult,
    VectorCollectionProtocol,
)
from lexigram.testing.conformance.vectors.spec import (
    VectorCapability,
    VectorSpec,
    axis,
    record,
)

NEAR, MIDDLE, FAR = axis(0), [1.0, 1.0, 0.0, 0.0], axis(1)


class WordsSpec(VectorSpec, capability=VectorCapability.WORDS):
    """SearchMode.TEXT and HYBRID."""

    async def test_words_find_texts_that_have_them_rarer_words_first(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await fill(collection)
        found = await search(collection, "harbour crane", SearchMode.TEXT)
        assert found[0].id == "crane"
        assert {hit.id for hit in found} == {"crane", "harbour", "boats"}

    async def test_words_written_after_the_index_are_found(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await fill(collection)
        await collection.upsert([record("late", FAR, "a lighthouse keeper")])
        assert [hit.id for hit in await search(collection, "Lighthouse", SearchMode.TEXT)] == [
            "late"
        ]

    @pytest.mark.parametrize("text", ['"', "crane AND (", "content:crane*", "' OR 1=1", "+-~^"])
    async def test_nothing_in_the_text_is_an_operator(
        self, collection: VectorCollectionProtocol, text: str
    ) -> None:
        await fill(collection)
        found = await search(collection, text, SearchMode.TEXT)
        assert {hit.id for hit in found} <= {"crane"}

    async def test_both_together_prefer_what_is_near_and_has_the_words(
        self, collection: VectorCollectionProtocol
    ) -> None:
        await fill(collection)
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
        await fill(collection)
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


async def fill(collection: VectorCollectionProtocol) -> None:
    """Write the records of these tests."""
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

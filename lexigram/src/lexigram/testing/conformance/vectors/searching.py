"""The nearest come first."""

from __future__ import annotations

import pytest

from lexigram.contracts.data.vector import (
    DistanceMetric,
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

"""A collection takes the vectors of one model."""

from __future__ import annotations

import pytest

from lexigram.contracts.data.vector import (
    DistanceMetric,
    VectorCollectionProtocol,
    VectorStoreError,
    VectorStoreProtocol,
)
from lexigram.testing.conformance.vectors.spec import (
    MODEL,
    VectorCapability,
    VectorSpec,
    axis,
    config,
    record,
)


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

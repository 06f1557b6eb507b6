"""A higher score is a better hit, and the weight decides between nearness and words."""

import numpy as np
import pytest

from lexigram.ai.workers.vectors.scores import fuse_scores, similarity
from lexigram.contracts.data.vector import DistanceMetric


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (DistanceMetric.COSINE, [1.0, 0.0, 0.0]),
        (DistanceMetric.DOT_PRODUCT, [2.0, 0.0, 0.0]),
        (DistanceMetric.EUCLIDEAN, [0.5, 1 / (1 + 2**0.5), 0.5]),
        (DistanceMetric.MANHATTAN, [0.5, 1 / 3, 0.5]),
    ],
)
def test_every_metric_scores_the_nearest_highest(metric, expected):
    vectors = np.asarray([[2, 0], [0, 1], [0, 0]], dtype=np.float32)
    scores = similarity(vectors, np.asarray([1, 0], dtype=np.float32), metric)
    assert scores.tolist() == pytest.approx(expected)


def test_scores_are_scaled_and_weighted():
    scores = fuse_scores(
        {"near": 0.9, "far": 0.5, "middle": 0.7}, {"far": 4.0, "middle": 2.0}, 0.75
    )
    assert scores == pytest.approx({"near": 0.75, "far": 0.25, "middle": 0.5})


def test_the_weight_of_one_keeps_the_dense_order_and_of_zero_that_of_words():
    dense, words = {"a": 0.9, "b": 0.1}, {"b": 3.0}
    assert fuse_scores(dense, words, 1.0) == {"a": 1.0, "b": 0.0}
    assert fuse_scores(dense, words, 0.0) == {"a": 0.0, "b": 1.0}


def test_nothing_found_is_nothing_fused():
    assert fuse_scores({}, {}, 0.5) == {}
    assert fuse_scores({"a": 0.3}, {}, 0.5) == {"a": 0.5}

from concurrent.futures import ThreadPoolExecutor

import pytest

from lexigram.contracts.observability import MetricsProtocol
from lexigram.testing.fakes import FakeMetrics, Measurement


def test_fake_metrics_satisfy_the_contract():
    assert isinstance(FakeMetrics(), MetricsProtocol)


def test_a_counter_adds_up_over_all_series_or_those_with_a_tag():
    metrics = FakeMetrics()
    metrics.increment("orders", tags={"shop": "a"})
    metrics.increment("orders", 4, {"shop": "b"})
    metrics.increment("orders", tags={"shop": "a"})
    assert metrics.counted("orders") == 6
    assert metrics.counted("orders", shop="a") == 2
    assert metrics.counted("orders", shop="c") == 0
    assert metrics.counted("refunds") == 0


def test_the_last_value_of_a_gauge_counts():
    metrics = FakeMetrics()
    metrics.gauge("depth", 3, {"queue": "a"})
    metrics.gauge("depth", 9, {"queue": "b"})
    metrics.gauge("depth", 1, {"queue": "a"})
    assert metrics.gauged("depth", queue="a") == 1
    assert metrics.gauged("depth", queue="b") == 9
    assert metrics.gauged("depth", queue="c") is None


def test_observations_are_kept_in_order():
    metrics = FakeMetrics()
    metrics.histogram("seconds", 0.2)
    metrics.histogram("seconds", 0.1)
    assert metrics.observed("seconds") == [0.2, 0.1]


def test_kinds_of_one_name_are_read_apart():
    metrics = FakeMetrics()
    metrics.gauge("x", 5)
    assert metrics.counted("x") == 0
    assert metrics.observed("x") == []


def test_tags_are_copied_when_they_are_taken():
    metrics, tags = FakeMetrics(), {"shop": "a"}
    metrics.increment("orders", tags=tags)
    tags["shop"] = "b"
    assert metrics.measurements == [
        Measurement(kind="counter", name="orders", value=1.0, tags={"shop": "a"})
    ]


def test_misuse_is_described_and_not_raised():
    metrics = FakeMetrics()
    metrics.increment("orders", -1)
    metrics.gauge("orders", 2)
    metrics.increment("orders", tags={"shop": "a"})
    assert metrics.misuses == [
        "orders is a counter and was incremented by -1",
        "orders is a counter and was used as a gauge",
        "orders has the tags [] and was given ['shop']",
    ]
    metrics.clear()
    metrics.gauge("orders", 2)
    assert metrics.misuses == []
    assert metrics.counted("orders") == 0


@pytest.mark.parametrize("workers", [8])
def test_no_figure_of_any_thread_is_lost(workers):
    metrics = FakeMetrics()
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(workers):
            pool.submit(lambda: [metrics.increment("n") for _ in range(500)])
    assert metrics.counted("n") == workers * 500

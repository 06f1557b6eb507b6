"""Figures become series, within limits, and a mistake is told instead of raised."""

import threading

import pytest

from lexigram.contracts.observability import MetricsProtocol, NoOpMetrics
from lexigram.observability import METRICS_CONTENT_TYPE, MetricConflictError, metrics_text
from lexigram.observability.prometheus import OVERFLOW, PrometheusMetrics
from lexigram.testing.fakes import FakeMetrics


def series(metrics):
    lines = metrics_text(metrics).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs if "_created" not in name}


@pytest.mark.parametrize("make", [PrometheusMetrics, NoOpMetrics, FakeMetrics])
def test_metrics_satisfy_their_contract_and_never_raise(make):
    metrics = make()
    assert isinstance(metrics, MetricsProtocol)
    metrics.increment("a")
    metrics.gauge("a", 1)
    metrics.increment("a", tags={"x": "y"})
    metrics.increment("a", -1)
    metrics.gauge("", 1, {"": "", "le": "\ud800"})
    metrics.histogram("b", 1, {"le": "x"})
    metrics.gauge("c", "no number")
    assert isinstance(metrics_text(metrics), str)


def test_a_counter_adds_a_gauge_keeps_the_last_a_histogram_counts():
    metrics = PrometheusMetrics(buckets=(0.1, 1.0))
    metrics.increment("paid", tags={"shop": "a"})
    metrics.increment("paid", 2, {"shop": "a"})
    metrics.gauge("depth", 5)
    metrics.gauge("depth", 3)
    for seconds in (0.05, 0.5, 5):
        metrics.histogram("took", seconds)
    assert series(metrics) == {
        'paid_total{shop="a"}': 3.0,
        "depth": 3.0,
        'took_bucket{le="0.1"}': 1.0,
        'took_bucket{le="1.0"}': 2.0,
        'took_bucket{le="+Inf"}': 3.0,
        "took_count": 3.0,
        "took_sum": 5.55,
    }


def test_two_applications_share_nothing():
    first, second = PrometheusMetrics(), PrometheusMetrics()
    first.increment("paid")
    second.gauge("paid", 7)
    assert series(first) == {"paid_total": 1.0}
    assert series(second) == {"paid": 7.0}


def test_the_order_of_tags_does_not_matter():
    metrics = PrometheusMetrics()
    metrics.increment("paid", tags={"a": "1", "b": "2"})
    metrics.increment("paid", tags={"b": "2", "a": "1"})
    assert series(metrics) == {'paid_total{a="1",b="2"}': 2.0}


def test_names_are_sanitised():
    metrics = PrometheusMetrics()
    metrics.gauge("queue.depth-now", 1, {"queue.name": "a", "2nd": "b", "__x": "c"})
    metrics.gauge("2fast", 1)
    assert series(metrics) == {
        'queue_depth_now{_2nd="b",_x="c",queue_name="a"}': 1.0,
        "_2fast": 1.0,
    }


def test_two_names_that_are_written_alike_are_told(caplog):
    metrics = PrometheusMetrics()
    metrics.gauge("a.b", 1)
    metrics.gauge("a-b", 2)
    assert series(metrics) == {"a_b": 1.0}
    assert "metrics 'a.b' and 'a-b' are both written a_b" in caplog.text


def test_another_kind_is_left_out_and_told_once(caplog):
    metrics = PrometheusMetrics()
    metrics.increment("paid")
    metrics.gauge("paid", 3)
    metrics.gauge("paid", 4)
    assert series(metrics) == {"paid_total": 1.0}
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "'paid' is a counter and was used as a gauge" in record.getMessage()
    assert list(metrics.refused) == [("paid", "gauge")]


def test_other_tag_names_are_left_out_and_told(caplog):
    metrics = PrometheusMetrics()
    metrics.increment("paid", tags={"shop": "a"})
    metrics.increment("paid")
    assert series(metrics) == {'paid_total{shop="a"}': 1.0}
    assert "'paid' has the tags ['shop'] and was given []" in caplog.text


def test_names_that_the_library_derives_conflict_too(caplog):
    metrics = PrometheusMetrics()
    metrics.histogram("took", 1)
    metrics.gauge("took_count", 1)
    assert "gauge 'took_count' cannot be kept" in caplog.text


def test_declaring_gives_a_text_and_raises_for_a_conflict():
    metrics = PrometheusMetrics()
    metrics.declare("paid", "counter", ["shop"], "Orders paid.")
    metrics.declare("paid", "counter", ["shop"])
    metrics.increment("paid", tags={"shop": "a"})
    assert "# HELP paid_total Orders paid." in metrics_text(metrics)
    with pytest.raises(MetricConflictError, match="is a counter and was used as a gauge"):
        metrics.declare("paid", "gauge", ["shop"])
    with pytest.raises(MetricConflictError, match=r"has the tags \['shop'\]"):
        metrics.declare("paid", "counter", ["user"])


def test_label_sets_beyond_the_limit_are_counted_as_overflow_and_told_once(caplog):
    metrics = PrometheusMetrics(max_label_sets=2)
    for order in range(5):
        metrics.increment("paid", tags={"order": str(order), "shop": "a"})
    metrics.increment("paid", tags={"order": "0", "shop": "a"})
    assert series(metrics) == {
        'paid_total{order="0",shop="a"}': 2.0,
        'paid_total{order="1",shop="a"}': 1.0,
        f'paid_total{{order="{OVERFLOW}",shop="{OVERFLOW}"}}': 3.0,
    }
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "'paid' has more than 2 label sets" in record.getMessage()
    assert metrics.overflowing == ["paid"]


def test_text_that_is_no_utf8_does_not_break_the_page():
    metrics = PrometheusMetrics()
    metrics.increment("paid", tags={"shop": '\ud800"\n'})
    assert series(metrics) == {'paid_total{shop="?\\"\\n"}': 1.0}


def test_figures_of_many_threads_are_all_counted():
    metrics = PrometheusMetrics(max_label_sets=3)

    def count():
        for n in range(500):
            metrics.increment("paid", tags={"n": str(n % 5)})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(series(metrics).values()) == 2000


def test_the_text_of_metrics_that_keep_nothing_has_no_series():
    assert series(NoOpMetrics()) == {}
    assert METRICS_CONTENT_TYPE.startswith("text/plain; version=0.0.4")

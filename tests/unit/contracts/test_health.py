import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from lexigram.contracts.core import (
    AggregateHealthResult,
    HealthCheckResult,
    HealthStatus,
    worst,
)

STATUSES = st.lists(st.sampled_from(HealthStatus))


@given(STATUSES)
def test_the_worst_is_one_of_those_given_and_the_order_does_not_matter(statuses):
    found = worst(statuses)
    assert found in statuses or (found is HealthStatus.HEALTHY and not statuses)
    assert found is worst(reversed(statuses))


@given(STATUSES, STATUSES)
def test_the_worst_of_two_groups_is_the_worst_of_their_worsts(left, right):
    assert worst(left + right) is worst([worst(left), worst(right)])


@given(STATUSES)
def test_one_unhealthy_part_makes_the_whole_unhealthy(statuses):
    assert worst([*statuses, HealthStatus.UNHEALTHY]) is HealthStatus.UNHEALTHY


@given(STATUSES)
def test_the_whole_is_healthy_only_when_every_part_is(statuses):
    every = all(status is HealthStatus.HEALTHY for status in statuses)
    assert (worst(statuses) is HealthStatus.HEALTHY) is every


def test_degraded_is_worse_than_starting_and_unknown():
    assert worst([HealthStatus.STARTING, HealthStatus.DEGRADED]) is HealthStatus.DEGRADED
    assert worst([HealthStatus.UNKNOWN, HealthStatus.STARTING]) is HealthStatus.STARTING


def test_nothing_to_check_is_healthy():
    assert AggregateHealthResult().is_healthy()


def test_an_aggregate_is_json_with_its_parts():
    part = HealthCheckResult(
        "db",
        HealthStatus.DEGRADED,
        message="slow",
        duration_ms=1.23456,
        checked_at=datetime(2026, 1, 2, tzinfo=UTC),
    )
    assert part.is_degraded()
    assert not part.is_healthy()
    whole = json.loads(json.dumps(AggregateHealthResult((part,)).to_dict()))
    assert whole["status"] == "degraded"
    assert whole["components"][0]["checked_at"] == "2026-01-02T00:00:00+00:00"
    assert whole["components"][0]["duration_ms"] == 1.235

"""The values of dead letters and maintenance: retry rules, due times, data for programs."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from lexigram import clock
from lexigram.ai.workers import (
    DLQItem,
    DLQStats,
    FailureCategory,
    MaintenanceResult,
    MaintenanceStatus,
    MaintenanceTask,
    MaintenanceTaskType,
)
from lexigram.testing.fakes.clock import FakeClock

BEGIN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
KIND = MaintenanceTaskType.CACHE_CLEANUP


def item(**facts):
    return DLQItem("7", {"name": "x"}, 1, BEGIN, BEGIN, "boom", **facts)


def test_a_permanent_or_exhausted_item_cannot_be_retried_nor_one_before_its_time():
    with clock.use(FakeClock(BEGIN)):
        assert item().can_retry()
        assert not item(failure_category=FailureCategory.PERMANENT).can_retry()
        assert not item(retry_count=5).can_retry()
        assert not item(next_retry=BEGIN + timedelta(seconds=1)).can_retry()
        assert item(next_retry=BEGIN).can_retry()


@pytest.mark.parametrize(
    ("retries", "seconds"), [(0, 60), (1, 120), (5, 1920), (6, 3600), (10_000, 3600)]
)
def test_the_wait_doubles_up_to_an_hour(retries, seconds):
    assert item(retry_count=retries).calculate_backoff() == seconds


def test_an_item_and_its_stats_are_data():
    data = item(metadata={"source": "jobs"}).to_dict()
    assert set(data) == {
        "job_id",
        "failure_count",
        "first_failure",
        "last_failure",
        "last_error",
        "failure_category",
        "retry_count",
        "max_retries",
        "next_retry",
        "can_retry",
        "metadata",
    }
    assert data["first_failure"] == BEGIN.isoformat()
    assert DLQStats(total_items=2, by_category={"unknown": 2}).to_dict()["by_category"] == {
        "unknown": 2
    }


def task(**facts):
    return MaintenanceTask("sweep", KIND, lambda: None, **facts)


def test_a_task_is_due_by_interval_and_by_cron_also_after_its_first_run():
    with clock.use(FakeClock(BEGIN)) as fake:
        every = task(interval_seconds=60)
        assert every.should_run()
        every = evolve(every, last_run=BEGIN)
        assert not every.should_run()
        cron = task(schedule_cron="5 * * * *", last_run=BEGIN)
        assert not cron.should_run()
        fake.advance(60)
        assert every.should_run()
        fake.advance(240)
        assert cron.should_run()
        assert not evolve(cron, enabled=False).should_run()


def test_a_result_knows_how_long_it_took_also_when_the_clock_went_back():
    with clock.use(FakeClock(BEGIN)) as fake:
        fake.advance(2)
        good = MaintenanceResult.success("sweep", KIND, BEGIN, 3, 1, {"a": 1})
        assert (good.status, good.duration_seconds) == (MaintenanceStatus.COMPLETED, 2.0)
        assert good.to_dict()["metadata"] == {"a": 1}
        late = MaintenanceResult.failure("sweep", KIND, BEGIN + timedelta(hours=1), "boom")
        assert (late.status, late.duration_seconds) == (MaintenanceStatus.FAILED, 0.0)

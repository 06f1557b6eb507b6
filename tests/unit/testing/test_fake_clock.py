from datetime import UTC, datetime, timedelta, timezone

import pytest

from lexigram import clock as ambient
from lexigram.contracts.core.clock import ClockProtocol
from lexigram.testing.fakes import FakeClock, FixedClock

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("kind", [FakeClock, FixedClock])
def test_a_fake_clock_satisfies_the_contract(kind):
    assert isinstance(kind(), ClockProtocol)
    clock = kind(NOON)
    assert clock.now() == NOON
    assert clock.now().tzinfo is UTC
    assert clock.timestamp() == NOON.timestamp()


@pytest.mark.parametrize("kind", [FakeClock, FixedClock])
def test_a_time_with_another_zone_is_told_in_utc(kind):
    clock = kind(datetime(2025, 6, 1, 14, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == NOON
    assert clock.now().tzinfo is UTC


@pytest.mark.parametrize("kind", [FakeClock, FixedClock])
def test_a_time_without_zone_is_refused(kind):
    with pytest.raises(ValueError, match="has no time zone"):
        kind(datetime(2025, 6, 1))  # noqa: DTZ001 - that is the point


def test_a_fixed_clock_gives_the_same_reading_for_ever():
    clock = FixedClock(NOON)
    assert {clock.now() for _ in range(3)} == {NOON}
    assert {clock.monotonic() for _ in range(3)} == {0.0}


def test_time_stands_still_until_it_is_advanced():
    clock = FakeClock(NOON)
    assert (clock.now(), clock.monotonic()) == (NOON, 0.0)
    assert clock.advance(1.5) == NOON + timedelta(seconds=1.5)
    assert clock.advance(timedelta(minutes=1)) == clock.now()
    assert clock.monotonic() == 61.5
    assert clock.timestamp() == NOON.timestamp() + 61.5


def test_a_tick_is_a_second():
    clock = FakeClock(NOON)
    clock.tick()
    clock.tick(times=2)
    assert clock.now() == NOON + timedelta(seconds=3)
    assert clock.monotonic() == 3.0


def test_the_wall_time_may_jump_back_and_monotonic_does_not_notice():
    clock = FakeClock(NOON)
    clock.advance(10)
    clock.set(NOON - timedelta(days=1))
    assert clock.now() == NOON - timedelta(days=1)
    assert clock.monotonic() == 10.0


def test_time_cannot_be_advanced_backwards():
    with pytest.raises(ValueError, match="does not pass backwards"):
        FakeClock().advance(-1)


def test_a_fake_clock_serves_as_the_clock_of_the_process(fake_clock):
    with ambient.use(fake_clock):
        fake_clock.tick()
        assert ambient.monotonic() == 1.0

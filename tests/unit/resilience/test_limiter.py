import asyncio

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.infra.resilience import RateLimiterProtocol
from lexigram.resilience import CallDelayed, RateLimiter, rate_limit
from lexigram.testing.fakes import FakeClock, FakeEventBus, FakeMetrics


class Passing:
    """A clock that sleepers push on."""

    def __init__(self):
        self.clock = FakeClock()

    async def sleep(self, seconds):
        await anyio.lowlevel.checkpoint()
        self.clock.advance(seconds)

    def limiter(self, *args, **settings):
        return RateLimiter(*args, clock=self.clock, sleep=self.sleep, **settings)


def test_a_limiter_satisfies_its_contract():
    assert isinstance(RateLimiter(1), RateLimiterProtocol)


async def test_the_burst_is_given_at_once_and_then_it_is_refilled_with_time():
    time = Passing()
    limiter = time.limiter(10, 1.0)
    assert [await limiter.try_acquire() for _ in range(12)] == [True] * 10 + [False] * 2
    time.clock.advance(0.35)
    assert [await limiter.try_acquire() for _ in range(4)] == [True] * 3 + [False]
    assert limiter.get_stats() == {
        "rate": 10,
        "per": 1.0,
        "burst": 10,
        "available": pytest.approx(0.5),
        "waiting": 0,
    }


async def test_acquire_waits_for_its_permits_and_reports_it():
    time, metrics, bus = Passing(), FakeMetrics(), FakeEventBus()
    limiter = time.limiter(4, 2.0, name="api", metrics=metrics, events=bus)
    begin = time.clock.monotonic()
    for _ in range(4):
        await limiter.acquire()
    assert time.clock.monotonic() == begin
    await limiter.acquire(3)
    assert time.clock.monotonic() - begin == pytest.approx(1.5)
    assert metrics.observed("resilience.rate_limiter.waited", name="api") == [pytest.approx(1.5)]
    assert metrics.counted("resilience.rate_limiter.acquired", name="api") == 5
    bus.assert_published_once(CallDelayed, limiter="api", permits=3)


async def test_who_waits_for_many_is_not_starved_by_those_who_try():
    limiter = RateLimiter(1, 1.0, burst=5, clock=FakeClock(), sleep=lambda _: anyio.sleep_forever())
    assert await limiter.try_acquire(3)
    waiter = asyncio.create_task(limiter.acquire(5))
    await anyio.wait_all_tasks_blocked()
    assert not await limiter.try_acquire(1)
    assert limiter.get_stats()["waiting"] == 1
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert await limiter.try_acquire(1)


@pytest.mark.parametrize("permits", [0, -1, 11])
async def test_permits_it_can_never_give_are_refused(permits):
    limiter = RateLimiter(10)
    with pytest.raises(ValueError, match="1 to 10"):
        await limiter.acquire(permits)
    with pytest.raises(ValueError, match="1 to 10"):
        await limiter.try_acquire(permits)


@pytest.mark.parametrize("setting", [{"rate": 0}, {"rate": 1, "per": 0}, {"rate": 1, "burst": 0}])
def test_settings_that_cannot_work_are_refused(setting):
    with pytest.raises(ConfigurationError):
        RateLimiter(**setting)


@given(
    rate=st.integers(1, 50),
    burst=st.integers(1, 50),
    steps=st.lists(st.tuples(st.integers(1, 50), st.floats(0, 3)), max_size=60),
)
def test_never_more_than_burst_and_rate_allow(rate, burst, steps):
    time = Passing()
    limiter = time.limiter(rate, 1.0, burst=burst)
    begin = time.clock.monotonic()

    async def run():
        given = 0
        for permits, pause in steps:
            given += permits if permits <= burst and await limiter.try_acquire(permits) else 0
            assert given <= burst + (time.clock.monotonic() - begin) * rate + 1e-3
            time.clock.advance(pause)

    asyncio.run(run())


async def test_the_decorator_starts_calls_at_the_rate():
    @rate_limit(1000, 1.0, burst=1)
    async def ping(n):
        return n

    assert [await ping(n) for n in range(3)] == [0, 1, 2]

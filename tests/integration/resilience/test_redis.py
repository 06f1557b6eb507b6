"""Breakers and limiters of several processes over a real Redis."""

import asyncio
import sys

import anyio
import pytest
from redis.asyncio import Redis
from tests.names import unique_name

from lexigram import clock as ambient
from lexigram.app import Application
from lexigram.contracts.core.errors import InfrastructureError
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.infra.resilience import (
    CircuitBreakerConfig,
    CircuitOpenError,
    CircuitState,
)
from lexigram.resilience import (
    CircuitBreaker,
    CircuitChanged,
    RateLimiter,
    RedisState,
    ResilienceConfig,
    ResilienceModule,
    ResiliencePolicies,
)
from lexigram.testing import wait_until
from lexigram.testing.fakes import FakeClock, FakeEventBus

pytestmark = pytest.mark.service("redis")

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def url(services):
    return f"redis://{services['redis'].address}/0"


@pytest.fixture
def prefix():
    return unique_name()


@pytest.fixture
async def state(url, prefix):
    made = RedisState(url, prefix=prefix, timeout=30)
    yield made
    await made.aclose()
    async with Redis.from_url(url) as client:
        keys = [key async for key in client.scan_iter(match=f"{prefix}:*")]
        if keys:
            await client.delete(*keys)


def breaker(state, events=None, **settings):
    settings = {"name": "shop", "recovery_timeout": 600, **settings}
    config = CircuitBreakerConfig(backend="redis", **settings)
    return CircuitBreaker(config, shared=state, events=events)


async def broken(error=None):
    raise error or OSError("down")


async def answer(value=1):
    return value


async def fail(one, times=1):
    for _ in range(times):
        with pytest.raises(OSError):
            await one.call(broken)


@pytest.mark.quick
async def test_failures_of_all_processes_count_together_and_open_for_all(state):
    bus = FakeEventBus()
    one, other = breaker(state, failure_threshold=4), breaker(state, bus, failure_threshold=4)
    await fail(one, 2)
    await fail(other, 1)
    await fail(one, 1)
    assert one.state is OPEN
    with pytest.raises(CircuitOpenError) as caught:
        await other.call(answer)
    assert 0 < caught.value.details["retry_after"] <= 600
    assert other.state is OPEN
    bus.assert_published_once(CircuitChanged, old=CLOSED, new=OPEN)


async def test_fifty_concurrent_calls_open_it_once_and_see_their_own_errors(state):
    bus = FakeEventBus()
    one = breaker(state, bus, failure_threshold=5)
    errors, together = [OSError(n) for n in range(50)], anyio.Event()

    async def late(n):
        await together.wait()
        raise errors[n]

    tasks = [asyncio.create_task(one.call(late, n)) for n in range(50)]
    await asyncio.sleep(0)
    together.set()
    seen = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [error for error in seen if isinstance(error, CircuitOpenError)]
    own = [error for n, error in enumerate(seen) if error is errors[n]]
    assert len(own) + len(refused) == 50
    assert len(own) >= 5
    assert one.state is OPEN
    assert len(bus.published_of_type(CircuitChanged)) == 1


@pytest.mark.parametrize("half_open_max", [1, 3])
async def test_two_processes_share_the_probes(state, half_open_max):
    settings = {
        "failure_threshold": 1,
        "recovery_timeout": 0,
        "half_open_max": half_open_max,
        "success_threshold": half_open_max,
    }
    one, other = breaker(state, **settings), breaker(state, **settings)
    await fail(one)
    made, go = 0, anyio.Event()

    async def probe():
        nonlocal made
        made += 1
        await go.wait()

    tasks = [asyncio.create_task((one, other)[n % 2].call(probe)) for n in range(50)]
    await wait_until(lambda: sum(task.done() for task in tasks) == 50 - half_open_max)
    assert made == half_open_max
    go.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert ends.count(None) == half_open_max
    assert CLOSED in (one.state, other.state)
    await one.call(answer)
    assert one.state is CLOSED


async def test_a_cancelled_probe_gives_its_permit_back_to_all(state):
    settings = {"failure_threshold": 1, "recovery_timeout": 0, "success_threshold": 1}
    one, other = breaker(state, **settings), breaker(state, **settings)
    await fail(one)
    probing = anyio.Event()

    async def hang():
        probing.set()
        await anyio.sleep_forever()

    task = asyncio.create_task(one.call(hang))
    await probing.wait()
    with pytest.raises(CircuitOpenError, match="probes are taken"):
        await other.call(answer)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.state is HALF_OPEN
    await other.call(answer)
    assert other.state is CLOSED


async def test_a_call_cancelled_while_it_asks_keeps_no_permit(state):
    settings = {"failure_threshold": 1, "recovery_timeout": 0, "success_threshold": 1}
    one = breaker(state, **settings)
    await fail(one)
    for _ in range(20):
        task = asyncio.create_task(one.call(anyio.sleep_forever))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await one.call(answer)
    assert one.state is CLOSED


async def test_the_place_of_a_probe_whose_process_died_becomes_free(state):
    settings = {"failure_threshold": 1, "recovery_timeout": 0, "timeout": None}
    one, other = breaker(state, **settings), breaker(state, success_threshold=1, **settings)
    await fail(one)
    await one.enter()  # and never gives the permit back

    async def answers():
        try:
            return await other.call(answer)
        except CircuitOpenError:
            return None

    assert await answers() is None
    await wait_until(answers, timeout=60)
    assert other.state is CLOSED


async def test_a_failed_probe_opens_it_again_and_a_late_call_says_nothing(state):
    one = breaker(state, failure_threshold=1, recovery_timeout=0)
    go = anyio.Event()
    late = asyncio.create_task(one.call(go.wait))
    await fail(one)
    await fail(one)
    assert one.state is OPEN
    go.set()
    await late
    assert one.state is OPEN


async def test_a_share_of_failures_in_the_window_opens_it_too(state):
    one = breaker(state, failure_threshold=4)
    for _ in range(3):
        await fail(one)
        await one.call(answer)
    assert one.state is CLOSED
    await fail(one)
    assert one.state is OPEN


async def test_forced_open_and_reset_hold_for_all(state):
    one, other = breaker(state, recovery_timeout=0), breaker(state, recovery_timeout=0)
    await one.force_open()
    with pytest.raises(CircuitOpenError):
        await other.call(answer)
    await other.reset()
    assert await one.call(answer) == 1
    assert one.state is CLOSED


async def test_breakers_of_other_names_are_not_touched(state):
    await breaker(state, name="a").force_open()
    assert await breaker(state, name="b").call(answer) == 1


async def test_without_redis_a_breaker_goes_by_its_own_state(caplog):
    lost = RedisState(NOWHERE)
    one = breaker(lost, failure_threshold=2)
    assert await one.call(answer, 5) == 5
    await fail(one, 2)
    assert one.state is OPEN
    with pytest.raises(CircuitOpenError):
        await one.call(answer)
    assert not lost.answers
    with pytest.raises(InfrastructureError):
        await one.reset()
    await lost.aclose()
    assert caplog.text.count("this process guards its calls alone") == 1


async def test_when_redis_is_back_the_state_is_shared_again(state, caplog):
    clock = FakeClock()
    one, other = breaker(state), breaker(state)
    with ambient.use(clock):
        working, state._client = state._client, RedisState(NOWHERE)._client
        await one.call(answer)
        await state._client.aclose()
        state._client = working
        state._scripts.clear()
        clock.advance(2)
        await one.force_open()
        with pytest.raises(CircuitOpenError):
            await other.call(answer)
    assert "redis answers again" in caplog.text


@pytest.mark.quick
async def test_limiters_of_one_name_share_their_permits(state):
    one = RateLimiter(5, 600.0, name="api", shared=state)
    other = RateLimiter(5, 600.0, name="api", shared=state)
    taken = [await (one, other)[n % 2].try_acquire() for n in range(8)]
    assert taken == [True] * 5 + [False] * 3
    assert one.get_stats()["available"] is None


async def test_a_shared_limiter_waits_as_long_as_redis_says(state):
    slept = []

    async def nap(seconds):
        slept.append(seconds)
        await anyio.sleep(seconds)

    limiter = RateLimiter(1, 1.0, burst=1, name="slow", shared=state, sleep=nap)
    for _ in range(3):
        await limiter.acquire()
    assert slept
    assert all(0 < seconds <= 1.001 for seconds in slept)


async def test_without_redis_a_limiter_goes_by_its_own_bucket():
    lost = RedisState(NOWHERE)
    limiter = RateLimiter(2, 600.0, name="api", shared=lost)
    assert [await limiter.try_acquire() for _ in range(3)] == [True, True, False]
    await lost.aclose()


PROCESS = """
import asyncio, sys
from lexigram.resilience import RateLimiter, RedisState

async def main(url, prefix):
    shared = RedisState(url, prefix=prefix, timeout=30)
    limiter = RateLimiter(100, 1e6, name="race", shared=shared)  # none is given anew meanwhile
    print(sum([await limiter.try_acquire() for _ in range(80)]))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_three_processes_take_not_more_than_there_is(state, url, prefix):
    async def run():
        done = await anyio.run_process([sys.executable, "-c", PROCESS, url, prefix])
        return int(done.stdout)

    assert sum(await asyncio.gather(run(), run(), run())) == 100


async def test_a_policy_shares_its_breaker_over_the_configured_redis(state, url, prefix):
    config = ResilienceConfig.from_dict(
        {
            "redis_url": url,
            "key_prefix": prefix,
            "policies": {
                "shop": {
                    "breaker": {"backend": "redis", "failure_threshold": 1},
                    "rate_limit": {"backend": "redis"},
                }
            },
        }
    )
    other = breaker(state)
    async with Application(modules=[ResilienceModule.configure(config)]) as app:
        shop = (await app.container.resolve(ResiliencePolicies)).get("shop")
        (provider,) = (p for p in app.providers if p.name == "resilience")
        assert (await provider.health_check()).status is HealthStatus.HEALTHY
        with pytest.raises(OSError):
            await shop.execute(broken)
        with pytest.raises(CircuitOpenError):
            await other.call(answer)


async def test_health_says_that_redis_does_not_answer():
    config = ResilienceConfig(redis_url=NOWHERE)
    async with Application(modules=[ResilienceModule.configure(config)]) as app:
        (provider,) = (p for p in app.providers if p.name == "resilience")
        health = await provider.health_check()
    assert health.status is HealthStatus.DEGRADED
    assert health.error is not None
    assert "redis does not answer" in health.error

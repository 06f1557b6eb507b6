import asyncio
from collections import Counter

import anyio
import pytest

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.infra.resilience import (
    CircuitBreakerConfig,
    CircuitBreakerProtocol,
    CircuitBreakerRegistryProtocol,
    CircuitOpenError,
    CircuitState,
)
from lexigram.resilience import (
    CallRejected,
    CallTimedOut,
    CircuitBreaker,
    CircuitBreakerRegistry,
    CircuitChanged,
    circuit_breaker,
)
from lexigram.testing.fakes import FakeClock, FakeEventBus, FakeMetrics

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


class Bench:
    """A breaker with a clock that stands still until told."""

    def __init__(self, **settings):
        self.clock, self.metrics, self.bus = FakeClock(), FakeMetrics(), FakeEventBus()
        config = CircuitBreakerConfig(**{"name": "shop", "timeout": None, **settings})
        self.breaker = CircuitBreaker(
            config, clock=self.clock, metrics=self.metrics, events=self.bus
        )

    async def fail(self, times=1):
        for n in range(times):
            with pytest.raises(OSError):
                await self.breaker.call(broken, n)

    async def succeed(self, times=1):
        for _ in range(times):
            assert await self.breaker.call(answer, 1) == 1

    async def half_open(self):
        await self.fail(self.breaker.config.failure_threshold)
        self.clock.advance(self.breaker.config.recovery_timeout)


async def broken(which=0):
    raise OSError(which)


async def answer(value):
    return value


def test_breaker_and_registry_satisfy_their_contracts():
    assert isinstance(Bench().breaker, CircuitBreakerProtocol)
    assert isinstance(CircuitBreakerRegistry(), CircuitBreakerRegistryProtocol)


async def test_fifty_concurrent_failing_calls_open_it_at_the_threshold_and_see_their_own_errors():
    bench = Bench(failure_threshold=5)
    states, errors, together = [], [OSError(n) for n in range(50)], anyio.Event()

    async def fail(n):
        await together.wait()
        raise errors[n]

    async def call(n):
        try:
            await bench.breaker.call(fail, n)
        except OSError as error:
            states.append(bench.breaker.state)
            return error

    tasks = [asyncio.create_task(call(n)) for n in range(50)]
    await anyio.wait_all_tasks_blocked()
    together.set()
    seen = await asyncio.gather(*tasks)
    assert all(error is errors[n] for n, error in enumerate(seen))
    assert states == [CLOSED] * 4 + [OPEN] * 46
    with pytest.raises(CircuitOpenError):
        await bench.breaker.call(answer, 1)
    assert len(bench.bus.published_of_type(CircuitChanged)) == 1


@pytest.mark.parametrize("half_open_max", [1, 3])
async def test_of_fifty_concurrent_calls_exactly_half_open_max_are_probes(half_open_max):
    bench = Bench(half_open_max=half_open_max, success_threshold=half_open_max)
    await bench.half_open()
    made, go = 0, anyio.Event()

    async def probe():
        nonlocal made
        made += 1
        await go.wait()
        return "up"

    tasks = [asyncio.create_task(bench.breaker.call(probe)) for _ in range(50)]
    await anyio.wait_all_tasks_blocked()
    assert made == half_open_max
    assert bench.breaker.state is HALF_OPEN
    go.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert Counter(map(type, ends)) == {str: half_open_max, CircuitOpenError: 50 - half_open_max}
    assert bench.breaker.state is CLOSED
    assert made == half_open_max


@pytest.mark.parametrize("how", ["task", "scope"])
async def test_a_cancelled_probe_changes_nothing_and_gives_its_permit_back(how):
    bench = Bench(half_open_max=1, success_threshold=1)
    await bench.half_open()
    probing = anyio.Event()

    async def hang():
        probing.set()
        await anyio.sleep_forever()

    if how == "task":
        task = asyncio.create_task(bench.breaker.call(hang))
        await probing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.breaker.call, hang)
            await probing.wait()
            tasks.cancel_scope.cancel()
    assert bench.breaker.state is HALF_OPEN
    await bench.succeed()
    assert bench.breaker.state is CLOSED


async def test_cancelled_calls_do_not_open_the_circuit():
    bench = Bench(failure_threshold=1)
    for _ in range(5):
        with anyio.move_on_after(0):
            await bench.breaker.call(anyio.sleep_forever)
    assert bench.breaker.state is CLOSED
    assert bench.metrics.counted("resilience.breaker.calls", outcome="cancelled") == 5


async def test_a_failed_probe_opens_the_circuit_for_another_recovery_time():
    bench = Bench(half_open_max=1, recovery_timeout=60)
    await bench.half_open()
    await bench.fail()
    assert bench.breaker.state is OPEN
    bench.clock.advance(59)
    with pytest.raises(CircuitOpenError) as caught:
        await bench.breaker.call(answer, 1)
    assert caught.value.details == {
        "name": "shop",
        "state": "open",
        "retry_after": pytest.approx(1.0),
    }
    bench.clock.advance(1)
    await bench.succeed()
    assert bench.breaker.state is HALF_OPEN


async def test_so_many_successful_probes_as_configured_close_it():
    bench = Bench(success_threshold=3)
    await bench.half_open()
    await bench.succeed(2)
    assert bench.breaker.state is HALF_OPEN
    await bench.succeed()
    assert bench.breaker.state is CLOSED


async def test_a_call_from_before_says_nothing_about_a_half_open_circuit():
    bench = Bench(failure_threshold=2, success_threshold=1)
    go = anyio.Event()

    async def late(error):
        await go.wait()
        if error:
            raise error

    calls = [
        asyncio.create_task(bench.breaker.call(late, error)) for error in (OSError("late"), None)
    ]
    await anyio.wait_all_tasks_blocked()
    await bench.half_open()
    probed = asyncio.create_task(bench.breaker.call(anyio.sleep_forever))
    await anyio.wait_all_tasks_blocked()
    go.set()
    assert [type(end) for end in await asyncio.gather(*calls, return_exceptions=True)] == [
        OSError,
        type(None),
    ]
    assert bench.breaker.state is HALF_OPEN
    with pytest.raises(CircuitOpenError, match="probes are taken"):
        await bench.breaker.call(answer, 1)
    probed.cancel()


async def test_a_success_ends_a_row_of_failures():
    bench = Bench(failure_threshold=3, failure_rate_threshold=1.0)
    for _ in range(5):
        await bench.fail(2)
        await bench.succeed()
    assert bench.breaker.state is CLOSED


async def test_a_share_of_failures_in_the_window_opens_it_too():
    bench = Bench(failure_threshold=4, failure_rate_threshold=0.5)
    for _ in range(3):
        await bench.fail()
        await bench.succeed()
    assert bench.breaker.state is CLOSED
    await bench.fail()
    assert bench.breaker.state is OPEN


async def test_what_left_the_window_does_not_count_for_the_share():
    bench = Bench(failure_threshold=4, sliding_window_seconds=10)
    for _ in range(3):
        await bench.fail()
        await bench.succeed()
    bench.clock.advance(11)
    await bench.fail()
    assert bench.breaker.state is CLOSED


async def test_an_error_that_is_not_expected_is_an_answer():
    bench = Bench(failure_threshold=1, expected_exception=(ConnectionError,))
    await bench.fail(3)
    assert bench.breaker.state is CLOSED


async def test_a_call_that_takes_too_long_is_cancelled_and_counts_whatever_is_expected():
    bench = Bench(failure_threshold=1, timeout=0.001, expected_exception=(KeyError,))
    with pytest.raises(TimeoutError, match=r"took over 0\.001 s"):
        await bench.breaker.call(anyio.sleep_forever)
    assert bench.breaker.state is OPEN
    bench.bus.assert_published_once(CallTimedOut, by="breaker", name="shop", seconds=0.001)


async def test_the_call_keeps_its_own_timeout_error():
    own = TimeoutError("mine")

    async def fail():
        raise own

    with pytest.raises(TimeoutError) as caught:
        await Bench(timeout=30).breaker.call(fail)
    assert caught.value is own


async def test_the_error_keeps_its_trace_and_has_no_foreign_context():
    bench = Bench(failure_threshold=1)
    with pytest.raises(OSError) as caught:
        await bench.breaker.call(broken)
    assert [entry.name for entry in caught.traceback][-1] == "broken"
    assert caught.value.__context__ is None


async def test_a_block_is_protected_like_a_call():
    bench = Bench(failure_threshold=1)
    async with bench.breaker.protect():
        pass
    with pytest.raises(KeyError):
        async with bench.breaker.protect():
            raise KeyError
    with pytest.raises(CircuitOpenError):
        async with bench.breaker.protect():
            pytest.fail("the block must not run")


async def test_forced_open_it_stays_open_until_reset():
    bench = Bench(recovery_timeout=1)
    await bench.breaker.force_open()
    await bench.breaker.force_open()
    bench.clock.advance(1000)
    with pytest.raises(CircuitOpenError):
        await bench.breaker.call(answer, 1)
    await bench.breaker.reset()
    await bench.breaker.reset()
    await bench.succeed()
    assert bench.breaker.state is CLOSED


async def test_reset_forgets_the_counts():
    bench = Bench(failure_threshold=2)
    await bench.fail()
    await bench.breaker.reset()
    await bench.fail()
    assert bench.breaker.state is CLOSED


async def test_changes_are_told_and_gauged_and_outcomes_counted():
    bench = Bench(failure_threshold=2, success_threshold=1)
    await bench.half_open()
    await bench.succeed()
    changes = [(e.old, e.new) for e in bench.bus.published_of_type(CircuitChanged)]
    assert changes == [(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, CLOSED)]
    assert bench.metrics.gauged("resilience.breaker.state", name="shop") == 0
    assert bench.metrics.counted("resilience.breaker.calls", outcome="failure") == 2
    assert bench.metrics.counted("resilience.breaker.calls", outcome="success") == 1


async def test_a_refused_call_is_counted_and_told():
    bench = Bench(failure_threshold=1)
    await bench.fail()
    with pytest.raises(CircuitOpenError):
        await bench.breaker.call(answer, 1)
    assert bench.metrics.counted("resilience.breaker.calls", outcome="rejected") == 1
    bench.bus.assert_published_once(CallRejected, by="breaker", name="shop")


@pytest.mark.parametrize(
    "setting",
    [
        {"failure_threshold": 0},
        {"success_threshold": 0},
        {"half_open_max": 0},
        {"recovery_timeout": -1},
        {"sliding_window_seconds": 0},
        {"failure_rate_threshold": 0},
        {"failure_rate_threshold": 1.1},
        {"timeout": 0},
        {"backend": "consul"},
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(setting):
    with pytest.raises(ConfigurationError, match=next(iter(setting))):
        CircuitBreaker(CircuitBreakerConfig(**setting))


def test_a_shared_breaker_without_a_connection_is_refused():
    with pytest.raises(ConfigurationError, match="no connection"):
        CircuitBreaker(CircuitBreakerConfig(name="shop", backend="redis"))


async def test_the_registry_gives_concurrent_callers_one_breaker():
    registry = CircuitBreakerRegistry()
    config = CircuitBreakerConfig(failure_threshold=7, name="ignored")
    found = await asyncio.gather(*(registry.get_or_create("a", config) for _ in range(20)))
    assert len(set(map(id, found))) == 1
    assert (found[0].name, found[0].config.failure_threshold) == ("a", 7)
    assert await registry.get_or_create("a", CircuitBreakerConfig()) is found[0]
    assert registry.get("a") is found[0]
    assert registry.get("b") is None
    await registry.get_or_create("b")
    assert registry.list_breakers() == ["a", "b"]


async def test_the_decorator_gives_a_function_its_own_breaker_or_a_given_one():
    @circuit_breaker(failure_threshold=1)
    async def one():
        raise OSError

    with pytest.raises(OSError):
        await one()
    with pytest.raises(CircuitOpenError):
        await one()
    bench = Bench()
    await bench.breaker.force_open()
    with pytest.raises(CircuitOpenError):
        await circuit_breaker(bench.breaker)(answer)(1)
    with pytest.raises(TypeError, match="takes no settings"):
        circuit_breaker(bench.breaker, failure_threshold=3)


async def test_a_handler_of_events_that_fails_does_not_touch_the_call(caplog):
    bench = Bench(failure_threshold=1)

    def fail_too(_event):
        raise RuntimeError("of the handler")

    bench.bus.subscribe(CircuitChanged, fail_too)
    await bench.fail()
    assert bench.breaker.state is OPEN
    assert "of the handler" in caplog.text


async def test_a_probe_whose_start_is_cancelled_by_a_handler_keeps_no_permit():
    bench = Bench(failure_threshold=1, success_threshold=1)
    await bench.half_open()
    told = anyio.Event()

    async def linger(event):
        if event.new is HALF_OPEN:
            told.set()
            await anyio.sleep_forever()

    bench.bus.subscribe(CircuitChanged, linger)
    task = asyncio.create_task(bench.breaker.call(answer, 1))
    await told.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.bus.unsubscribe(CircuitChanged, linger)
    await bench.succeed()
    assert bench.breaker.state is CLOSED


class Quiet:
    """A bus nobody listens to; making an event for it is an error."""

    def has_subscribers(self, _kind):
        return False

    async def publish(self, event):
        pytest.fail(f"{event} was built for nobody")


async def test_events_are_built_only_when_somebody_listens():
    breaker = CircuitBreaker(CircuitBreakerConfig(failure_threshold=1), events=Quiet())
    with pytest.raises(OSError):
        await breaker.call(broken)
    with pytest.raises(CircuitOpenError):
        await breaker.call(answer, 1)

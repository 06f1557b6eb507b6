import asyncio

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.retries import HOPELESS

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.infra.resilience import (
    RetryConfig,
    RetryExhaustedError,
    RetryPolicyProtocol,
    RetryStrategy,
)
from lexigram.resilience import CallRetried, RetriesExhausted, RetryPolicy, retry
from lexigram.testing.fakes import FakeEventBus, FakeMetrics


class Naps:
    """Sleeps no time and remembers how long it was asked to."""

    def __init__(self):
        self.taken = []

    async def __call__(self, seconds):
        self.taken.append(seconds)


class Flaky:
    """Raises the given errors one after the other, then returns."""

    def __init__(self, *errors, result="done"):
        self.errors, self.result, self.calls = list(errors), result, 0

    async def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.result


def policy(naps=None, **settings):
    settings = {"jitter": False, **settings}
    return RetryPolicy(RetryConfig(**settings), sleep=naps or Naps())


def test_a_retry_policy_satisfies_its_contract():
    assert isinstance(policy(), RetryPolicyProtocol)


async def test_the_first_good_result_is_returned_with_the_arguments_passed():
    async def add(one, *, two):
        return one + two

    assert await policy().execute(add, 1, two=2) == 3


async def test_it_calls_again_until_the_call_succeeds():
    naps, call = Naps(), Flaky(OSError(), OSError())
    assert await policy(naps).execute(call) == "done"
    assert call.calls == 3
    assert naps.taken == [1.0, 2.0]


async def test_after_the_last_attempt_its_own_error_is_raised():
    errors = [OSError("one"), OSError("two"), OSError("three")]
    call = Flaky(*errors)
    with pytest.raises(OSError) as caught:
        await policy(max_attempts=3).execute(call)
    assert caught.value is errors[2]
    assert call.calls == 3


async def test_one_attempt_means_no_retry():
    call = Flaky(OSError())
    with pytest.raises(OSError):
        await policy(max_attempts=1).execute(call)
    assert call.calls == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"retry_on": (KeyError,)},
        {"abort_on": (OSError,)},
        {"abort_if": lambda error: True},
        {"retry_if": lambda error: False},
        {"retry_on": (OSError,), "abort_on": (ConnectionError,)},
    ],
)
async def test_an_error_that_is_not_to_be_retried_passes_at_once(settings):
    error = ConnectionError("refused")
    call = Flaky(error)
    with pytest.raises(ConnectionError) as caught:
        await policy(**settings).execute(call)
    assert caught.value is error
    assert call.calls == 1


async def test_an_abort_counts_in_later_attempts_too():
    call = Flaky(OSError(), KeyError("stop"), OSError())
    with pytest.raises(KeyError):
        await policy(max_attempts=9, abort_on=(KeyError,)).execute(call)
    assert call.calls == 2


async def test_the_conditions_are_asked_once_for_each_failure():
    asked, errors = [], [OSError(1), OSError(2)]

    def note(error):
        asked.append(error)
        return True

    await policy(retry_if=note).execute(Flaky(*errors))
    assert asked == errors


async def test_a_result_can_ask_for_another_attempt():
    answers = iter([None, None, "ready"])

    async def poll():
        return next(answers)

    naps = Naps()
    assert await policy(naps, retry_on_result=lambda r: r is None).execute(poll) == "ready"
    assert len(naps.taken) == 2


async def test_results_that_never_satisfy_end_in_an_error_that_carries_the_last():
    with pytest.raises(RetryExhaustedError) as caught:
        await policy(retry_on_result=lambda r: r == "busy").execute(Flaky(result="busy"))
    assert caught.value.details == {"attempts": 3, "result": "busy"}


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_on_retry_is_told_before_each_wait(kind):
    told, errors = [], [OSError(1), OSError(2)]

    async def wait_and_tell(error, attempt):
        await anyio.lowlevel.checkpoint()
        told.append((error, attempt))

    on_retry = wait_and_tell if kind == "async" else lambda e, n: told.append((e, n))
    await policy(on_retry=on_retry).execute(Flaky(*errors))
    assert told == [(errors[0], 1), (errors[1], 2)]


async def test_a_cancelled_call_is_never_made_again():
    calls = 0
    started = anyio.Event()

    async def hang():
        nonlocal calls
        calls += 1
        started.set()
        await anyio.sleep_forever()

    task = asyncio.create_task(policy(max_attempts=9).execute(hang))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == 1


async def test_a_call_cancelled_in_its_second_attempt_is_not_made_a_third_time():
    calls = 0
    started = anyio.Event()

    async def fail_then_hang():
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError
        started.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(policy(max_attempts=9).execute, fail_then_hang)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert calls == 2


async def test_a_task_cancelled_between_two_attempts_makes_no_other():
    call, napping = Flaky(OSError(), OSError()), anyio.Event()

    async def nap(_seconds):
        napping.set()
        await anyio.sleep_forever()

    task = asyncio.create_task(policy(nap).execute(call))
    await napping.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.calls == 1


async def test_a_cancellation_turned_into_an_error_is_not_retried():
    calls = 0
    started = anyio.Event()

    async def disguise():
        nonlocal calls
        calls += 1
        started.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            raise OSError("connection dropped") from None

    task = asyncio.create_task(policy(max_attempts=9).execute(disguise))
    await started.wait()
    task.cancel()
    with pytest.raises(OSError, match="connection dropped"):
        await task
    assert calls == 1


async def test_fifty_concurrent_calls_of_one_policy_keep_their_own_count():
    shared = policy(max_attempts=4)
    calls = [Flaky(*[OSError(n)] * (n % 4), result=n) for n in range(50)]
    results = await asyncio.gather(*(shared.execute(call) for call in calls))
    assert results == list(range(50))
    assert [call.calls for call in calls] == [n % 4 + 1 for n in range(50)]


async def test_retries_are_counted_and_told():
    metrics, bus = FakeMetrics(), FakeEventBus()
    shared = RetryPolicy(
        RetryConfig(max_attempts=2, jitter=False),
        name="mail",
        sleep=Naps(),
        metrics=metrics,
        events=bus,
    )
    with pytest.raises(OSError):
        await shared.execute(Flaky(OSError("a"), OSError("b")))
    assert metrics.counted("resilience.retry.retries", name="mail") == 1
    assert metrics.counted("resilience.retry.exhausted", name="mail") == 1
    bus.assert_published_once(CallRetried, policy="mail", attempt=1, delay=1.0)
    bus.assert_published_once(RetriesExhausted, attempts=2, error="OSError('b')")


async def test_the_decorator_keeps_name_and_result():
    @retry(max_attempts=2, base_delay=0)
    async def greet(name):
        """Say hello."""
        return f"hello {name}"

    assert (greet.__name__, greet.__doc__) == ("greet", "Say hello.")
    assert await greet("Ada") == "hello Ada"


def test_the_decorator_refuses_a_function_that_is_not_async():
    with pytest.raises(TypeError, match="not an async function"):
        retry()(lambda: None)


@pytest.mark.parametrize(
    "setting", [{"max_attempts": 0}, {"base_delay": -1}, {"max_delay": -1}, {"backoff_factor": 0}]
)
def test_settings_that_cannot_work_are_refused_by_name(setting):
    with pytest.raises(ConfigurationError, match=next(iter(setting))):
        RetryPolicy(RetryConfig(**setting))


configs = st.builds(
    RetryConfig,
    max_attempts=st.integers(1, 60),
    base_delay=st.floats(0, 1e6),
    max_delay=st.floats(0, 1e6),
    backoff_factor=st.floats(1, 1e9),
    jitter=st.booleans(),
    strategy=st.sampled_from(RetryStrategy),
)


@given(configs, st.integers(0, 70), st.floats(0, 1, exclude_max=True))
def test_every_schedule_is_bounded_and_has_one_wait_less_than_attempts(config, failures, draw):
    naps, call = Naps(), Flaky(*[OSError() for _ in range(failures)])

    async def run():
        try:
            await RetryPolicy(config, sleep=naps, draw=lambda: draw).execute(call)
        except OSError:
            return False
        return True

    succeeded = asyncio.run(run())
    assert succeeded == (failures < config.max_attempts)
    assert call.calls == min(failures + 1, config.max_attempts)
    assert len(naps.taken) == call.calls - 1
    assert all(0 <= nap <= config.max_delay for nap in naps.taken)
    assert naps.taken == sorted(naps.taken)
    longest = [nap / draw for nap in naps.taken] if config.jitter and draw > 0.01 else []
    assert all(nap <= config.max_delay * 1.001 for nap in longest)


@given(configs)
def test_without_jitter_the_first_wait_is_the_base_delay_unless_capped(config):
    from lexigram.resilience.retrying import delay_after

    first = delay_after(config, 1, lambda: 1.0)
    assert first == pytest.approx(min(config.base_delay, config.max_delay))


@pytest.mark.parametrize("make", HOPELESS)
async def test_an_error_that_is_not_retryable_is_raised_after_one_attempt(make):
    error = make()
    call = Flaky(error)
    with pytest.raises(type(error)) as caught:
        await policy(max_attempts=3, retry_on=(Exception,)).execute(call)
    assert (caught.value, call.calls) == (error, 1)


@pytest.mark.parametrize("make", HOPELESS)
async def test_an_error_that_is_not_retryable_ends_the_attempts_after_others(make):
    call = Flaky(OSError(), make())
    with pytest.raises(type(make())):
        await policy(max_attempts=5).execute(call)
    assert call.calls == 2

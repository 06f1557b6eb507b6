import anyio
import pytest

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.infra.resilience import (
    CircuitBreakerConfig,
    CircuitOpenError,
    ResilienceError,
    ResiliencePipelineProtocol,
    RetryConfig,
)
from lexigram.resilience import (
    Bulkhead,
    CircuitBreaker,
    RateLimiter,
    ResiliencePipeline,
    RetryPolicy,
    Timeout,
    resilient,
)


class Traced:
    def __init__(self, name, log):
        self.name, self.log = name, log

    async def execute(self, func, *args, **kwargs):
        self.log.append(f"> {self.name}")
        try:
            return await func(*args, **kwargs)
        finally:
            self.log.append(f"< {self.name}")


class BareBulkhead:
    """What the contract of a bulkhead asks for, and not more."""

    entered = 0

    async def __aenter__(self):
        self.entered += 1
        return self

    async def __aexit__(self, *_):
        return None


class BareLimiter:
    """What the contract of a rate limiter asks for, and not more."""

    given = 0

    async def acquire(self, permits=1):
        self.given += permits

    async def try_acquire(self, permits=1):
        return True

    def get_stats(self):
        return {}


async def echo(*args, **kwargs):
    return args, kwargs


def test_a_pipeline_satisfies_its_contract():
    assert isinstance(ResiliencePipeline(), ResiliencePipelineProtocol)


async def test_an_empty_pipeline_just_calls():
    assert await ResiliencePipeline().execute(echo, 1, two=2) == ((1,), {"two": 2})


async def test_the_first_added_is_outermost():
    log = []
    pipeline = ResiliencePipeline(Traced("a", log)).add(Traced("b", log)).add(Traced("c", log))
    assert await pipeline.execute(echo, 1, two=2) == ((1,), {"two": 2})
    assert log == ["> a", "> b", "> c", "< c", "< b", "< a"]


async def test_it_cannot_be_changed_after_the_first_call():
    pipeline = ResiliencePipeline()
    await pipeline.execute(echo)
    with pytest.raises(ResilienceError, match="in use"):
        pipeline.add(Timeout(1))


def test_what_is_no_protection_is_refused():
    with pytest.raises(ConfigurationError, match="str is no protection"):
        ResiliencePipeline("retry")


async def test_objects_that_only_have_the_contract_fit_in():
    room, limiter = BareBulkhead(), BareLimiter()
    await ResiliencePipeline(limiter, room).execute(echo)
    assert (room.entered, limiter.given) == (1, 1)


async def test_all_protections_work_together():
    breaker = CircuitBreaker(CircuitBreakerConfig(name="x", failure_threshold=3))
    retry = RetryPolicy(RetryConfig(base_delay=0, abort_on=(CircuitOpenError,), max_attempts=9))
    room = Bulkhead(1)
    calls = 0

    @resilient(RateLimiter(100), room, retry, breaker, Timeout(5))
    async def fail():
        nonlocal calls
        calls += 1
        assert room.running == 1
        raise OSError("down")

    with pytest.raises(CircuitOpenError):
        await fail()
    assert calls == 3
    assert room.running == 0


async def test_an_attempt_that_timed_out_is_tried_again():
    breaker = CircuitBreaker(CircuitBreakerConfig(name="x", failure_threshold=9, timeout=0.002))
    for patterns in ((Timeout(0.001),), (breaker,), (breaker, Timeout(0.001))):
        calls = 0

        async def hang_twice():
            nonlocal calls
            calls += 1
            if calls < 3:
                await anyio.sleep_forever()
            return "done"

        policy = RetryPolicy(RetryConfig(base_delay=0))
        assert await ResiliencePipeline(policy, *patterns).execute(hang_twice) == "done"
        assert calls == 3

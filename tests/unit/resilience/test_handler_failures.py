"""Whatever a protected call raises is a failure of that call: it is retried and counted."""

import pytest
from tests.failures import TIME_LIMIT, WAYS_TO_FAIL, WAYS_TO_RAISE

from lexigram.contracts.infra.resilience.types import (
    CircuitBreakerConfig,
    CircuitState,
    RetryConfig,
)
from lexigram.resilience import Bulkhead, CircuitBreaker, RetryPolicy

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_call_that_fails_in_any_way_is_tried_again(fail):
    attempts = []

    async def work():
        attempts.append(1)
        if len(attempts) < 3:
            await fail()
        return "done"

    policy = RetryPolicy(RetryConfig(max_attempts=3, base_delay=0.0))
    assert await policy.execute(work) == "done"
    with pytest.raises(Exception):  # noqa: B017 - any Exception, and no other kind
        await RetryPolicy(RetryConfig(max_attempts=2, base_delay=0.0)).execute(fail)


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_calls_that_fail_in_any_way_open_the_circuit(fail):
    config = CircuitBreakerConfig(failure_threshold=2, timeout=TIME_LIMIT)
    breaker = CircuitBreaker(config)
    for _ in range(2):
        with pytest.raises(BaseException):  # noqa: B017 - the call's own, as it is
            await breaker.call(fail)
    assert breaker.state is CircuitState.OPEN


@pytest.mark.parametrize("fail", WAYS_TO_RAISE)
async def test_a_call_that_fails_in_any_way_gives_back_its_place(fail):
    bulkhead = Bulkhead(1)
    with pytest.raises(BaseException):  # noqa: B017 - the call's own, as it is
        await bulkhead.execute(fail)
    assert bulkhead.running == 0

import anyio
import pytest

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.infra.resilience import TimeoutConfig, TimeoutProtocol
from lexigram.resilience import CallTimedOut, Timeout, timeout
from lexigram.testing.fakes import FakeEventBus, FakeMetrics


def test_a_timeout_satisfies_its_contract():
    assert isinstance(Timeout(), TimeoutProtocol)


async def test_a_call_in_time_gives_its_result():
    async def add(one, two):
        return one + two

    assert await Timeout(30).execute(add, 1, two=2) == 3


async def test_a_call_that_takes_too_long_is_cancelled_and_says_the_configured_text():
    cancelled = False

    async def hang():
        nonlocal cancelled
        try:
            await anyio.sleep_forever()
        finally:
            cancelled = True

    metrics, bus = FakeMetrics(), FakeEventBus()
    config = TimeoutConfig(timeout=0.001, timeout_message="the shop is closed")
    with pytest.raises(TimeoutError, match=r"^the shop is closed$"):
        await Timeout(config, name="shop", metrics=metrics, events=bus).execute(hang)
    assert cancelled
    assert metrics.counted("resilience.timeout.expired", name="shop") == 1
    bus.assert_published_once(CallTimedOut, by="timeout", name="shop")


async def test_the_own_timeout_error_of_a_call_passes():
    own = TimeoutError("mine")

    @timeout(30)
    async def fail():
        raise own

    with pytest.raises(TimeoutError) as caught:
        await fail()
    assert caught.value is own


async def test_cancellation_from_outside_is_not_a_timeout():
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Timeout(30).execute(anyio.sleep_forever)
    assert scope.cancelled_caught


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_that_is_no_time_is_refused(seconds):
    with pytest.raises(ConfigurationError, match="timeout must be more than 0"):
        Timeout(seconds)

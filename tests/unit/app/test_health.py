"""Health tells the truth, takes bounded time, and never raises."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.failures import WAYS_TO_FAIL, Fail

from lexigram.app import Application
from lexigram.config import HealthConfig, LexigramConfig
from lexigram.contracts.core.health import (
    HealthCheckCategory,
    HealthCheckResult,
    HealthStatus,
)
from lexigram.di import Provider

pytestmark = pytest.mark.anyio


def provider(name: str, check: Any = None) -> Provider:
    class Checked(Provider):
        async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
            return await check() if check else await super().health_check(timeout)

    return Checked(name=name)


async def raises() -> HealthCheckResult:
    raise KeyError("lost")


async def hangs() -> HealthCheckResult:
    await anyio.sleep_forever()
    raise AssertionError


async def degraded() -> HealthCheckResult:
    return HealthCheckResult("cache", HealthStatus.DEGRADED, message="cold")


async def dead() -> HealthCheckResult:
    return HealthCheckResult("loop", HealthStatus.UNHEALTHY, category=HealthCheckCategory.LIVENESS)


async def test_a_key_error_in_one_check_is_unhealthy_and_the_others_are_asked() -> None:
    async with Application("a", providers=[provider("bad", raises), provider("good")]) as app:
        health = await app.health_check()
    by_name = {item.component: item for item in health.components}
    assert by_name["bad"].status is HealthStatus.UNHEALTHY
    assert by_name["bad"].error == "KeyError: 'lost'"
    assert by_name["good"].status is HealthStatus.HEALTHY
    assert health.status is HealthStatus.UNHEALTHY


async def test_a_hanging_check_is_unhealthy_after_its_time() -> None:
    async with Application("a", providers=[provider("slow", hangs)]) as app:
        health = await app.health_check(timeout=0.01)
    assert health.components[0].error == "no answer within 0.01 s"


async def test_the_whole_is_as_bad_as_its_worst_part() -> None:
    async with Application("a", providers=[provider("cache", degraded), provider("x")]) as app:
        assert (await app.health_check()).status is HealthStatus.DEGRADED
        assert (await app.readiness()).status is HealthStatus.DEGRADED


async def test_liveness_and_startup_are_healthy_by_default() -> None:
    async with Application("a", providers=[provider("cache", degraded)]) as app:
        assert (await app.liveness()).is_healthy()
        assert (await app.startup_check()).is_healthy()


async def test_a_liveness_check_of_a_provider_decides_liveness_not_readiness() -> None:
    async with Application("a", providers=[provider("loop", dead), provider("x")]) as app:
        assert (await app.liveness()).status is HealthStatus.UNHEALTHY
        assert (await app.readiness()).is_healthy()


async def test_an_application_that_does_not_run_says_so() -> None:
    app = Application("a")
    assert (await app.startup_check()).status is HealthStatus.STARTING
    assert (await app.liveness()).is_healthy()
    health = await app.health_check()
    assert health.components[0].message == "Application is created"
    assert health.status is HealthStatus.UNHEALTHY
    async with app:
        pass
    assert (await app.liveness()).status is HealthStatus.UNHEALTHY


async def test_details_can_be_kept_from_those_who_ask() -> None:
    config = LexigramConfig(health=HealthConfig(include_details=False))
    async with Application("a", config, providers=[provider("bad", raises)]) as app:
        only = (await app.health_check()).components[0]
    assert (only.error, only.message, only.details) == (None, None, None)
    assert only.status is HealthStatus.UNHEALTHY


async def test_an_application_without_providers_is_healthy() -> None:
    async with Application("a") as app:
        assert (await app.health_check()).is_healthy()


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_check_that_fails_in_any_way_is_unhealthy_and_the_others_are_asked(
    fail: Fail, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> HealthCheckResult:
        await fail()
        raise AssertionError

    async with Application("a", providers=[provider("bad", broken), provider("good")]) as app:
        health = await app.health_check(0.2)

    by_name = {item.component: item for item in health.components}
    assert by_name["bad"].status is HealthStatus.UNHEALTHY
    assert by_name["bad"].error
    assert by_name["good"].status is HealthStatus.HEALTHY
    is_logged = fail.__name__ not in ("raise_exception", "never_return")
    assert [record.exc_info is not None for record in caplog.records] == [True] * is_logged

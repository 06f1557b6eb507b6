"""Refused values, an outage of the backend, and health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Ok, Result
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheError, CacheWriteError
from lexigram.testing.conformance.backed import enter
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec


class RefusalSpec(CacheSpec, capability=CacheCapability.REFUSAL):
    """set and set_many with a value the backend cannot store."""

    async def test_the_refusal_is_an_err_that_names_the_key(
        self, subject: CacheBackendProtocol, unencodable: Any
    ) -> None:
        error = (await subject.set("key", unencodable)).unwrap_err()
        assert isinstance(error, CacheWriteError)
        assert error.key == "key"
        assert await subject.exists("key") == Ok(False)

    async def test_the_old_value_stays(
        self, subject: CacheBackendProtocol, unencodable: Any
    ) -> None:
        await subject.set("key", "old")
        assert (await subject.set("key", unencodable)).is_err()
        assert await subject.get("key") == Ok("old")

    async def test_a_batch_with_such_a_value_is_an_err(
        self, subject: CacheBackendProtocol, unencodable: Any
    ) -> None:
        assert (await subject.set_many({"good": 1, "bad": unencodable})).is_err()
        assert await subject.exists("bad") == Ok(False)


Call = Callable[[CacheBackendProtocol], Awaitable[Result[Any, CacheError]]]

CALLS: dict[str, Call] = {
    "get": lambda cache: cache.get("key"),
    "set": lambda cache: cache.set("key", 2),
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["key"]),
    "delete_pattern": lambda cache: cache.delete_pattern("*"),
    "exists": lambda cache: cache.exists("key"),
    "clear": lambda cache: cache.clear(),
    "get_many": lambda cache: cache.get_many(["key"]),
    "set_many": lambda cache: cache.set_many({"key": 2}),
}


class OutageSpec(CacheSpec, capability=CacheCapability.OUTAGE):
    """Every method while the backend is down, and after."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    async def test_every_call_returns_an_err_and_works_again_afterwards(
        self, subject: CacheBackendProtocol, outage: Callable[[], Any], call: Call
    ) -> None:
        async with AsyncExitStack() as stack:
            await enter(stack, outage())
            assert isinstance((await call(subject)).unwrap_err(), CacheError)
        assert (await call(subject)).is_ok()

    async def test_health_tells_the_outage_and_its_end(
        self, subject: CacheBackendProtocol, outage: Callable[[], Any]
    ) -> None:
        async with AsyncExitStack() as stack:
            await enter(stack, outage())
            assert (await subject.health_check(timeout=1.0)).status is HealthStatus.UNHEALTHY
        assert (await subject.health_check()).status is HealthStatus.HEALTHY


class HealthSpec(CacheSpec, capability=CacheCapability.HEALTH):
    """health_check while all is well."""

    async def test_a_working_cache_is_healthy(self, subject: CacheBackendProtocol) -> None:
        health = await subject.health_check()
        assert isinstance(health, HealthCheckResult)
        assert health.status is HealthStatus.HEALTHY, health
        assert health.component

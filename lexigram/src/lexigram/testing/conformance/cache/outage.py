"""A backend out of reach is an Err, never an exception."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.core.result import Result
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheError
from lexigram.testing.conformance.backed import enter
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec

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

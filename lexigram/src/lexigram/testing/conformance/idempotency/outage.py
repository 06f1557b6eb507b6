"""A backend out of reach is an Err, never an exception and never a claim."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lexigram.contracts.core.idempotency import IdempotencyError, IdempotencyStoreProtocol
from lexigram.contracts.core.result import Result
from lexigram.testing.conformance.backed import enter
from lexigram.testing.conformance.idempotency.spec import IdempotencyCapability, IdempotencySpec

Call = Callable[[IdempotencyStoreProtocol], Awaitable[Result[Any, IdempotencyError]]]

CALLS: dict[str, Call] = {
    "acquire": lambda store: store.acquire("key"),
    "set": lambda store: store.set("key", 1),
    "get": lambda store: store.get("key"),
    "get_record": lambda store: store.get_record("key"),
    "delete": lambda store: store.delete("key"),
}


class OutageSpec(IdempotencySpec, capability=IdempotencyCapability.OUTAGE):
    """Every method while the backend is down, and after."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    async def test_every_call_returns_an_err_and_works_again_afterwards(
        self, subject: IdempotencyStoreProtocol, outage: Callable[[], Any], call: Call
    ) -> None:
        async with AsyncExitStack() as stack:
            await enter(stack, outage())
            assert isinstance((await call(subject)).unwrap_err(), IdempotencyError)
        assert (await call(subject)).is_ok()

"""A backend out of reach is a LockError, never a grant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lexigram.contracts.core.lock import DistributedLockProtocol, LockError
from lexigram.testing.conformance.backed import enter
from lexigram.testing.conformance.locks.spec import LockCapability, LockSpec

CALLS: dict[str, Callable[[DistributedLockProtocol], Awaitable[Any]]] = {
    "acquire": lambda locks: locks.acquire("key", "a"),
    "acquire_blocking": lambda locks: locks.acquire_blocking("key", "a"),
    "extend": lambda locks: locks.extend("key", "a"),
    "release": lambda locks: locks.release("key", "a"),
    "is_held": lambda locks: locks.is_held("key"),
    "fence": lambda locks: locks.fence("key", "a"),
}


class OutageSpec(LockSpec, capability=LockCapability.OUTAGE):
    """Every method while the backend is down, and after."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    async def test_every_call_raises_and_works_again_afterwards(
        self,
        subject: DistributedLockProtocol,
        outage: Callable[[], Any],
        call: Callable[[DistributedLockProtocol], Awaitable[Any]],
    ) -> None:
        async with AsyncExitStack() as stack:
            await enter(stack, outage())
            with pytest.raises(LockError):
                await call(subject)
        await call(subject)

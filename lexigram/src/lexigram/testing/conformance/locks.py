"""The conformance suite of DistributedLockProtocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Any

import anyio
import pytest

from lexigram.contracts.core.lock import DistributedLockProtocol, LockError
from lexigram.testing.conformance.backed import BackedSuite, Elapse, enter

__all__ = ["LockCapability", "LockConformance"]


class LockCapability(StrEnum):
    """What locks can do; all but the last are the core."""

    EXCLUSION = "exclusion"
    EXPIRY = "expiry"
    WAITING = "waiting"  # acquire_blocking
    FENCES = "fences"
    OUTAGE = "outage"  # the test can break the backend; fixture `outage`


class LockSpec(BackedSuite):
    """The contract and the core."""

    contract = DistributedLockProtocol
    core = frozenset(LockCapability) - {LockCapability.OUTAGE}


LONG = 60.0


class ExclusionSpec(LockSpec, capability=LockCapability.EXCLUSION):
    """acquire, release, extend, is_held."""

    async def test_a_lock_has_one_owner_until_it_is_given_back(
        self, subject: DistributedLockProtocol
    ) -> None:
        assert await subject.acquire("key", "a", LONG)
        assert not await subject.acquire("key", "b", LONG)
        assert await subject.release("key", "a")
        assert await subject.acquire("key", "b", LONG)

    async def test_another_can_neither_extend_nor_release_it(
        self, subject: DistributedLockProtocol
    ) -> None:
        await subject.acquire("key", "a", LONG)
        assert not await subject.extend("key", "b", LONG)
        assert not await subject.release("key", "b")
        assert await subject.is_held("key", "a")

    async def test_the_owner_may_take_it_again_and_gives_it_back_once(
        self, subject: DistributedLockProtocol
    ) -> None:
        assert await subject.acquire("key", "a", LONG)
        assert await subject.acquire("key", "a", LONG)
        assert await subject.release("key", "a")
        assert not await subject.release("key", "a")
        assert not await subject.is_held("key")

    async def test_is_held_tells_by_whom(self, subject: DistributedLockProtocol) -> None:
        assert not await subject.is_held("key")
        await subject.acquire("key", "a", LONG)
        assert await subject.is_held("key")
        assert await subject.is_held("key", "a")
        assert not await subject.is_held("key", "b")
        assert not await subject.is_held("other")

    async def test_one_of_many_is_granted(self, subject: DistributedLockProtocol) -> None:
        granted: list[str] = []

        async def fight(owner: str) -> None:
            if await subject.acquire("key", owner, LONG):
                granted.append(owner)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(fight, f"owner {number}")
        assert len(granted) == 1

    async def test_a_long_key_is_a_key_of_its_own(self, subject: DistributedLockProtocol) -> None:
        assert await subject.acquire("k" * 400 + "a", "a", LONG)
        assert await subject.acquire("k" * 400 + "b", "b", LONG)
        assert not await subject.acquire("k" * 400 + "a", "b", LONG)

    @pytest.mark.parametrize("ttl", [0, -1.0])
    async def test_a_ttl_that_is_not_above_0_is_refused(
        self, subject: DistributedLockProtocol, ttl: float
    ) -> None:
        with pytest.raises(LockError):
            await subject.acquire("key", "a", ttl)
        assert not await subject.is_held("key")


SHORT = 0.2  # seconds, which really pass on most backends
LONGER = 0.3
ENOUGH = 3.0  # for the next calls to come in time, also on a busy machine


class ExpirySpec(LockSpec, capability=LockCapability.EXPIRY):
    """The ``ttl``."""

    async def test_an_expired_lock_is_free_and_its_owner_shut_out(
        self, subject: DistributedLockProtocol, elapse: Elapse
    ) -> None:
        await subject.acquire("key", "a", SHORT)
        await elapse(LONGER)
        assert not await subject.is_held("key")
        assert not await subject.extend("key", "a", LONG)
        assert not await subject.release("key", "a")
        assert await subject.acquire("key", "b", LONG)

    async def test_extending_and_taking_again_start_the_time_anew(
        self, subject: DistributedLockProtocol, elapse: Elapse
    ) -> None:
        for key in ("extended", "taken"):
            assert await subject.acquire(key, "a", ENOUGH)
        assert await subject.extend("extended", "a", LONG)
        assert await subject.acquire("taken", "a", LONG)
        await elapse(ENOUGH + 0.1)
        assert await subject.is_held("extended", "a")
        assert await subject.is_held("taken", "a")

    async def test_a_new_time_may_be_shorter(
        self, subject: DistributedLockProtocol, elapse: Elapse
    ) -> None:
        await subject.acquire("key", "a", LONG)
        assert await subject.extend("key", "a", SHORT)
        await elapse(LONGER)
        assert not await subject.is_held("key")


class WaitingSpec(LockSpec, capability=LockCapability.WAITING):
    """acquire_blocking."""

    async def test_a_free_lock_is_granted_at_once(self, subject: DistributedLockProtocol) -> None:
        assert await subject.acquire_blocking("key", "a", LONG, timeout=0)

    async def test_the_waiter_gets_it_when_it_is_given_back(
        self, subject: DistributedLockProtocol
    ) -> None:
        await subject.acquire("key", "a", LONG)
        granted: list[bool] = []

        async def wait() -> None:
            granted.append(await subject.acquire_blocking("key", "b", LONG))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert granted == []
            await subject.release("key", "a")
        assert granted == [True]
        assert await subject.is_held("key", "b")

    async def test_it_gives_up_after_the_timeout(self, subject: DistributedLockProtocol) -> None:
        await subject.acquire("key", "a", LONG)
        assert not await subject.acquire_blocking("key", "b", LONG, timeout=0)
        assert not await subject.acquire_blocking("key", "b", LONG, timeout=0.05)
        assert await subject.is_held("key", "a")

    async def test_a_cancelled_waiter_holds_nothing(self, subject: DistributedLockProtocol) -> None:
        await subject.acquire("key", "a", LONG)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subject.acquire_blocking, "key", "b", LONG)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await subject.release("key", "a")
        assert not await subject.is_held("key")


class FencesSpec(LockSpec, capability=LockCapability.FENCES):
    """fence."""

    async def test_the_next_owner_has_a_greater_number(
        self, subject: DistributedLockProtocol, elapse: Elapse
    ) -> None:
        await subject.acquire("key", "a", LONG)
        first = await subject.fence("key", "a")
        await subject.release("key", "a")
        await subject.acquire("key", "b", LONG)
        second = await subject.fence("key", "b")
        await subject.extend("key", "b", SHORT)
        await elapse(LONGER)
        await subject.acquire("key", "a", LONG)
        third = await subject.fence("key", "a")
        assert first is not None
        assert second is not None
        assert third is not None
        assert first < second < third

    async def test_the_number_stays_as_long_as_the_owner(
        self, subject: DistributedLockProtocol
    ) -> None:
        await subject.acquire("key", "a", LONG)
        fence = await subject.fence("key", "a")
        await subject.acquire("key", "a", LONG)
        await subject.extend("key", "a", LONG)
        assert await subject.fence("key", "a") == fence

    async def test_who_does_not_hold_the_lock_has_no_number(
        self, subject: DistributedLockProtocol
    ) -> None:
        assert await subject.fence("key", "a") is None
        await subject.acquire("key", "a", LONG)
        assert await subject.fence("key", "b") is None
        await subject.release("key", "a")
        assert await subject.fence("key", "a") is None


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


class LockConformance(ExclusionSpec, ExpirySpec, WaitingSpec, FencesSpec, OutageSpec):
    """Run it on locks: ``conformance_suite(LockConformance, MyLocks)``."""

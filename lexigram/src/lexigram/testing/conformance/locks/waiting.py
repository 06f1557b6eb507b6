"""Wait until the lock is free."""

from __future__ import annotations

import anyio

from lexigram.contracts.core.lock import DistributedLockProtocol
from lexigram.testing.conformance.locks.spec import LockCapability, LockSpec

LONG = 60.0


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

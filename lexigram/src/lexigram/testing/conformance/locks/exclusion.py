"""One owner at a time."""

from __future__ import annotations

import anyio
import pytest

from lexigram.contracts.core.lock import DistributedLockProtocol, LockError
from lexigram.testing.conformance.locks.spec import LockCapability, LockSpec

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

"""A number that grows with every change of owner."""

from __future__ import annotations

from lexigram.contracts.core.lock import DistributedLockProtocol
from lexigram.testing.conformance.backed import Elapse
from lexigram.testing.conformance.locks.expiry import LONGER, SHORT
from lexigram.testing.conformance.locks.spec import LockCapability, LockSpec

LONG = 60.0


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

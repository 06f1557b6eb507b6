"""A lock that is not extended is lost."""

from __future__ import annotations

from lexigram.contracts.core.lock import DistributedLockProtocol
from lexigram.testing.conformance.backed import Elapse
from lexigram.testing.conformance.locks.spec import LockCapability, LockSpec

SHORT = 0.2  # seconds, which really pass on most backends
LONGER = 0.3
ENOUGH = 3.0  # for the next calls to come in time, also on a busy machine
LONG = 60.0


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

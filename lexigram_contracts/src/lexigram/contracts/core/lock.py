"""Mutual exclusion between processes by name and owner.

``lexigram.contracts.data.locks`` has locks in a database with more to tell about their holder.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lexigram.contracts.core.errors import InfrastructureError


class LockError(InfrastructureError):
    """A lock could not be taken, kept or given back."""

    code = "LEX_ERR_INFRA_002"


class LockConflictError(LockError, TimeoutError):
    """The lock was not released within the time that the caller was willing to wait."""

    code = "LEX_ERR_INFRA_003"


class LockLostError(LockError):
    """The lock expired or was taken away while it was believed to be held."""

    code = "LEX_ERR_INFRA_101"


@runtime_checkable
class DistributedLockProtocol(Protocol):
    """Locks shared by every process that uses the same backend.

    At most one owner holds a key at a time, as long as the owner extends it before ``ttl``
    seconds are over. Not guaranteed: fairness among waiters, and that a paused owner notices
    its expiry before it acts. Every method raises LockError when the backend cannot be reached.
    """

    async def acquire(self, key: str, owner: str, ttl: float = 30.0) -> bool:
        """Take the lock if it is free or expired; False when another owner has it.

        A second call of the same owner extends the lock and is True: locks do not count.
        """
        ...

    async def acquire_blocking(
        self, key: str, owner: str, ttl: float = 30.0, timeout: float | None = None
    ) -> bool:
        """Wait until ``acquire`` succeeds; False after ``timeout`` seconds (None: no limit)."""
        ...

    async def extend(self, key: str, owner: str, ttl: float = 30.0) -> bool:
        """Start the ``ttl`` anew; False when the owner does not hold the lock (any more)."""
        ...

    async def release(self, key: str, owner: str) -> bool:
        """Give the lock back; False when the owner does not hold it. Never frees another's."""
        ...

    async def is_held(self, key: str, owner: str | None = None) -> bool:
        """True when the owner (or anybody, without one) holds the lock; may already be stale."""
        ...

    async def fence(self, key: str, owner: str) -> int | None:
        """The number of the owner's grant, or None when the owner does not hold the lock.

        It grows with every change of owner, for as long as the backend remembers, and stays
        through ``extend``. Give it to what you write to, which refuses a smaller number than it
        has seen: so a paused owner is shut out for certain.
        """
        ...

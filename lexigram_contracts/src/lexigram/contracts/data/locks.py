"""Fenced locks: who lost the lock can be shut out by its number."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable


class ResourceLockKind(StrEnum):
    """Who holds a lock, for people who wonder."""

    WORKER = "worker"
    CLI = "cli"
    WEB = "web"
    LIFECYCLE = "lifecycle"


@dataclass(frozen=True)
class ResourceLock:
    """A lock as it was granted or read."""

    resource_key: str
    holder_id: str
    # grows with every change of holder of this key, for ever; give it to what you write to
    fence: int
    acquired_at: datetime
    expires_at: datetime
    holder_kind: ResourceLockKind = ResourceLockKind.WORKER
    holder_meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@runtime_checkable
class ResourceLockProtocol(Protocol):
    """Locks in a database, shared by every process that uses it.

    Guaranteed: two holders of one key never have the same fence, fences only grow, and an
    expired holder cannot refresh. Not guaranteed: fairness, and that a paused holder notices
    its expiry before it writes; that is what the fence is for. Methods raise LockError when
    the database fails.
    """

    async def acquire(
        self,
        key: str,
        holder_id: str,
        *,
        kind: ResourceLockKind = ResourceLockKind.WORKER,
        ttl: float = 300.0,
        meta: Mapping[str, Any] | None = None,
    ) -> ResourceLock | None:
        """Take the lock for ``ttl`` seconds if it is free or expired, else None at once.

        A second call of the holder extends it and keeps its fence.
        """
        ...

    async def refresh(self, key: str, holder_id: str, ttl: float = 300.0) -> bool:
        """Start the ttl anew; False when the holder does not have the lock or it expired."""
        ...

    async def release(self, key: str, holder_id: str) -> bool:
        """Give the lock back; False when the holder does not have it."""
        ...

    def hold(
        self,
        key: str,
        *,
        kind: ResourceLockKind = ResourceLockKind.WORKER,
        ttl: float = 300.0,
        max_wait: float | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[ResourceLock]:
        """``async with locks.hold(key) as lock:`` keeps refreshing until the block ends.

        Waits up to ``max_wait`` seconds (None: for ever, 0: not at all), then raises
        LockConflictError, a TimeoutError, naming the holder. A lock lost meanwhile cancels
        the block and raises LockLostError. Not reentrant: a nested hold of the key waits.
        """
        ...

    async def get(self, key: str) -> ResourceLock | None:
        """The lock as it is now, or None when nobody has it (expired ones included)."""
        ...

    async def sweep_expired(self) -> int:
        """Remove rows of expired locks; how many. Fences go on from where they were."""
        ...

    async def force_release(self, key: str, *, reason: str) -> bool:
        """Take the lock from its owner, which is logged; False when it was free."""
        ...

"""``DistributedLockProtocol`` in the memory of a process, and on the locks of the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from math import isfinite

import anyio

from lexigram import clock
from lexigram.contracts.core.lock import LockError
from lexigram.contracts.data.locks import ResourceLock, ResourceLockProtocol
from lexigram.leasing import Backoff

_WAIT = Backoff(first=0.005, cap=0.5)


class MemoryLocks:
    """Locks among the tasks of this process; they end with it."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, float, int]] = {}  # owner, expires, fence
        self._last = 0

    async def acquire(self, key: str, owner: str, ttl: float = 30.0) -> bool:
        """Take the lock if it is free or expired; the owner's own is extended."""
        until = clock.monotonic() + positive(ttl)
        live = self._live(key)
        if live is not None and live[0] != owner:
            return False
        if live is None:
            self._sweep()
            self._last += 1
        self._held[key] = (owner, until, self._last if live is None else live[2])
        return True

    async def acquire_blocking(
        self, key: str, owner: str, ttl: float = 30.0, timeout: float | None = None
    ) -> bool:
        """Wait until ``acquire`` succeeds, at most ``timeout`` seconds."""
        return await blocking(self.acquire, self.release, key, owner, ttl, timeout)

    async def extend(self, key: str, owner: str, ttl: float = 30.0) -> bool:
        """Start the ttl anew."""
        until = clock.monotonic() + positive(ttl)
        live = self._live(key)
        if live is None or live[0] != owner:
            return False
        self._held[key] = (owner, until, live[2])
        return True

    async def release(self, key: str, owner: str) -> bool:
        """Give the lock back."""
        live = self._live(key)
        if live is None or live[0] != owner:
            return False
        del self._held[key]
        return True

    async def is_held(self, key: str, owner: str | None = None) -> bool:
        """Whether the owner, or anybody, holds the lock."""
        live = self._live(key)
        return live is not None and owner in (None, live[0])

    async def fence(self, key: str, owner: str) -> int | None:
        """The number of the owner's grant."""
        live = self._live(key)
        return live[2] if live is not None and live[0] == owner else None

    def _live(self, key: str) -> tuple[str, float, int] | None:
        held = self._held.get(key)
        return held if held is not None and held[1] > clock.monotonic() else None

    def _sweep(self) -> None:
        """Forget expired locks whenever their number may have doubled: no leak, little work."""
        size = len(self._held)
        if size >= 64 and size & (size - 1) == 0:
            now = clock.monotonic()
            self._held = {key: held for key, held in self._held.items() if held[1] > now}


class SqlLocks:
    """The locks of the database by key and owner; ``namespace`` keeps applications apart."""

    def __init__(self, locks: ResourceLockProtocol, *, namespace: str = "default") -> None:
        self._locks = locks
        self._namespace = namespace

    async def acquire(self, key: str, owner: str, ttl: float = 30.0) -> bool:
        """Take the lock if it is free or expired; the owner's own is extended."""
        return await self._locks.acquire(self._key(key), owner, ttl=positive(ttl)) is not None

    async def acquire_blocking(
        self, key: str, owner: str, ttl: float = 30.0, timeout: float | None = None
    ) -> bool:
        """Wait until ``acquire`` succeeds, at most ``timeout`` seconds."""
        return await blocking(self.acquire, self.release, key, owner, ttl, timeout)

    async def extend(self, key: str, owner: str, ttl: float = 30.0) -> bool:
        """Start the ttl anew."""
        return await self._locks.refresh(self._key(key), owner, positive(ttl))

    async def release(self, key: str, owner: str) -> bool:
        """Give the lock back."""
        return await self._locks.release(self._key(key), owner)

    async def is_held(self, key: str, owner: str | None = None) -> bool:
        """Whether the owner, or anybody, holds the lock."""
        lock = await self._locks.get(self._key(key))
        return lock is not None and owner in (None, lock.holder_id)

    async def fence(self, key: str, owner: str) -> int | None:
        """The number of the owner's grant."""
        lock: ResourceLock | None = await self._locks.get(self._key(key))
        return lock.fence if lock is not None and lock.holder_id == owner else None

    def _key(self, key: str) -> str:
        # Readable where it fits, for people who inspect the table.
        name = f"{self._namespace}:{key}"
        return name if len(name) <= 255 else sha256(name.encode()).hexdigest()


async def blocking(
    acquire: Callable[[str, str, float], Awaitable[bool]],
    release: Callable[[str, str], Awaitable[bool]],
    key: str,
    owner: str,
    ttl: float,
    timeout: float | None,
) -> bool:
    """Try until it is granted, ever less often, or ``timeout`` seconds have passed."""
    if await acquire(key, owner, ttl):
        return True
    attempt, granted, is_asking = 0, False, False
    try:
        with anyio.move_on_after(timeout):
            while not granted:
                attempt += 1
                await anyio.sleep(_WAIT.delay(attempt))
                is_asking = True
                granted = await acquire(key, owner, ttl)
                is_asking = False
    finally:
        if is_asking:
            # Cancelled while it asked: the lock may have been granted, and nobody knows.
            with anyio.move_on_after(ttl, shield=True):
                await release(key, owner)
    return granted


def positive(ttl: float) -> float:
    """The ttl; LockError when nothing can be held so long."""
    if isfinite(ttl) and ttl > 0:
        return ttl
    raise LockError(f"a lock cannot be held for {ttl:g} s", hint="give a ttl above 0")

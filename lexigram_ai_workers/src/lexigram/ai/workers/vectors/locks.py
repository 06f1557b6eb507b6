"""Write locks: a file lock for local folders, the SQL lock for shared storage."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, cast

import anyio
from anyio.to_thread import run_sync

from lexigram.ai.workers.vectors.errors import VectorWriterBusyError
from lexigram.contracts.core.lock import LockConflictError
from lexigram.contracts.data.locks import ResourceLockKind, ResourceLockProtocol
from lexigram.leasing import Backoff

LOCK_SUFFIX: Final = ".lock"
_RAG_TTL = 300.0  # seconds; the lease is renewed while the lock is held


class WriterLock(Protocol):
    """An exclusive lock for writers."""

    def hold(self, max_wait: float | None) -> AbstractAsyncContextManager[None]:
        """Hold the lock; VectorWriterBusyError with the holder after ``max_wait`` seconds."""
        ...


def rag_key(db_path: str | Path) -> str:
    """Return the resource key of a database, as used by ``store`` steps."""
    text = str(db_path)
    # As in durable runs: absolute, with links unresolved.
    return f"rag:{text if '://' in text else os.path.abspath(text)}"  # noqa: PTH100


@asynccontextmanager
async def hold_rag_lock(
    db_path: str | Path,
    holder_kind: ResourceLockKind = ResourceLockKind.CLI,
    max_wait: float | None = None,
    *,
    locks: ResourceLockProtocol | None = None,
) -> AsyncGenerator[None]:
    """Exclude ``store`` steps and vacuums of other processes from a database.

    With ``locks`` it holds the SQL lock of durable runs and renews it during the block; without,
    a file lock beside the database, for processes without SQL. Waits up to ``max_wait`` seconds
    (None: no limit, 0: no wait), then raises VectorWriterBusyError, a TimeoutError with the
    holder. If the lock is lost, the block is cancelled and LockLostError raised.
    """
    lock: WriterLock = (
        FileLock(Path(f"{db_path}.rag{LOCK_SUFFIX}"), str(db_path))
        if locks is None
        else SqlLock(locks, await run_sync(rag_key, db_path), kind=holder_kind, ttl=_RAG_TTL)
    )
    async with lock.hold(max_wait):
        yield


class FileLock:
    """``flock`` on a file; the kernel releases it when the process exits, not when it is suspended.

    It also excludes other FileLocks of the same process, as each opens the file separately.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what

    @asynccontextmanager
    async def hold(self, max_wait: float | None) -> AsyncGenerator[None]:
        """Hold the lock; polls, because a thread in flock() could not be cancelled."""
        descriptor = await run_sync(self._open)
        try:
            await self._acquire(descriptor, max_wait)
            yield
        finally:
            os.close(descriptor)  # closing releases the lock

    async def _acquire(self, descriptor: int, max_wait: float | None) -> None:
        if await run_sync(_try_lock, descriptor):
            return
        if max_wait != 0:
            backoff, attempt = Backoff(first=0.002, cap=0.05), 0
            with anyio.move_on_after(max_wait):
                while True:
                    attempt += 1
                    await anyio.sleep(backoff.delay(attempt))
                    if await run_sync(_try_lock, descriptor):
                        return
        holder = await run_sync(_read_holder, descriptor)
        raise _busy_error(self._what, holder, max_wait)

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


class SqlLock:
    """A lock of ``ResourceLockProtocol``, for storage shared by several machines."""

    def __init__(
        self,
        locks: ResourceLockProtocol,
        key: str,
        *,
        kind: ResourceLockKind = ResourceLockKind.WORKER,
        ttl: float,
    ) -> None:
        self._locks = locks
        self._key = key
        self._kind = kind
        self._ttl = ttl

    @asynccontextmanager
    async def hold(self, max_wait: float | None) -> AsyncGenerator[None]:
        """Hold and renew the lock; LockLostError if it was lost."""
        waiting = self._locks.hold(
            self._key, kind=self._kind, ttl=self._ttl, max_wait=max_wait, meta=_describe_holder()
        )
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(waiting)
            except LockConflictError as error:
                raise VectorWriterBusyError(
                    error.message, details=error.details, hint=_BUSY_HINT
                ) from error
            yield


_BUSY_HINT = "wait longer, or check whether that process hangs"


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # For error messages of other processes; only the holder writes it, a reader may see an old one.
    note = json.dumps(_describe_holder()).encode()
    os.pwrite(descriptor, note, 0)
    os.ftruncate(descriptor, len(note))
    return True


def _read_holder(descriptor: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(descriptor, 1000, 0))
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _describe_holder() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname()}


def _busy_error(what: str, holder: dict[str, Any], max_wait: float | None) -> VectorWriterBusyError:
    who = f"process {holder.get('pid')} on {holder.get('host')}" if holder else "another process"
    time = f" for {max_wait:g} s" if max_wait else ""
    return VectorWriterBusyError(
        f"{what} is locked by {who}{time}", details={"what": what, **holder}, hint=_BUSY_HINT
    )

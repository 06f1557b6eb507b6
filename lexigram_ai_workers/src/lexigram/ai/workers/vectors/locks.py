"""One writer at a time: by a file lock on a local folder, by the SQL lock on shared storage."""

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
from lexigram.sql.leasing import Backoff

LOCK_SUFFIX: Final = ".lock"
_RAG_TTL = 300.0  # seconds; refreshed while it is held, so this is for holders that died


class WriterLock(Protocol):
    """Keeps other writers of one thing away."""

    def held(self, max_wait: float | None) -> AbstractAsyncContextManager[None]:
        """Hold it; VectorWriterBusyError, naming the holder, after ``max_wait`` seconds."""
        ...


def rag_key(db_path: str | Path) -> str:
    """The resource key of a database: what ``store`` steps are stamped with."""
    text = str(db_path)
    # As durable runs stamp it: made absolute without following links.
    return f"rag:{text if '://' in text else os.path.abspath(text)}"  # noqa: PTH100


@asynccontextmanager
async def hold_rag_lock(
    db_path: str | Path,
    holder_kind: ResourceLockKind = ResourceLockKind.CLI,
    max_wait: float | None = None,
    *,
    locks: ResourceLockProtocol | None = None,
) -> AsyncGenerator[None]:
    """Keep ``store`` steps and vacuums of other processes away from a database.

    With ``locks`` it is the row that durable runs go by, refreshed through the block; without,
    a file lock beside the database, for processes that use no SQL. Waits up to ``max_wait``
    seconds (None: for ever, 0: not at all), then raises VectorWriterBusyError, a TimeoutError
    that names the holder. A block that lost the lock is cancelled and LockLostError raised.
    """
    lock: WriterLock = (
        FileLock(Path(f"{db_path}.rag{LOCK_SUFFIX}"), str(db_path))
        if locks is None
        else SqlLock(locks, await run_sync(rag_key, db_path), kind=holder_kind, ttl=_RAG_TTL)
    )
    async with lock.held(max_wait):
        yield


class FileLock:
    """``flock`` on a file. The kernel frees it when the process dies; a stopped one keeps it.

    Two of them exclude each other inside one process too: each opens the file by itself.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what

    @asynccontextmanager
    async def held(self, max_wait: float | None) -> AsyncGenerator[None]:
        """Hold it; polls, because a thread that waits in flock() could not be cancelled."""
        descriptor = await run_sync(self._open)
        try:
            await self._acquired(descriptor, max_wait)
            yield
        finally:
            os.close(descriptor)  # which also unlocks

    async def _acquired(self, descriptor: int, max_wait: float | None) -> None:
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
        raise _busy(self._what, holder, max_wait)

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


class SqlLock:
    """A row of ``ResourceLockProtocol``: for storage that several machines write to."""

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
    async def held(self, max_wait: float | None) -> AsyncGenerator[None]:
        """Hold it, refreshed; LockLostError when it was lost meanwhile."""
        waiting = self._locks.hold(
            self._key, kind=self._kind, ttl=self._ttl, max_wait=max_wait, meta=_holder()
        )
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(waiting)
            except LockConflictError as error:
                raise VectorWriterBusyError(
                    error.message, details=error.details, hint=_HINT
                ) from error
            yield


_HINT = "wait longer, or look why that process does not go on"


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # For whoever waits in vain. Only the holder writes; a reader may see an older one's note.
    note = json.dumps(_holder()).encode()
    os.pwrite(descriptor, note, 0)
    os.ftruncate(descriptor, len(note))
    return True


def _read_holder(descriptor: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(descriptor, 1000, 0))
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _holder() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname()}


def _busy(what: str, holder: dict[str, Any], max_wait: float | None) -> VectorWriterBusyError:
    who = f"process {holder.get('pid')} on {holder.get('host')}" if holder else "another process"
    time = f" for {max_wait:g} s" if max_wait else ""
    return VectorWriterBusyError(
        f"{what} is being written by {who}{time}", details={"what": what, **holder}, hint=_HINT
    )

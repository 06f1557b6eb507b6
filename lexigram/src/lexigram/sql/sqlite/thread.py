"""One thread with one connection; work is handed to it and comes back to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

import anyio

from lexigram.sql.sqlite.handle import Handle

T = TypeVar("T")


class Job(Generic[T]):
    """One hop: made in the event loop, done in the thread, its outcome awaited in the loop."""

    __slots__ = ("_claim", "_delivered", "_future", "_loop", "_settled", "_work", "cancelled")

    def __init__(self, work: Callable[[Handle, Job[T]], T]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self._loop.create_future()
        self._settled: asyncio.Future[None] | None = None
        self._delivered = False
        # Popped by the first of two: the thread that starts, or the task that gives up.
        self._claim = [None]
        # Read by the thread: between statements, and by SQLite's progress handler within one.
        self.cancelled = False

    def claim(self) -> bool:
        """True for the first caller only, in whatever thread."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True

    async def outcome(self) -> T:
        """What the work returned or raised. A cancelled task stops the work and waits for that."""
        try:
            return await self._future
        except asyncio.CancelledError:
            if not self.claim() and not self._delivered:
                self.cancelled = True
                self._settled = self._loop.create_future()
                with anyio.CancelScope(shield=True):
                    await self._settled
            raise

    def perform(self, handle: Handle) -> None:
        """Do the work in the calling thread, unless its task has given up."""
        if not self.claim():
            return
        handle.job = self
        try:
            result = self._work(handle, self)
        except BaseException as error:  # noqa: BLE001 - the boundary: it is raised in the task
            self._settle(None, error)
        else:
            self._settle(result, None)
        finally:
            handle.job = None

    def fail(self, error: BaseException) -> None:
        """Answer without doing the work."""
        if self.claim():
            self._settle(None, error)

    def _settle(self, result: T | None, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, result, error)
        except RuntimeError:
            return  # the event loop is closed: nothing waits for the result

    def _deliver(self, result: T | None, error: BaseException | None) -> None:
        self._delivered = True
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
        if self._future.done():
            return
        if error is None:
            self._future.set_result(cast("T", result))
        elif isinstance(error, StopIteration):  # a Future refuses it, and the task would hang
            self._future.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            self._future.set_exception(error)


class Worker:
    """The thread. Its connection is opened by its first job and closed by its last."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._handle = Handle()

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    async def call(self, work: Callable[[Handle, Job[T]], T]) -> T:
        """Do the work after what was handed in before it."""
        job = Job(work)
        self._jobs.put(job)
        return await job.outcome()

    def enqueue(self, job: Job[Any]) -> None:
        """Hand in work whose outcome nobody awaits."""
        self._jobs.put(job)

    async def close(self) -> None:
        """Close the connection after the work handed in so far, and end the thread."""
        await self.call(lambda handle, _: handle.close())
        self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.perform(self._handle)

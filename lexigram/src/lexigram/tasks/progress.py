"""Progress of tasks, for any number of watchers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio
from attrs import define

from lexigram import clock
from lexigram.contracts.infra.tasks.errors import JobRefusedError
from lexigram.contracts.infra.tasks.protocols import NewsProtocol
from lexigram.contracts.infra.tasks.types import JobStatus, ProgressSnapshot, ProgressStatus
from lexigram.leasing.subscriptions import Subscriptions, Waiter
from lexigram.sql.text import storable_text
from lexigram.tasks.intake import check_keys
from lexigram.tasks.queue import TaskQueue

_MOST = 2**63 - 1


class ProgressStore(Protocol):
    """Keeps the latest report of each task and wakes its readers."""

    async def report(self, snapshot: ProgressSnapshot) -> None: ...

    async def end(self, snapshot: ProgressSnapshot) -> None: ...

    async def get(self, task_id: str) -> ProgressSnapshot | None: ...

    async def purge(self, older_than: float) -> int: ...

    def listening(self, task_id: str) -> AbstractAsyncContextManager[NewsProtocol]: ...


class ProgressTracker:
    """Implements ProgressTrackerProtocol on a store.

    With a queue it also knows its jobs: their progress ends when they end, whether or not they
    reported any, and even when their worker died between the two.
    """

    def __init__(self, store: ProgressStore, queue: TaskQueue | None = None) -> None:
        self._store = store
        self._queue = queue

    async def update(self, task_id: str, current: int, total: int, message: str = "") -> None:
        """Report; it never goes back."""
        check_keys(task_id=task_id)
        for name, value in (("current", current), ("total", total)):
            if type(value) is not int or not 0 <= value <= _MOST:
                raise JobRefusedError(
                    f"{name} of progress is a whole number from 0 on, not {value!r}"
                )
        await self._store.report(
            ProgressSnapshot(
                task_id, current, total, ProgressStatus.RUNNING, storable_text(message)
            )
        )

    async def complete(self, task_id: str, result: str = "") -> None:
        """End well."""
        check_keys(task_id=task_id)
        await self._store.end(
            ProgressSnapshot(task_id, 0, 0, ProgressStatus.COMPLETE, message=storable_text(result))
        )

    async def fail(self, task_id: str, error: str) -> None:
        """End badly."""
        check_keys(task_id=task_id)
        await self._store.end(
            ProgressSnapshot(task_id, 0, 0, ProgressStatus.FAILED, error=storable_text(error))
        )

    async def get(self, task_id: str) -> ProgressSnapshot | None:
        """The latest report."""
        check_keys(task_id=task_id)
        reported = await self._store.get(task_id)
        if self._queue is None or (reported is not None and reported.is_final):
            return reported
        result = await self._queue.get_result(task_id)
        if result is None:
            return reported
        status, error = _PROGRESS[result.status], result.error or result.reason
        if reported is None:
            reported = ProgressSnapshot(task_id, 0, 0, status)
        failed = status is ProgressStatus.FAILED
        return ProgressSnapshot(
            task_id,
            reported.current,
            reported.total,
            status if result.status.is_final else reported.status,
            reported.message,
            (error or result.status.value) if failed else "",
        )

    async def subscribe(self, task_id: str) -> AsyncIterator[ProgressSnapshot]:
        """The latest report, then each new one, until the end."""
        async with self._store.listening(task_id) as news, self._ends() as ends:
            last: ProgressSnapshot | None = None
            while True:
                snapshot = await self.get(task_id)
                if snapshot is not None and snapshot != last:
                    last = snapshot
                    yield snapshot
                    if snapshot.is_final:
                        return
                await _either(news, ends)

    async def purge(self, older_than: float) -> int:
        """Forget tasks that reported nothing for so many seconds; how many."""
        return await self._store.purge(older_than)

    @asynccontextmanager
    async def _ends(self) -> AsyncIterator[NewsProtocol | None]:
        if self._queue is None:
            yield None
            return
        async with self._queue.listening("done") as news:
            yield news


@define
class _Kept:
    snapshot: ProgressSnapshot
    updated_at: float


class MemoryProgress:
    """In this process."""

    def __init__(self, *, poll: float = 1.0) -> None:
        self._poll = poll
        self._kept: dict[str, _Kept] = {}
        self._news = Subscriptions()

    async def report(self, snapshot: ProgressSnapshot) -> None:
        known = self._kept.get(snapshot.task_id)
        if known is None or not (
            known.snapshot.is_final or snapshot.current < known.snapshot.current
        ):
            self._keep(snapshot)

    async def end(self, snapshot: ProgressSnapshot) -> None:
        known = self._kept.get(snapshot.task_id)
        if known is None:
            self._keep(snapshot)
        elif not known.snapshot.is_final:
            self._keep(
                ProgressSnapshot(
                    snapshot.task_id,
                    known.snapshot.current,
                    known.snapshot.total,
                    snapshot.status,
                    snapshot.message,
                    snapshot.error,
                )
            )

    async def get(self, task_id: str) -> ProgressSnapshot | None:
        known = self._kept.get(task_id)
        return None if known is None else known.snapshot

    async def purge(self, older_than: float) -> int:
        limit = clock.timestamp() - older_than
        old = [name for name, kept in self._kept.items() if kept.updated_at <= limit]
        for name in old:
            del self._kept[name]
        return len(old)

    @asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[NewsProtocol]:
        with self._news.open(task_id) as subscription:
            yield Waiter(subscription, self._poll)

    def _keep(self, snapshot: ProgressSnapshot) -> None:
        self._kept[snapshot.task_id] = _Kept(snapshot, clock.timestamp())
        self._news.tell(snapshot.task_id, "")


_PROGRESS = {
    JobStatus.PENDING: ProgressStatus.PENDING,
    JobStatus.RETRYING: ProgressStatus.PENDING,
    JobStatus.RUNNING: ProgressStatus.RUNNING,
    JobStatus.COMPLETED: ProgressStatus.COMPLETE,
    JobStatus.FAILED: ProgressStatus.FAILED,
    JobStatus.CANCELLED: ProgressStatus.FAILED,
}


async def _either(news: NewsProtocol, ends: NewsProtocol | None) -> None:
    """Wait for the first of the two."""
    if ends is None:
        await news.wait()
        return
    async with anyio.create_task_group() as tasks:

        async def wait_for(one: Callable[[], Awaitable[bool]]) -> None:
            await one()
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait_for, news.wait)
        tasks.start_soon(wait_for, ends.wait)

"""Follow groups of runs to their end, with a worker in this process if wanted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import orjson

from lexigram.contracts.workflow.durable import RunFailure, RunGroupStats, RunStatus
from lexigram.contracts.workflow.limits import check_id, check_page
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import DurableError
from lexigram.workflow.durable.store.records import Row
from lexigram.workflow.durable.worker.worker import Worker

_FINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
_WATCH_FIRST = 0.05  # poll interval of a group in seconds; longer while nothing changes
_WATCH_SLOWEST = 1.0

MakeWorker = Callable[[Mapping[str, int] | None], Worker]


class Following:
    """Groups of any runs: of documents, pipelines, graphs and sagas."""

    def __init__(
        self, engine: DurableEngine, *, make_worker: MakeWorker, stop_timeout: float = 30.0
    ) -> None:
        self._engine = engine
        self._make_worker = make_worker
        self._stop_timeout = stop_timeout
        # those of working() blocks that last
        self._working: list[Worker] = []

    async def watch(self, group_id: int) -> AsyncIterator[RunGroupStats]:
        """The statistics now and after each change, until the group is final.

        In a ``working()`` block it also waits until the handlers of the group's events are done:
        the worker that calls them stops with the block. Raises DurableError when a worker of
        ``working()`` failed: the group might never end.
        """
        last: RunGroupStats | None = None
        pause = _WATCH_FIRST
        while True:
            stats = await self._engine.stats(group_id)
            if stats != last:
                last, pause = stats, _WATCH_FIRST
                yield stats
            if stats.group_status in _FINAL and not (
                self._working and await self._engine.store.has_unhandled_events(group_id)
            ):
                return
            for worker in self._working:
                if worker.failure is not None:
                    raise DurableError("the worker of this process failed") from worker.failure
            await anyio.sleep(pause)
            pause = min(pause * 1.5, _WATCH_SLOWEST)

    async def failures(self, group_id: int, *, limit: int = 1000) -> Sequence[RunFailure]:
        """The runs of the group that failed, with their reasons; oldest first."""
        check_id("group_id", group_id)
        check_page(limit, 0)
        return [_failure(row) for row in await self._engine.store.failures(group_id, limit)]

    @asynccontextmanager
    async def working(self, consumers: Mapping[str, int] | None = None) -> AsyncGenerator[None]:
        """A worker in this process while the block lasts; None: the configured pools."""
        worker = self._make_worker(consumers)
        await worker.start()
        self._working.append(worker)
        try:
            yield
        finally:
            self._working.remove(worker)
            with anyio.CancelScope(shield=True):
                await worker.stop(self._stop_timeout)


def _failure(row: Row) -> RunFailure:
    meta = orjson.loads(row["meta"] or "{}")
    message = row["message"] or row["run_message"] or ""
    return RunFailure(
        run_id=row["run_id"],
        uri=orjson.loads(row["params"]).get("uri"),
        step=row["step"],
        # A run whose workers were lost has no error of its own.
        error_type=str(meta.get("error", "WorkerLost")),
        message=str(meta.get("text", row["run_message"] or message)),
    )

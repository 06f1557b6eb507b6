"""Follow groups of runs to their end, and work on them in this process meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import orjson

from lexigram.contracts.workflow.durable import RunFailure, RunGroupStats, RunStatus
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import DurableError
from lexigram.workflow.durable.store import Row
from lexigram.workflow.durable.store_base import translated
from lexigram.workflow.durable.worker import Worker

_FINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
_WATCH_FIRST = 0.05  # seconds between two looks at a group; more while nothing changes
_WATCH_SLOWEST = 1.0

# Index (group_id, status); the last attempt by the primary key of the history.
FAILURES = """
SELECT r.id AS run_id, r.params, r.message AS run_message, s.name AS step, h.message, h.meta
FROM lexigram_durable_runs r
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = (
    SELECT max(x.fence) FROM lexigram_durable_history x
    WHERE x.run_id = r.id AND x.step_no = r.step_no)
WHERE r.group_id = ? AND r.status = 'failed' AND r.parent_id IS NULL ORDER BY r.id LIMIT ?"""
# The partial index of events that handlers of plans wait for.
UNTOLD = """
SELECT 1 FROM lexigram_durable_events
WHERE delivered_at IS NULL AND audience = 'handler' AND group_id = ? LIMIT 1"""

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
        """The figures now and whenever they change, until the group is final.

        In a ``working()`` block it also waits until the handlers of the group's events are done:
        with the block the worker goes that would call them. Raises DurableError when a worker
        of ``working()`` has died: nobody might go on.
        """
        last: RunGroupStats | None = None
        pause = _WATCH_FIRST
        while True:
            stats = await self._engine.stats(group_id)
            if stats != last:
                last, pause = stats, _WATCH_FIRST
                yield stats
            if stats.group_status in _FINAL and not (
                self._working and await self._rows(UNTOLD, group_id)
            ):
                return
            for worker in self._working:
                if worker.failure is not None:
                    raise DurableError("the worker of this process died") from worker.failure
            await anyio.sleep(pause)
            pause = min(pause * 1.5, _WATCH_SLOWEST)

    async def failures(self, group_id: int, *, limit: int = 1000) -> Sequence[RunFailure]:
        """The runs of the group that failed, with their reasons; oldest first."""
        return [_failure(row) for row in await self._rows(FAILURES, group_id, limit)]

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

    async def _rows(self, statement: str, *params: int) -> Sequence[Row]:
        result = await translated(lambda: self._engine.database.execute_query(statement, params))
        return result.rows


def _failure(row: Row) -> RunFailure:
    meta = orjson.loads(row["meta"] or "{}")
    message = row["message"] or row["run_message"] or ""
    return RunFailure(
        run_id=row["run_id"],
        uri=orjson.loads(row["params"]).get("uri"),
        step=row["step"],
        # A run whose workers died has no error of its own.
        error_type=str(meta.get("error", "WorkerLost")),
        message=str(meta.get("text", row["run_message"] or message)),
    )

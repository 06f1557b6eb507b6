"""The maintenance worker: runs registered tasks on schedules and on demand."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
from attrs import evolve

from lexigram import clock
from lexigram.ai.workers.constants import (
    DEFAULT_CHECK_INTERVAL,
    DEFAULT_TASK_TIMEOUT,
    MAX_HISTORY_SIZE,
)
from lexigram.ai.workers.errors import MaintenanceError, UnknownMaintenanceTaskError
from lexigram.ai.workers.maintenance import tasks as built_in
from lexigram.ai.workers.maintenance.aged_cache import AgedCache
from lexigram.ai.workers.maintenance.store import (
    MemoryRuns,
    MemoryStatistics,
    RunStore,
    StatisticsStore,
)
from lexigram.ai.workers.maintenance.tasks import Check, Counters, IsMissing, Levels
from lexigram.ai.workers.maintenance.times import check_times
from lexigram.ai.workers.telemetry import Telemetry
from lexigram.ai.workers.types import (
    MaintenanceResult,
    MaintenanceStatus,
    MaintenanceTask,
    MaintenanceTaskType,
)
from lexigram.concurrency import BackgroundTask, CallTimeoutError, call, call_in_thread
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.hooks import HookRegistry
from lexigram.observability import get_logger

if TYPE_CHECKING:
    from lexigram.ai.workers.maintenance.schedules import TaskSchedules
    from lexigram.contracts.infra.schedule.types import Firing

logger = get_logger(__name__)

_DAY = 24 * 3600.0


class MaintenanceWorker:
    """Runs tasks with a cron expression or an interval, a timeout and a history.

    ``schedules`` are those of the application; without them the worker uses schedules in memory.
    With durable schedules a tick runs in one process only, and a disabled task stays disabled
    after a restart. A tick of a task that is still running in the process is recorded as skipped.
    """

    def __init__(
        self,
        vector_store: VectorStoreProtocol | None = None,
        worker_id: str = "maintenance",
        check_interval: float = DEFAULT_CHECK_INTERVAL,
        *,
        schedules: TaskSchedules | None = None,
        runs: RunStore | None = None,
        statistics: StatisticsStore | None = None,
        cache: AgedCache | None = None,
        counters: Mapping[str, Counters] | None = None,
        levels: Mapping[str, Levels] | None = None,
        checks: Mapping[str, Check] | None = None,
        is_missing: IsMissing = built_in.is_file_missing,
        keep_statistics: float = 90 * _DAY,
        hooks: HookRegistry | None = None,
        tracer: TracerProtocol | None = None,
        metrics: MetricsProtocol | None = None,
    ) -> None:
        self.vector_store = vector_store
        self.worker_id = worker_id
        # poll interval for changes by other processes, in seconds
        self.check_interval = check_interval
        self._given_schedules = schedules
        self._schedules: TaskSchedules | None = None
        self._runs = MemoryRuns() if runs is None else runs
        self._statistics = MemoryStatistics() if statistics is None else statistics
        self._cache = cache
        self._counters = dict(counters or {})
        self._levels = dict(levels or {})
        self._checks = dict(checks or {})
        self._is_missing = is_missing
        self._keep_statistics = keep_statistics
        self._telemetry = Telemetry(hooks, tracer, metrics)
        self._tasks: dict[str, MaintenanceTask] = {}
        # requested states that are not yet written to the schedules
        self._requested_states: dict[str, bool] = {}
        self._dropped: set[str] = set()
        self._changed = anyio.Event()
        self._task_locks: dict[str, anyio.Lock] = {}
        self._running = 0
        self._idle = anyio.Event()
        self._history: deque[MaintenanceResult] = deque(maxlen=MAX_HISTORY_SIZE)
        self._totals = {"total": 0, "successful": 0, "failed": 0}
        self._last_counters: dict[str, float] = {}
        self._task = BackgroundTask(f"worker.{worker_id}.loop", self._run)

    # --- lifecycle -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the schedules; returns when they are written."""
        await self._task.start()

    async def stop(self) -> None:
        """Stop the schedules and wait for running tasks."""
        await self._task.stop()

    async def wait(self) -> None:
        """Wait until the worker ends; raise the error that ended it."""
        await self._task.wait()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY while running; DEGRADED while the last run of an enabled task failed."""
        running = self._task.is_running
        failing = [
            task.name
            for task in self._tasks.values()
            if task.enabled and task.last_status is MaintenanceStatus.FAILED
        ]
        status = HealthStatus.HEALTHY if running else HealthStatus.UNHEALTHY
        if running and failing:
            status = HealthStatus.DEGRADED
        message = f"the last run failed of {', '.join(failing)}" if failing else "running"
        return HealthCheckResult(
            component=f"worker.maintenance.{self.worker_id}",
            status=status,
            message=message if running else "not running",
            error=message if running and failing else None,
            details=self.get_stats(),
        )

    # --- tasks ----------------------------------------------------------------------------------

    def register_task(
        self,
        name: str,
        task_type: MaintenanceTaskType,
        handler: Callable[[], Any],
        schedule_cron: str | None = None,
        interval_seconds: float | None = None,
        enabled: bool = True,
        timeout: float = DEFAULT_TASK_TIMEOUT,
    ) -> None:
        """Run ``handler()`` by cron (UTC) or interval; replaces a task of the same name.

        A coroutine function is awaited; any other function is called in a thread, and an
        awaitable result is awaited. The result may be a number (items_processed) or a mapping
        with items_processed, items_deleted and metadata. Raises for invalid times.
        """
        if (schedule_cron is None) == (interval_seconds is None):
            raise ValueError(f"task {name!r} requires either schedule_cron or interval_seconds")
        if not timeout > 0:
            raise ValueError(
                f"task {name!r} has a timeout of {timeout!r} s; it must be greater than 0"
            )
        task = MaintenanceTask(
            name=name,
            task_type=MaintenanceTaskType(task_type),
            handler=handler,
            schedule_cron=schedule_cron,
            interval_seconds=interval_seconds,
            enabled=enabled,
            timeout=timeout,
        )
        check_times(task)
        self._tasks[name] = task
        self._dropped.discard(name)
        self._changed.set()

    def unregister_task(self, name: str) -> bool:
        """Remove a task and its schedule; False if unknown. A current run continues."""
        if self._tasks.pop(name, None) is None:
            return False
        self._requested_states.pop(name, None)
        self._dropped.add(name)
        self._changed.set()
        return True

    def enable_task(self, name: str) -> bool:
        """Enable the schedule of a task; False if unknown."""
        return self._request_state(name, True)

    def disable_task(self, name: str) -> bool:
        """Disable the schedule of a task; False if unknown. ``run_task_now`` still works."""
        return self._request_state(name, False)

    async def sync(self) -> bool:
        """Write registered, enabled and disabled tasks to the schedules now.

        False without schedules: the application has none, and the worker is not started.
        """
        schedules = self._schedules or self._given_schedules
        if schedules is None:
            return False
        await self._sync_schedules(schedules)
        return True

    async def run_task_now(self, name: str) -> MaintenanceResult:
        """Run a task now in this process; waits for a current run first."""
        task = self._get_task(name)
        async with self._task_locks.setdefault(name, anyio.Lock()):
            return await self._run_task(task)

    # --- statistics --------------------------------------------------------------------------

    def get_stats(self) -> dict[str, Any]:
        """Return the statistics of this process."""
        return {
            "worker_id": self.worker_id,
            "running": self._task.is_running,
            "registered_tasks": len(self._tasks),
            "total_runs": self._totals["total"],
            "successful_runs": self._totals["successful"],
            "failed_runs": self._totals["failed"],
            "history_size": len(self._history),
        }

    def get_task_status(self, name: str) -> dict[str, Any] | None:
        """Return a task as data, or None."""
        task = self._tasks.get(name)
        return None if task is None else task.to_dict()

    def get_all_tasks(self) -> list[dict[str, Any]]:
        """Return all tasks as data, in the order of registration."""
        return [task.to_dict() for task in self._tasks.values()]

    def get_recent_results(self, limit: int = 10) -> list[dict[str, Any]]:
        """Return the runs of this process, latest first; ``history`` has those of all processes."""
        latest = list(self._history)[-limit:] if limit > 0 else []
        return [result.to_dict() for result in reversed(latest)]

    async def history(
        self, name: str | None = None, limit: int = 10
    ) -> Sequence[MaintenanceResult]:
        """Return the stored runs of all processes, latest first."""
        return await self._runs.recent(name, limit)

    async def statistics(self, since: datetime) -> Sequence[Mapping[str, Any]]:
        """Return the hourly statistics from a time on: period, name, value."""
        return await self._statistics.since(int(since.timestamp()))

    async def refresh(self) -> None:
        """Update the tasks with their schedules and last runs, also of other processes."""
        schedules = self._schedules or self._given_schedules
        for name in list(self._tasks):
            if schedules is not None and name not in self._requested_states:
                enabled = await schedules.is_enabled(name)
                if enabled is not None:
                    self._update_task(name, enabled=enabled)
            known = await self._runs.summary(name)
            if known.last is not None:
                self._update_task(
                    name,
                    last_run=known.last.started_at,
                    last_status=known.last.status,
                    last_error=known.last.error,
                    run_count=known.count,
                )

    # --- built-in tasks -------------------------------------------------------------------------

    async def optimize_vector_indexes(self) -> dict[str, Any]:
        """Update the indexes of the store, compact it, remove old versions."""
        return await built_in.optimize_indexes(self._store())

    async def cleanup_old_embeddings_cache(self, max_age_days: float = 30) -> dict[str, Any]:
        """Delete cached vectors that were not used for so long."""
        if self._cache is None:
            return {"items_processed": 0, "metadata": {"note": "the worker has no embedding cache"}}
        return await built_in.clean_cache(self._cache, max_age_days * _DAY)

    async def cleanup_documents(self, dry_run: bool = True) -> dict[str, Any]:
        """Find documents whose file does not exist; with ``dry_run=False`` remove their vectors."""
        return await built_in.clean_documents(self._store(), self._is_missing, delete=not dry_run)

    async def aggregate_metrics(self) -> dict[str, Any]:
        """Add the counters of this process to the statistics of the hour."""
        counters = {
            f"{source}.{name}": float(value)
            for source, read in self._counters.items()
            for name, value in read().items()
        }
        levels = {
            f"{source}.{name}": float(value)
            for source, read_level in self._levels.items()
            for name, value in (await read_level()).items()
        }
        done = await built_in.store_statistics(
            counters, self._last_counters, levels, self._statistics, self._keep_statistics
        )
        self._last_counters = counters
        return done

    async def check_health(self) -> dict[str, Any]:
        """Check the health of store, queue, cache and model; raises for unhealthy ones."""
        return await built_in.check_health(self._checks)

    # --- running --------------------------------------------------------------------------------

    async def _run(self, background: BackgroundTask) -> None:
        async with AsyncExitStack() as stack:
            schedules = self._given_schedules
            if schedules is None:
                from lexigram.ai.workers.maintenance.schedules import TaskSchedules

                schedules = await stack.enter_async_context(TaskSchedules.in_memory())
            self._schedules = schedules
            stack.callback(self._clear_schedules)
            await self._sync_schedules(schedules)
            background.set_ready()
            while not background.stopping.is_set():
                await self._wait_for_change(background.stopping)
                if not background.stopping.is_set():
                    await self._sync_schedules(schedules)
            schedules.remove_callbacks(self._tasks)
            while self._running:
                await self._idle.wait()

    def _clear_schedules(self) -> None:
        self._schedules = None

    async def _wait_for_change(self, stopping: asyncio.Event) -> None:
        with anyio.move_on_after(self.check_interval):
            async with anyio.create_task_group() as tasks:

                async def until(event: asyncio.Event | anyio.Event) -> None:
                    await event.wait()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(until, stopping)
                tasks.start_soon(until, self._changed)

    async def _sync_schedules(self, schedules: TaskSchedules) -> None:
        self._changed = anyio.Event()
        dropped, self._dropped = self._dropped, set()
        for name in dropped:
            await schedules.delete(name)
        for name, task in list(self._tasks.items()):
            requested = self._requested_states.pop(name, None)
            await schedules.sync_task(task, requested, partial(self._tick, name))
        await self.refresh()

    async def _tick(self, name: str, _: Firing) -> None:
        """Run a task when its schedule fires; an error makes the firing FAILED."""
        task = self._tasks.get(name)
        if task is None:
            return
        lock = self._task_locks.setdefault(name, anyio.Lock())
        if lock.locked():
            await self._store_result(_build_skipped_result(task))
            return
        async with lock:
            result = await self._run_task(task)
        if result.status is MaintenanceStatus.FAILED:
            raise MaintenanceError(result.error or "failed", details={"task": name})

    async def _run_task(self, task: MaintenanceTask) -> MaintenanceResult:
        started = clock.now()
        self._running += 1
        self._update_task(task.name, last_status=MaintenanceStatus.RUNNING)
        try:
            with self._telemetry.measure("maintenance", task.task_type.value) as work:
                result = await _attempt(task, started)
                if result.error is not None:
                    work.fail(result.error)
            await self._store_result(result)
            await self._telemetry.maintenance_run(task.task_type.value)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
                self._idle = anyio.Event()
        return result

    async def _store_result(self, result: MaintenanceResult) -> None:
        self._history.append(result)
        if result.status is not MaintenanceStatus.SKIPPED:
            self._totals["total"] += 1
            succeeded = result.status is MaintenanceStatus.COMPLETED
            self._totals["successful" if succeeded else "failed"] += 1
            known = self._tasks.get(result.task_name)
            self._update_task(
                result.task_name,
                last_run=result.started_at,
                last_status=result.status,
                last_error=result.error,
                run_count=1 if known is None else known.run_count + 1,
            )
        await self._runs.add(result)

    def _update_task(self, name: str, **changes: Any) -> None:
        task = self._tasks.get(name)
        if task is not None:
            self._tasks[name] = evolve(task, **changes)

    def _request_state(self, name: str, enabled: bool) -> bool:
        if name not in self._tasks:
            return False
        self._requested_states[name] = enabled
        self._update_task(name, enabled=enabled)
        self._changed.set()
        return True

    def _get_task(self, name: str) -> MaintenanceTask:
        task = self._tasks.get(name)
        if task is not None:
            return task
        near = get_close_matches(name, self._tasks, n=1)
        raise UnknownMaintenanceTaskError(
            f"Task not found: {name}",
            details={"task": name, "known": list(self._tasks)},
            hint=f"did you mean {near[0]}?" if near else f"use one of: {', '.join(self._tasks)}",
        )

    def _store(self) -> VectorStoreProtocol:
        if self.vector_store is None:
            raise ValueError("the maintenance worker has no vector store")
        return self.vector_store


async def _attempt(task: MaintenanceTask, started: datetime) -> MaintenanceResult:
    """Call the handler in a task of its own, which it may cancel."""
    results: list[MaintenanceResult] = []

    async def attempt() -> None:
        try:
            outcome = await call(_call_handler, task.handler, timeout=task.timeout, host=host)
            result = _build_success_result(task, started, outcome)
        except CallTimeoutError:
            text = f"Task timed out after {task.timeout:g}s"
            result = MaintenanceResult.failure(task.name, task.task_type, started, text)
        except Exception as error:
            logger.exception("maintenance task failed", task=task.name)
            text = f"{type(error).__name__}: {error}"
            result = MaintenanceResult.failure(task.name, task.task_type, started, text)
        results.append(result)

    host = asyncio.current_task()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attempt, name=f"maintenance {task.name}")
    return results[0]


async def _call_handler(handler: Callable[[], Any]) -> Any:
    if inspect.iscoroutinefunction(handler):
        return await handler()
    # Abandoned at the timeout: a thread cannot be stopped.
    result = await call_in_thread(handler, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


def _build_success_result(
    task: MaintenanceTask, started: datetime, outcome: Any
) -> MaintenanceResult:
    if isinstance(outcome, Mapping):
        outcome = cast("Mapping[str, Any]", outcome)
        return MaintenanceResult.success(
            task.name,
            task.task_type,
            started,
            int(outcome.get("items_processed", 0)),
            int(outcome.get("items_deleted", 0)),
            outcome.get("metadata"),
        )
    processed = outcome if isinstance(outcome, int) and not isinstance(outcome, bool) else 0
    return MaintenanceResult.success(task.name, task.task_type, started, processed)


def _build_skipped_result(task: MaintenanceTask) -> MaintenanceResult:
    now = clock.now()
    return MaintenanceResult(
        task.name,
        task.task_type,
        MaintenanceStatus.SKIPPED,
        now,
        now,
        0.0,
        error="the previous run is still running",
    )

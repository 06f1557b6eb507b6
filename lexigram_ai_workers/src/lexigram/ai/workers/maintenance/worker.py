"""Runs registered maintenance tasks on schedules, keeps how they went, and runs them on demand."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
from attrs import evolve

from lexigram import clock
from lexigram.ai.workers.announcer import Announcer
from lexigram.ai.workers.background import BackgroundTask
from lexigram.ai.workers.constants import (
    DEFAULT_CHECK_INTERVAL,
    DEFAULT_TASK_TIMEOUT,
    MAX_HISTORY_SIZE,
)
from lexigram.ai.workers.errors import MaintenanceError, UnknownMaintenanceTaskError
from lexigram.ai.workers.maintenance import tasks as built_in
from lexigram.ai.workers.maintenance.aged_cache import AgedCache
from lexigram.ai.workers.maintenance.store import (
    FigureStore,
    MemoryFigures,
    MemoryRuns,
    RunStore,
)
from lexigram.ai.workers.maintenance.tasks import Check, Counters, IsGone, Levels
from lexigram.ai.workers.maintenance.times import check_times
from lexigram.ai.workers.types import (
    MaintenanceResult,
    MaintenanceStatus,
    MaintenanceTask,
    MaintenanceTaskType,
)
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.hooks import HookRegistry
from lexigram.observability import get_logger

if TYPE_CHECKING:
    from lexigram.ai.workers.maintenance.schedules import TaskSchedules
    from lexigram.contracts.infra.schedule.types import Firing

logger = get_logger(__name__)

_DAY = 24 * 3600.0


class MaintenanceWorker:
    """Tasks with a cron expression or an interval, a time limit and a history.

    ``schedules`` are those of the application; without them the worker has its own in memory.
    With durable ones a tick is run by one of all processes, and a task that was disabled stays
    so over restarts. A task of which a run goes on is not started a second time in one process:
    the tick is noted as skipped.
    """

    def __init__(
        self,
        vector_store: VectorStoreProtocol | None = None,
        worker_id: str = "maintenance",
        check_interval: float = DEFAULT_CHECK_INTERVAL,
        *,
        schedules: TaskSchedules | None = None,
        runs: RunStore | None = None,
        figures: FigureStore | None = None,
        cache: AgedCache | None = None,
        counters: Mapping[str, Counters] | None = None,
        levels: Mapping[str, Levels] | None = None,
        checks: Mapping[str, Check] | None = None,
        is_gone: IsGone = built_in.file_is_gone,
        keep_figures: float = 90 * _DAY,
        hooks: HookRegistry | None = None,
    ) -> None:
        self.vector_store = vector_store
        self.worker_id = worker_id
        # seconds between looks at what others paused, resumed and ran
        self.check_interval = check_interval
        self._given = schedules
        self._schedules: TaskSchedules | None = None
        self._runs = MemoryRuns() if runs is None else runs
        self._figures = MemoryFigures() if figures is None else figures
        self._cache = cache
        self._counters = dict(counters or {})
        self._levels = dict(levels or {})
        self._checks = dict(checks or {})
        self._is_gone = is_gone
        self._keep_figures = keep_figures
        self._announcer = Announcer(hooks)
        self._tasks: dict[str, MaintenanceTask] = {}
        # what was asked for and is not in the schedules yet
        self._wishes: dict[str, bool] = {}
        self._dropped: set[str] = set()
        self._changed = anyio.Event()
        self._busy: dict[str, anyio.Lock] = {}
        self._running = 0
        self._idle = anyio.Event()
        self._history: deque[MaintenanceResult] = deque(maxlen=MAX_HISTORY_SIZE)
        self._totals = {"total": 0, "successful": 0, "failed": 0}
        self._rolled_up: dict[str, float] = {}
        self._task = BackgroundTask(f"worker.{worker_id}.loop", self._run)
        self._ready = anyio.Event()

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to run tasks on their schedules; returns once they are kept."""
        if self._task.is_running:
            return
        self._ready = anyio.Event()
        self._task.start()
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(self._ready_or_dead, waiting.cancel_scope)
            await self._ready.wait()
            waiting.cancel_scope.cancel()
        if not self._ready.is_set():
            await self._task.wait()

    async def stop(self) -> None:
        """Start no task any more and wait for those that run."""
        await self._task.stop()

    async def wait(self) -> None:
        """Return when it was stopped; raise what it died of."""
        await self._task.wait()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY while it runs; DEGRADED while the last run of an enabled task failed."""
        running = self._task.is_running
        failing = [
            task.name
            for task in self._tasks.values()
            if task.enabled and task.last_status is MaintenanceStatus.FAILED
        ]
        status = HealthStatus.HEALTHY if running else HealthStatus.UNHEALTHY
        if running and failing:
            status = HealthStatus.DEGRADED
        told = f"the last run failed of {', '.join(failing)}" if failing else "running"
        return HealthCheckResult(
            component=f"worker.maintenance.{self.worker_id}",
            status=status,
            message=told if running else "not running",
            error=told if running and failing else None,
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
        """Run ``handler()`` by cron (UTC) or every so many seconds; replaces one of that name.

        A coroutine function, and whatever returns an awaitable, is awaited; another function is
        called in a thread. What it returns may be a number (items_processed) or a mapping with
        items_processed, items_deleted and metadata. A time that cannot be is refused here.
        """
        if (schedule_cron is None) == (interval_seconds is None):
            raise ValueError(f"task {name!r} needs schedule_cron or interval_seconds, one of them")
        if not timeout > 0:
            raise ValueError(f"task {name!r} has a timeout of {timeout!r} s; give more than 0")
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
        """Forget a task and its schedule; False when unknown. A run that goes on ends."""
        if self._tasks.pop(name, None) is None:
            return False
        self._wishes.pop(name, None)
        self._dropped.add(name)
        self._changed.set()
        return True

    def enable_task(self, name: str) -> bool:
        """Run it on its schedule again; False when unknown."""
        return self._wish(name, True)

    def disable_task(self, name: str) -> bool:
        """Run it no more until it is enabled; False when unknown. ``run_task_now`` still runs it."""
        return self._wish(name, False)

    async def sync(self) -> bool:
        """Have everything that was registered, enabled and disabled in the schedules now.

        False when there are none: the worker is not started, and has none of the application.
        """
        schedules = self._schedules or self._given
        if schedules is None:
            return False
        await self._keep(schedules)
        return True

    async def run_task_now(self, name: str) -> MaintenanceResult:
        """Run it here, beside its schedule, and wait for it; a run that goes on is waited for."""
        task = self._known(name)
        async with self._busy.setdefault(name, anyio.Lock()):
            return await self._perform(task)

    # --- what is known --------------------------------------------------------------------------

    def get_stats(self) -> dict[str, Any]:
        """Counts of this process."""
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
        """One task as data, or None."""
        task = self._tasks.get(name)
        return None if task is None else task.to_dict()

    def get_all_tasks(self) -> list[dict[str, Any]]:
        """Every task as data, in the order of registration."""
        return [task.to_dict() for task in self._tasks.values()]

    def get_recent_results(self, limit: int = 10) -> list[dict[str, Any]]:
        """Runs of this process, latest first; ``history`` has those of all."""
        latest = list(self._history)[-limit:] if limit > 0 else []
        return [result.to_dict() for result in reversed(latest)]

    async def history(
        self, name: str | None = None, limit: int = 10
    ) -> Sequence[MaintenanceResult]:
        """Runs of all processes that are kept, latest first."""
        return await self._runs.recent(name, limit)

    async def figures(self, since: datetime) -> Sequence[Mapping[str, Any]]:
        """What roll-ups wrote from this moment on: period, name, value."""
        return await self._figures.since(int(since.timestamp()))

    async def refresh(self) -> None:
        """Read which tasks are enabled and how they last ran, also in other processes."""
        schedules = self._schedules or self._given
        for name in list(self._tasks):
            if schedules is not None and name not in self._wishes:
                enabled = await schedules.is_enabled(name)
                if enabled is not None:
                    self._note(name, enabled=enabled)
            known = await self._runs.summary(name)
            if known.last is not None:
                self._note(
                    name,
                    last_run=known.last.started_at,
                    last_status=known.last.status,
                    last_error=known.last.error,
                    run_count=known.count,
                )

    # --- built-in tasks -------------------------------------------------------------------------

    async def optimize_vector_indexes(self) -> dict[str, Any]:
        """Refresh the indexes of the store, compact it, remove old versions."""
        return await built_in.optimize_indexes(self._store())

    async def cleanup_old_embeddings_cache(self, max_age_days: float = 30) -> dict[str, Any]:
        """Forget vectors that nobody used for so long."""
        if self._cache is None:
            return {"items_processed": 0, "metadata": {"note": "no cache with ages is used"}}
        return await built_in.clean_cache(self._cache, max_age_days * _DAY)

    async def cleanup_documents(self, dry_run: bool = True) -> dict[str, Any]:
        """Find documents whose file is gone; with ``dry_run=False`` remove their vectors."""
        return await built_in.clean_documents(self._store(), self._is_gone, delete=not dry_run)

    async def aggregate_metrics(self) -> dict[str, Any]:
        """Add the counters of this process to the figures of the hour."""
        counters = {
            f"{source}.{name}": float(value)
            for source, read in self._counters.items()
            for name, value in read().items()
        }
        levels = {
            f"{source}.{name}": float(value)
            for source, ask in self._levels.items()
            for name, value in (await ask()).items()
        }
        done = await built_in.roll_up(
            counters, self._rolled_up, levels, self._figures, self._keep_figures
        )
        self._rolled_up = counters
        return done

    async def check_health(self) -> dict[str, Any]:
        """Ask the parts the workers need; an error names those that are not healthy."""
        return await built_in.sweep_health(self._checks)

    # --- running --------------------------------------------------------------------------------

    async def _run(self, stopping: anyio.Event) -> None:
        async with AsyncExitStack() as stack:
            schedules = self._given
            if schedules is None:
                from lexigram.ai.workers.maintenance.schedules import TaskSchedules

                schedules = await stack.enter_async_context(TaskSchedules.in_memory())
            self._schedules = schedules
            stack.callback(self._close)
            await self._keep(schedules)
            self._ready.set()
            while not stopping.is_set():
                await self._change_or_stop(stopping)
                if not stopping.is_set():
                    await self._keep(schedules)
            schedules.let_go(self._tasks)
            while self._running:
                await self._idle.wait()

    def _close(self) -> None:
        self._schedules = None

    async def _ready_or_dead(self, scope: anyio.CancelScope) -> None:
        try:
            await self._task.wait()
        except Exception:  # noqa: BLE001 - raised by ``start``
            scope.cancel()
            return
        scope.cancel()

    async def _change_or_stop(self, stopping: anyio.Event) -> None:
        with anyio.move_on_after(self.check_interval):
            async with anyio.create_task_group() as tasks:

                async def until(event: anyio.Event) -> None:
                    await event.wait()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(until, stopping)
                tasks.start_soon(until, self._changed)

    async def _keep(self, schedules: TaskSchedules) -> None:
        self._changed = anyio.Event()
        dropped, self._dropped = self._dropped, set()
        for name in dropped:
            await schedules.drop(name)
        for name, task in list(self._tasks.items()):
            wish = self._wishes.pop(name, None)
            await schedules.keep(task, wish, partial(self._tick, name))
        await self.refresh()

    async def _tick(self, name: str, _: Firing) -> None:
        """A schedule fired; an error makes the firing FAILED."""
        task = self._tasks.get(name)
        if task is None:
            return
        lock = self._busy.setdefault(name, anyio.Lock())
        if lock.locked():
            await self._keep_result(_skipped(task))
            return
        async with lock:
            result = await self._perform(task)
        if result.status is MaintenanceStatus.FAILED:
            raise MaintenanceError(result.error or "failed", details={"task": name})

    async def _perform(self, task: MaintenanceTask) -> MaintenanceResult:
        started = clock.now()
        self._running += 1
        self._note(task.name, last_status=MaintenanceStatus.RUNNING)
        try:
            try:
                with anyio.fail_after(task.timeout):
                    outcome = await _called(task.handler)
                result = _succeeded(task, started, outcome)
            except TimeoutError as error:
                told = str(error) or f"Task timed out after {task.timeout:g}s"
                result = MaintenanceResult.failure(task.name, task.task_type, started, told)
            except Exception as error:
                logger.exception("a maintenance task failed", task=task.name)
                told = f"{type(error).__name__}: {error}"
                result = MaintenanceResult.failure(task.name, task.task_type, started, told)
            await self._keep_result(result)
            await self._announcer.maintenance_run(task.task_type.value)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
                self._idle = anyio.Event()
        return result

    async def _keep_result(self, result: MaintenanceResult) -> None:
        self._history.append(result)
        if result.status is not MaintenanceStatus.SKIPPED:
            self._totals["total"] += 1
            good = result.status is MaintenanceStatus.COMPLETED
            self._totals["successful" if good else "failed"] += 1
            known = self._tasks.get(result.task_name)
            self._note(
                result.task_name,
                last_run=result.started_at,
                last_status=result.status,
                last_error=result.error,
                run_count=1 if known is None else known.run_count + 1,
            )
        await self._runs.add(result)

    def _note(self, name: str, **facts: Any) -> None:
        task = self._tasks.get(name)
        if task is not None:
            self._tasks[name] = evolve(task, **facts)

    def _wish(self, name: str, enabled: bool) -> bool:
        if name not in self._tasks:
            return False
        self._wishes[name] = enabled
        self._note(name, enabled=enabled)
        self._changed.set()
        return True

    def _known(self, name: str) -> MaintenanceTask:
        task = self._tasks.get(name)
        if task is not None:
            return task
        near = get_close_matches(name, self._tasks, n=1)
        raise UnknownMaintenanceTaskError(
            f"Task not found: {name}",
            details={"task": name, "known": list(self._tasks)},
            hint=f"did you mean {near[0]}?" if near else f"there are: {', '.join(self._tasks)}",
        )

    def _store(self) -> VectorStoreProtocol:
        if self.vector_store is None:
            raise ValueError("this maintenance worker has no vector store")
        return self.vector_store


async def _called(handler: Callable[[], Any]) -> Any:
    if inspect.iscoroutinefunction(handler):
        return await handler()
    # Abandoned, not waited for, when the time is over: a thread cannot be stopped.
    result = await anyio.to_thread.run_sync(handler, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


def _succeeded(task: MaintenanceTask, started: datetime, outcome: Any) -> MaintenanceResult:
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


def _skipped(task: MaintenanceTask) -> MaintenanceResult:
    now = clock.now()
    return MaintenanceResult(
        task.name,
        task.task_type,
        MaintenanceStatus.SKIPPED,
        now,
        now,
        0.0,
        error="the run before has not ended",
    )

"""A supervisor of workers: starts them, restarts failed ones, stops all in reverse order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import anyio
from anyio.abc import TaskGroup

from lexigram import clock
from lexigram.ai.workers.errors import WorkerError, WorkerSetupError
from lexigram.concurrency import CallTimeoutError, call, is_retryable
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.leasing.backoff import Backoff
from lexigram.observability import get_logger

logger = get_logger(__name__)

STOP_SECONDS = 30.0  # for all workers together
RECOVERED_AFTER_SECONDS = 60.0  # after running for so long a failed worker counts as recovered
RESTART = Backoff(first=0.5, cap=60.0)
_HEALTH_POLL_SECONDS = 5.0  # for workers without ``wait``
_START_WAIT_SECONDS = 5.0  # maximum wait of ``start`` for slow workers


@runtime_checkable
class WorkerProtocol(Protocol):
    """A background worker with ``start`` and ``stop``.

    ``start`` may return when the worker runs, or when it ends. The supervisor awaits an async
    ``wait``, if the worker has one: it returns after ``stop`` and raises the error of a failed
    worker. Otherwise it polls ``health_check``, if the worker has one.
    """

    async def start(self) -> None:
        """Start the worker."""
        ...

    async def stop(self) -> None:
        """Stop the worker; a second call, or a call before ``start``, does nothing."""
        ...


class WorkerState(StrEnum):
    """State of a worker."""

    STOPPED = "stopped"
    RUNNING = "running"
    RESTARTING = "restarting"  # it failed and waits for its restart
    FAILED = "failed"  # by an error that is not retryable: it is not restarted


class WorkerEntry:
    """A supervised worker with its state."""

    def __init__(self, worker: WorkerProtocol) -> None:
        self.worker = worker
        self.name = type(worker).__name__
        self.state = WorkerState.STOPPED
        self.failures = 0
        self.last_error: str | None = None
        self.last_failure: float | None = None
        self.scope = anyio.CancelScope()
        # set when the first start returned or failed
        self.started = anyio.Event()
        self._consecutive_failures = 0

    @property
    def is_degraded(self) -> bool:
        """True if the worker is not running, or failed recently."""
        if self.state is not WorkerState.RUNNING:
            return True
        return self.last_failure is not None and not self._has_recovered()

    def record_failure(self, error: BaseException) -> int:
        """Record a failure; returns the number of consecutive failures."""
        self._consecutive_failures = 1 if self._has_recovered() else self._consecutive_failures + 1
        self.failures += 1
        self.last_failure = clock.monotonic()
        self.last_error = f"{type(error).__name__}: {error}"
        self.state = WorkerState.RESTARTING if is_retryable(error) else WorkerState.FAILED
        return self._consecutive_failures

    def describe(self) -> dict[str, Any]:
        """Return state, number of failures and last error."""
        return {"state": self.state.value, "failures": self.failures, "last_error": self.last_error}

    def _has_recovered(self) -> bool:
        return (
            self.last_failure is None
            or clock.monotonic() - self.last_failure >= RECOVERED_AFTER_SECONDS
        )


class Supervisor:
    """Implements TaskWorkerProtocol for all AI workers of the process together.

    Every worker is a task ``worker.<Class>`` of the group given to ``open``. A failed worker is
    reported to ``on_failure``, stopped, and restarted after an increasing backoff; after an error
    with ``is_retryable = False`` it stays stopped.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[Sequence[WorkerProtocol]]],
        *,
        on_failure: Callable[[WorkerProtocol, BaseException], None] | None = None,
        restart: Backoff = RESTART,
        stop_within: float = STOP_SECONDS,
    ) -> None:
        self.entries: list[WorkerEntry] = []
        self._load = load
        self._on_failure = on_failure
        self._restart = restart
        self._stop_within = stop_within
        self._tasks: TaskGroup | None = None
        self._host: asyncio.Task[Any] | None = None
        self._stopping = anyio.Event()

    def open(self, tasks: TaskGroup) -> None:
        """Set the task group, of the current task, for the tasks of the workers."""
        self._tasks, self._host = tasks, asyncio.current_task()

    @property
    def is_running(self) -> bool:
        """True between ``start`` and ``stop``."""
        return bool(self.entries) and not self._stopping.is_set()

    async def start(self) -> None:
        """Start all workers; a second call while they run does nothing.

        Returns when all have started, except workers whose ``start`` runs until they end.
        """
        if self.is_running:
            return
        if self._tasks is None:
            raise WorkerSetupError(
                "the supervisor cannot start workers: the application has not started",
                hint="start the application first: `async with app:`",
            )
        self._stopping = anyio.Event()
        self.entries = [WorkerEntry(worker) for worker in await self._load()]
        for entry in self.entries:
            entry.state = WorkerState.RUNNING
            self._tasks.start_soon(self._supervise, entry, name=f"worker.{entry.name}")
        with anyio.move_on_after(_START_WAIT_SECONDS):
            for entry in self.entries:
                if hasattr(entry.worker, "wait"):
                    await entry.started.wait()

    async def stop(self) -> None:
        """Stop all workers in reverse order; after 30 s the remaining ones are cancelled.

        Errors are raised together after all workers have stopped.
        """
        self._stopping.set()
        failures: list[Exception] = []
        host = asyncio.current_task()
        try:
            with anyio.move_on_after(self._stop_within):
                async with anyio.create_task_group() as tasks:
                    # They are stopped concurrently, so that a hanging worker does not block others.
                    for entry in reversed(self.entries):
                        tasks.start_soon(self._stop, entry, failures, host)
            cancelled = [
                entry.name for entry in self.entries if entry.state is not WorkerState.STOPPED
            ]
            if cancelled:
                logger.warning("workers cancelled: they did not stop in time", workers=cancelled)
        finally:
            for entry in self.entries:
                entry.scope.cancel()
                entry.state = WorkerState.STOPPED
        if failures:
            raise ExceptionGroup("workers did not stop cleanly", failures)

    async def health(self, timeout: float) -> HealthCheckResult:
        """Report the health of all workers: HEALTHY only if each runs and is healthy."""
        status, notes = HealthStatus.HEALTHY, list[str]()
        details: dict[str, Any] = {}
        for entry in self.entries:
            describe = entry.describe()
            result = await _check_health(entry.worker, timeout) if not entry.is_degraded else None
            if entry.is_degraded:
                notes.append(
                    f"{entry.name} is {entry.state.value}: {entry.last_error or 'no error'}"
                )
            elif result is not None and not result.is_healthy():
                describe["health"] = result.status.value
                notes.append(f"{entry.name}: {result.message or result.status.value}")
            details[entry.name] = describe
        if notes:
            status = HealthStatus.DEGRADED
        if self.entries and all(entry.state is not WorkerState.RUNNING for entry in self.entries):
            status = HealthStatus.UNHEALTHY
        running = sum(entry.state is WorkerState.RUNNING for entry in self.entries)
        return HealthCheckResult(
            component="workers",
            status=status,
            message="; ".join(notes) or f"{running} workers run",
            error="; ".join(notes) or None,
            details=details,
        )

    async def _supervise(self, entry: WorkerEntry) -> None:
        with entry.scope:
            while not self._stopping.is_set() and entry.state is not WorkerState.FAILED:
                try:
                    await call(self._run_worker, entry, host=self._host)
                except Exception as error:  # any error: the other workers continue
                    if self._stopping.is_set():
                        logger.exception("worker failed while stopping", worker=entry.name)
                        return
                    await self._handle_failure(entry, error)

    async def _run_worker(self, entry: WorkerEntry) -> None:
        """Run a worker once: returns after a stop, raises the error of a failed worker."""
        entry.state = WorkerState.RUNNING
        await entry.worker.start()
        entry.started.set()
        await self._wait_until_stopped(entry.worker)
        if not self._stopping.is_set():
            raise WorkerError(f"{entry.name} ended unexpectedly")

    async def _handle_failure(self, entry: WorkerEntry, error: Exception) -> None:
        delay = self._restart.delay(entry.record_failure(error))
        entry.started.set()
        if self._on_failure is not None:
            self._on_failure(entry.worker, error)
        try:
            # Release its remaining tasks and leases.
            await call(entry.worker.stop, timeout=self._stop_within, host=self._host)
        except Exception:
            logger.exception("stopping a failed worker failed", worker=entry.name)
        if entry.state is WorkerState.FAILED:
            logger.error(
                "worker failed permanently and is not restarted",
                worker=entry.name,
                error=entry.last_error,
            )
            return
        with anyio.move_on_after(delay):
            await self._stopping.wait()

    async def _wait_until_stopped(self, worker: WorkerProtocol) -> None:
        """Return when the worker was stopped; raise when it failed."""
        wait = getattr(worker, "wait", None)
        if wait is not None:
            await wait()
            return
        while not self._stopping.is_set():
            with anyio.move_on_after(_HEALTH_POLL_SECONDS):
                await self._stopping.wait()
                return
            result = await _check_health(worker, _HEALTH_POLL_SECONDS)
            if result is not None and result.status is HealthStatus.UNHEALTHY:
                raise WorkerError(
                    result.error or result.message or "the health check reports UNHEALTHY"
                )

    async def _stop(
        self, entry: WorkerEntry, failures: list[Exception], host: asyncio.Task[Any] | None
    ) -> None:
        try:
            await call(entry.worker.stop, host=host)
        except Exception as error:  # noqa: BLE001 - raised together with the others
            failures.append(error)
        entry.state = WorkerState.STOPPED


async def _check_health(worker: WorkerProtocol, timeout: float) -> HealthCheckResult | None:
    """Run the health check of a worker; None if it has no health check."""
    check = getattr(worker, "health_check", None)
    if check is None:
        return None
    try:
        result: HealthCheckResult = await call(check, timeout, timeout=timeout)
    except CallTimeoutError:
        return HealthCheckResult(
            component=type(worker).__name__,
            status=HealthStatus.UNHEALTHY,
            message=f"no response within {timeout:g} s",
        )
    except Exception as error:  # noqa: BLE001 - the boundary to a user's worker
        return HealthCheckResult(
            component=type(worker).__name__, status=HealthStatus.UNHEALTHY, message=str(error)
        )
    return result

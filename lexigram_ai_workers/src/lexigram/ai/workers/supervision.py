"""Keeps workers running: starts them, starts those again that die, stops all in reverse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import anyio
from anyio.abc import TaskGroup

from lexigram import clock
from lexigram.ai.workers.errors import WorkerError, WorkerSetupError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.observability import get_logger
from lexigram.sql.leasing.backoff import Backoff

logger = get_logger(__name__)

STOP_SECONDS = 30.0  # for all workers together
SETTLED_SECONDS = 60.0  # a worker that lived so long after a death is well again
RESTART = Backoff(first=0.5, cap=60.0)
_LOOK_SECONDS = 5.0  # at a worker that cannot be waited for
_START_SECONDS = 5.0  # that ``start`` waits for workers that are slow to begin


@runtime_checkable
class WorkerProtocol(Protocol):
    """Something that works by itself between ``start`` and ``stop``.

    ``start`` may return once it works, or never while it works. A worker with an async ``wait``
    is watched by it: it returns after ``stop``, and raises what the worker died of. One without
    is asked for its ``health_check``, where it has one, every few seconds.
    """

    async def start(self) -> None:
        """Begin to work."""
        ...

    async def stop(self) -> None:
        """End; a second call, or one before ``start``, does nothing."""
        ...


class WorkerState(StrEnum):
    """Where a worker is."""

    STOPPED = "stopped"
    RUNNING = "running"
    RESTARTING = "restarting"  # it died, and waits for its next start


class Seat:
    """One worker under supervision."""

    def __init__(self, worker: WorkerProtocol) -> None:
        self.worker = worker
        self.name = type(worker).__name__
        self.state = WorkerState.STOPPED
        self.deaths = 0
        self.last_error: str | None = None
        self.last_death: float | None = None
        self.scope = anyio.CancelScope()
        # set when its first start returned or failed
        self.began = anyio.Event()
        self._in_a_row = 0

    @property
    def is_troubled(self) -> bool:
        """True when it is not running, or died a short while ago."""
        if self.state is not WorkerState.RUNNING:
            return True
        return self.last_death is not None and not self._has_settled()

    def died(self, error: BaseException) -> int:
        """Note a death; how many there were without a longer life between them."""
        self._in_a_row = 1 if self._has_settled() else self._in_a_row + 1
        self.deaths += 1
        self.last_death = clock.monotonic()
        self.last_error = f"{type(error).__name__}: {error}"
        self.state = WorkerState.RESTARTING
        return self._in_a_row

    def facts(self) -> dict[str, Any]:
        """What an operator wants to know."""
        return {"state": self.state.value, "deaths": self.deaths, "last_error": self.last_error}

    def _has_settled(self) -> bool:
        return self.last_death is None or clock.monotonic() - self.last_death >= SETTLED_SECONDS


class Supervisor:
    """Implements TaskWorkerProtocol for all AI workers of the process together.

    Every worker is a task ``worker.<Class>`` of the group given to ``open``. A worker that dies
    is told to ``on_death``, stopped, and started again after a while that grows with every
    death.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[Sequence[WorkerProtocol]]],
        *,
        on_death: Callable[[WorkerProtocol, BaseException], None] | None = None,
        restart: Backoff = RESTART,
        stop_within: float = STOP_SECONDS,
    ) -> None:
        self.seats: list[Seat] = []
        self._load = load
        self._on_death = on_death
        self._restart = restart
        self._stop_within = stop_within
        self._tasks: TaskGroup | None = None
        self._stopping = anyio.Event()

    def open(self, tasks: TaskGroup) -> None:
        """Take the group the tasks of workers live in."""
        self._tasks = tasks

    @property
    def is_running(self) -> bool:
        """True between ``start`` and ``stop``."""
        return bool(self.seats) and not self._stopping.is_set()

    async def start(self) -> None:
        """Start every worker; a second call while they run does nothing.

        Returns when all have begun, those whose ``start`` is the work left out.
        """
        if self.is_running:
            return
        if self._tasks is None:
            raise WorkerSetupError(
                "the workers cannot be started before the application has started",
                hint="start the application first: `async with app:`",
            )
        self._stopping = anyio.Event()
        self.seats = [Seat(worker) for worker in await self._load()]
        for seat in self.seats:
            seat.state = WorkerState.RUNNING
            self._tasks.start_soon(self._watch, seat, name=f"worker.{seat.name}")
        with anyio.move_on_after(_START_SECONDS):
            for seat in self.seats:
                if hasattr(seat.worker, "wait"):
                    await seat.began.wait()

    async def stop(self) -> None:
        """Stop all, the last one first; those that take longer than 30 s are cancelled.

        Failures to stop are raised together once all are stopped.
        """
        self._stopping.set()
        failures: list[Exception] = []
        try:
            with anyio.move_on_after(self._stop_within):
                async with anyio.create_task_group() as tasks:
                    # One after the other they begin; none has to wait for one that hangs.
                    for seat in reversed(self.seats):
                        tasks.start_soon(self._stop, seat, failures)
            late = [seat.name for seat in self.seats if seat.state is not WorkerState.STOPPED]
            if late:
                logger.warning("workers cancelled: they did not stop in time", workers=late)
        finally:
            for seat in self.seats:
                seat.scope.cancel()
                seat.state = WorkerState.STOPPED
        if failures:
            raise ExceptionGroup("workers did not stop cleanly", failures)

    async def health(self, timeout: float) -> HealthCheckResult:
        """The truth about all: HEALTHY only while each runs and says so itself."""
        status, notes = HealthStatus.HEALTHY, list[str]()
        details: dict[str, Any] = {}
        for seat in self.seats:
            facts = seat.facts()
            told = await _told(seat.worker, timeout) if not seat.is_troubled else None
            if seat.is_troubled:
                notes.append(f"{seat.name} is {seat.state.value}: {seat.last_error or 'no error'}")
            elif told is not None and not told.is_healthy():
                facts["health"] = told.status.value
                notes.append(f"{seat.name}: {told.message or told.status.value}")
            details[seat.name] = facts
        if notes:
            status = HealthStatus.DEGRADED
        if self.seats and all(seat.state is not WorkerState.RUNNING for seat in self.seats):
            status = HealthStatus.UNHEALTHY
        running = sum(seat.state is WorkerState.RUNNING for seat in self.seats)
        return HealthCheckResult(
            component="workers",
            status=status,
            message="; ".join(notes) or f"{running} workers run",
            error="; ".join(notes) or None,
            details=details,
        )

    async def _watch(self, seat: Seat) -> None:
        with seat.scope:
            while not self._stopping.is_set():
                try:
                    seat.state = WorkerState.RUNNING
                    await seat.worker.start()
                    seat.began.set()
                    await self._ended(seat.worker)
                    if self._stopping.is_set():
                        return
                    raise WorkerError(f"{seat.name} ended by itself")
                except Exception as error:  # whatever it is, the worker is started again
                    if self._stopping.is_set():
                        logger.exception("a worker failed while it stopped", worker=seat.name)
                        return
                    await self._after_death(seat, error)

    async def _after_death(self, seat: Seat, error: Exception) -> None:
        delay = self._restart.delay(seat.died(error))
        seat.began.set()
        if self._on_death is not None:
            self._on_death(seat.worker, error)
        try:
            await seat.worker.stop()  # what is left of it: tasks, leases
        except Exception as problem:  # noqa: BLE001 - it is dead anyway
            logger.warning("a dead worker did not stop", worker=seat.name, error=str(problem))
        with anyio.move_on_after(delay):
            await self._stopping.wait()

    async def _ended(self, worker: WorkerProtocol) -> None:
        """Return when the worker was stopped; raise when it died."""
        wait = getattr(worker, "wait", None)
        if wait is not None:
            await wait()
            return
        while not self._stopping.is_set():
            with anyio.move_on_after(_LOOK_SECONDS):
                await self._stopping.wait()
                return
            told = await _told(worker, _LOOK_SECONDS)
            if told is not None and told.status is HealthStatus.UNHEALTHY:
                raise WorkerError(told.error or told.message or "it says that it is not healthy")

    async def _stop(self, seat: Seat, failures: list[Exception]) -> None:
        try:
            await seat.worker.stop()
        except Exception as error:  # noqa: BLE001 - raised together with the others
            failures.append(error)
        seat.state = WorkerState.STOPPED


async def _told(worker: WorkerProtocol, timeout: float) -> HealthCheckResult | None:
    """What a worker says about itself; None when it says nothing."""
    check = getattr(worker, "health_check", None)
    if check is None:
        return None
    try:
        with anyio.fail_after(timeout):
            told: HealthCheckResult = await check(timeout)
            return told
    except TimeoutError:
        return HealthCheckResult(
            component=type(worker).__name__,
            status=HealthStatus.UNHEALTHY,
            message=f"no answer within {timeout:g} s",
        )
    except Exception as error:  # noqa: BLE001 - the boundary to a user's worker
        return HealthCheckResult(
            component=type(worker).__name__, status=HealthStatus.UNHEALTHY, message=str(error)
        )

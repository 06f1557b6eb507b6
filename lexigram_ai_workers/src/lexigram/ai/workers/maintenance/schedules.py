"""Schedules of maintenance tasks: the durable ones of the application, or in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio

from lexigram.ai.workers.maintenance.times import PREFIX, schedule_of
from lexigram.ai.workers.types import MaintenanceTask
from lexigram.contracts.infra.schedule.errors import ScheduleExistsError
from lexigram.contracts.infra.schedule.types import (
    Firing,
    ScheduleState,
)
from lexigram.schedule.callbacks import Callbacks
from lexigram.schedule.config import ScheduleConfig
from lexigram.schedule.report import Reporter
from lexigram.schedule.runner import Runner
from lexigram.schedule.scheduler import Scheduler
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade


class TaskSchedules:
    """Manages a schedule and a callback per maintenance task."""

    def __init__(self, scheduler: Scheduler, callbacks: Callbacks) -> None:
        self._scheduler = scheduler
        self._callbacks = callbacks

    @classmethod
    @asynccontextmanager
    async def in_memory(cls) -> AsyncGenerator[TaskSchedules, None]:
        """Run schedules on an in-memory database while the block is open.

        Ticks, misfires and pauses work the same, but are not shared with other processes and are
        lost at a restart.
        """
        async with Database("sqlite://") as database:
            await upgrade(database, only="lexigram")
            config, reporter = ScheduleConfig(), Reporter()
            scheduler = Scheduler(database, config, reporter=reporter)
            callbacks = Callbacks(database, config, reporter)
            runner = Runner(scheduler, callbacks, tuple)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(runner.run, name="maintenance schedules")
                try:
                    yield cls(scheduler, callbacks)
                finally:
                    runner.stop()

    async def sync_task(
        self,
        task: MaintenanceTask,
        enabled: bool | None,
        run: Callable[[Firing], Awaitable[object]],
    ) -> None:
        """Create or update the schedule of a task, and register its callback in this process.

        A new schedule has the state of the task. An existing one keeps its state, unless
        ``enabled`` is set.
        """
        wanted = schedule_of(task)
        info = await self._scheduler.get(wanted.name)
        if info is None:
            enabled = task.enabled if enabled is None else enabled
            try:
                info = await self._scheduler.create(wanted)
            except ScheduleExistsError:  # created by another process
                info = await self._scheduler.get(wanted.name)
        elif info.schedule != wanted:
            info = await self._scheduler.update(wanted)
        if info is not None and enabled is False and info.state is ScheduleState.ACTIVE:
            await self._scheduler.pause(wanted.name)
        elif info is not None and enabled is True and info.state is ScheduleState.PAUSED:
            await self._scheduler.resume(wanted.name)
        self._callbacks.known[wanted.name] = run

    async def is_enabled(self, name: str) -> bool | None:
        """Return whether the schedule of a task is active; None if it does not exist."""
        info = await self._scheduler.get(PREFIX + name)
        return None if info is None else info.state is ScheduleState.ACTIVE

    async def delete(self, name: str) -> None:
        """Delete the schedule of a task."""
        self._callbacks.known.pop(PREFIX + name, None)
        await self._scheduler.delete(PREFIX + name)

    def remove_callbacks(self, names: Mapping[str, object]) -> None:
        """Unregister the callbacks in this process; the schedules are kept."""
        for name in names:
            self._callbacks.known.pop(PREFIX + name, None)

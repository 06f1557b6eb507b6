"""When maintenance tasks run: on the application's durable schedules, or on some in memory."""

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
    """Schedules of maintenance tasks, each with a callback of the same name."""

    def __init__(self, scheduler: Scheduler, callbacks: Callbacks) -> None:
        self._scheduler = scheduler
        self._callbacks = callbacks

    @classmethod
    @asynccontextmanager
    async def in_memory(cls) -> AsyncGenerator[TaskSchedules, None]:
        """The core's schedules on a database in memory, fired while the block is open.

        The same ticks, misfires and pauses; other processes have their own, and a restart
        forgets pauses.
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

    async def keep(
        self,
        task: MaintenanceTask,
        wish: bool | None,
        run: Callable[[Firing], Awaitable[object]],
    ) -> None:
        """Have a schedule for the task, and its callback in this process.

        A new one is as the task says. One that is there stays enabled or paused, as an operator
        left it, unless ``wish`` says otherwise.
        """
        wanted = schedule_of(task)
        info = await self._scheduler.get(wanted.name)
        if info is None:
            wish = task.enabled if wish is None else wish
            try:
                info = await self._scheduler.create(wanted)
            except ScheduleExistsError:  # another process was faster
                info = await self._scheduler.get(wanted.name)
        elif info.schedule != wanted:
            info = await self._scheduler.update(wanted)
        if info is not None and wish is False and info.state is ScheduleState.ACTIVE:
            await self._scheduler.pause(wanted.name)
        elif info is not None and wish is True and info.state is ScheduleState.PAUSED:
            await self._scheduler.resume(wanted.name)
        self._callbacks.known[wanted.name] = run

    async def is_enabled(self, name: str) -> bool | None:
        """Whether the schedule of a task fires; None when there is none yet."""
        info = await self._scheduler.get(PREFIX + name)
        return None if info is None else info.state is ScheduleState.ACTIVE

    async def drop(self, name: str) -> None:
        """Forget the schedule of a task."""
        self._callbacks.known.pop(PREFIX + name, None)
        await self._scheduler.delete(PREFIX + name)

    def let_go(self, names: Mapping[str, object]) -> None:
        """Start nothing more here; the schedules stay."""
        for name in names:
            self._callbacks.known.pop(PREFIX + name, None)

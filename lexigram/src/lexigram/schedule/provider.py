"""Registers the scheduler, keeps what the code declares, and runs the loop that fires."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

import anyio
from anyio.abc import TaskGroup

from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.outbox import OutboxProtocol
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.infra.schedule.errors import ScheduleExistsError, ScheduleTargetError
from lexigram.contracts.infra.schedule.protocols import SchedulerProtocol
from lexigram.contracts.infra.schedule.types import CallbackTarget
from lexigram.contracts.infra.tasks.protocols import TaskQueueProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.di import Provider, ProviderPriority
from lexigram.events.lifecycle import ApplicationStarted
from lexigram.schedule._declared import Declarations
from lexigram.schedule.callbacks import Callbacks
from lexigram.schedule.config import ScheduleConfig
from lexigram.schedule.report import Reporter
from lexigram.schedule.runner import Runner
from lexigram.schedule.scheduler import Scheduler
from lexigram.schedule.targets import Targets
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade


class ScheduleProvider(Provider):
    """Binds ``Scheduler``; with ``run`` it fires once the whole application has started."""

    name = "schedule"
    priority = ProviderPriority.NORMAL
    config_key = "schedule"
    config_model = ScheduleConfig
    optional_dependencies = ("sql", "tasks", "queue")

    config: ScheduleConfig

    def __init__(
        self,
        config: ScheduleConfig | None = None,
        declarations: Declarations | None = None,
        *,
        database: Database | None = None,
    ) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._declarations = declarations or Declarations()
        self._own_database = database
        self._names: list[str] = []
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._scheduler: Scheduler | None = None
        self._callbacks: Callbacks | None = None
        self._runner: Runner | None = None
        self._events: EventBusProtocol | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the scheduler; it is made in ``boot``, when the queue is known."""
        container.singleton(ScheduleConfig, self.config)
        container.singleton(ScheduleProvider, self)
        container.promise(Scheduler)
        container.promise(SchedulerProtocol)
        container.promise(Callbacks)
        self._declarations.check(container)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Make the scheduler and keep what is declared; firing waits for the application."""
        database = await self._database(container)
        self._events = await container.resolve(EventBusProtocol)
        reporter = Reporter(await container.resolve(MetricsProtocol), self._events)
        targets = Targets(
            await container.resolve_optional(TaskQueueProtocol),
            await container.resolve_optional(OutboxProtocol),
        )
        self._scheduler = Scheduler(database, self.config, targets=targets, reporter=reporter)
        self._callbacks = Callbacks(database, self.config, reporter)
        container.bind(Scheduler, self._scheduler)
        container.bind(SchedulerProtocol, self._scheduler)
        container.bind(Callbacks, self._callbacks)
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        await self.declare(self._declarations, container)
        if self.config.run and self.background_enabled:
            self._events.subscribe(ApplicationStarted, self._start)

    async def declare(self, declarations: Declarations, container: BootContainerProtocol) -> None:
        """Keep what a module declares; its functions see what that module sees."""
        assert self._scheduler is not None
        assert self._callbacks is not None
        functions = declarations.callbacks(container)
        for name in functions:
            if name in self._callbacks.known:
                raise ScheduleExistsError(
                    f"two callbacks are named {name!r}", hint="give one of them another name"
                )
        self._callbacks.known.update(functions)
        for schedule in declarations.schedules:
            if schedule.name in self._names:
                raise ScheduleExistsError(
                    f"two schedules are named {schedule.name!r}",
                    details={"schedule": schedule.name},
                    hint="give one of them another name",
                )
            self._names.append(schedule.name)
            self._check_target(schedule.name, schedule.target)
            self._scheduler.targets.check(schedule)
        await self._scheduler.declare(declarations.schedules)

    async def shutdown(self) -> None:
        """Take nothing more, wait for callbacks that run, and stop."""
        if self._events is not None:
            self._events.unsubscribe(ApplicationStarted, self._start)
        if self._runner is not None:
            self._runner.stop()
        await self._stack.aclose()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """UNHEALTHY while the database keeps it from firing, DEGRADED while a tick fails."""
        assert self._scheduler is not None
        problem = None if self._runner is None else self._runner.problem
        failing: Sequence[str] = ()
        if problem is None:
            try:
                with anyio.fail_after(timeout):
                    failing = [info.schedule.name for info in await self._scheduler.failing()]
            except (DatabaseError, TimeoutError) as error:
                problem = str(error) or f"no answer within {timeout:g} s"
        status = HealthStatus.DEGRADED if failing else HealthStatus.HEALTHY
        firing = "fires here" if self._runner is not None else "does not fire here"
        return HealthCheckResult(
            component=self.name,
            status=HealthStatus.UNHEALTHY if problem else status,
            message=problem or (f"cannot fire {', '.join(failing)}" if failing else firing),
            error=problem,
            details={"declared": list(self._names), "failing": list(failing)},
        )

    async def _database(self, container: BootContainerProtocol) -> Database:
        if self._own_database is None:
            found = await container.resolve_optional(Database)
            if found is None:
                raise ConfigurationError(
                    "schedules need a database, and the application has none",
                    hint='add SqlModule to the application; pip install "lexigram[sql]"',
                )
            return found
        await self._stack.enter_async_context(self._own_database)
        await upgrade(self._own_database)
        return self._own_database

    def _start(self, _: ApplicationStarted) -> None:
        if self._runner is None:
            assert self._scheduler is not None
            assert self._callbacks is not None
            assert self._tasks is not None
            self._runner = Runner(self._scheduler, self._callbacks, lambda: self._names)
            self._tasks.start_soon(self._runner.run, name="schedule")

    def _check_target(self, name: str, target: object) -> None:
        assert self._callbacks is not None
        if isinstance(target, CallbackTarget) and target.name not in self._callbacks.known:
            known = ", ".join(self._callbacks.known) or "none"
            raise ScheduleTargetError(
                f"schedule {name!r} calls {target.name!r}, but no function has that name",
                details={"schedule": name, "callback": target.name},
                hint=f"ScheduleModule.configure(callbacks={{{target.name!r}: function}}); "
                f"there are: {known}",
            )


class ScheduleFeatureProvider(Provider):
    """Brings the schedules of a feature module to the scheduler of the application."""

    priority = ProviderPriority.NORMAL
    dependencies = ("schedule",)

    def __init__(self, declarations: Declarations) -> None:
        first = declarations.schedules[0].name if declarations.schedules else "nothing"
        super().__init__(name=f"schedules from {first}")
        self._declarations = declarations

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Have the functions checked with the graph."""
        self._declarations.check(container)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Declare them, with functions that see what the importing module sees."""
        provider = await container.resolve(ScheduleProvider)
        await provider.declare(self._declarations, container)

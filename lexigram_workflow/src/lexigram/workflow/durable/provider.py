"""Assembles durable runs at boot, runs the worker of this process and reports its health."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import anyio

from lexigram.app import Application
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.contracts.data.outbox import OutboxProtocol
from lexigram.contracts.data.sql.database import DatabaseProviderProtocol
from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.contracts.workflow.durable import DurableRunsProtocol
from lexigram.di import Conditions, Provider, ProviderPriority
from lexigram.di.signature import parameters
from lexigram.hooks import HookRegistry
from lexigram.observability import get_logger
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable._checks import check_handler
from lexigram.workflow.durable._metrics import BoundMetrics
from lexigram.workflow.durable.bus_events import DurableEventEmitter
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.saga.base import AbstractSaga
from lexigram.workflow.workflows import Workflows

if TYPE_CHECKING:
    from lexigram.workflow.durable.worker.steps import Services
    from lexigram.workflow.durable.worker.worker import Worker

logger = get_logger(__name__)

# Part of app.shutdown_timeout that running steps may take; the rest is for what comes after.
_STOP_SHARE = 0.8


class DurableProvider(Provider):
    """Binds ``DurableFleet``. Settings are those of section ``workflow.durable``.

    ``handlers`` are functions by the names that definitions use beside dotted paths.
    ``run_worker``, ``consumers`` and ``worker_name`` are set by a command before the start.
    """

    name = "durable"
    priority = ProviderPriority.DOMAIN
    dependencies = ("workflow",)
    optional_dependencies = ("sql", "blobs", "cache", "queue", "observability")

    def __init__(self, handlers: Mapping[str, Callable[..., Any]] | None = None) -> None:
        super().__init__()
        self._handlers = dict(handlers or {})
        self.consumers: Mapping[str, int] | None = None
        self.worker_name: str | None = None
        self.fleet: DurableFleet | None = None
        self._stop_timeout = 0.0

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Promise the fleet; ``boot`` assembles it."""
        container.singleton(DurableProvider, self)
        container.promise(DurableFleet)
        container.singleton(DurableRunsProtocol, factory=_runs_of, when=_has_documents)
        for name, function in self._handlers.items():
            check_handler(container, name, function)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Assemble the parts, and start a worker if this process is to run one."""
        settings = (await container.resolve(WorkflowConfig)).durable
        self.fleet = await self._assemble(container, settings)
        container.bind(DurableFleet, self.fleet)
        wanted = settings.run_worker if self.run_worker is None else self.run_worker
        if not (wanted and self.background_enabled):
            return
        if not self.fleet.is_usable:
            if self.run_worker is None:  # the configuration asks for one
                self.fleet.engine  # noqa: B018 - raises, with advice
            return
        limit = (await container.resolve(Application)).config.app.shutdown_timeout * _STOP_SHARE
        self._stop_timeout = min(settings.stop_timeout, limit)
        await self._check_definitions(settings)
        self.fleet.worker = self.fleet.new_worker(self.consumers)
        await self.fleet.worker.start()
        logger.info(
            "a worker started", worker=self.worker.id, pools=dict(self.worker.config.consumers)
        )

    async def shutdown(self) -> None:
        """Let running steps end, and release the rest."""
        if self.fleet is not None and self.fleet.worker is not None:
            await self.fleet.worker.stop(self._stop_timeout)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """UNHEALTHY: the worker stopped or the database is unreachable; DEGRADED: a late check-in."""
        fleet = self.fleet
        if fleet is None or not fleet.is_usable:
            return HealthCheckResult(
                component=self.name, message="no database: there are no durable runs"
            )
        try:
            with anyio.fail_after(timeout):
                known = {item["id"]: item for item in await fleet.overview.workers()}
                now = await fleet.overview.now()
                unserved = await fleet.engine.unserved()
        except TimeoutError:
            return self._report(HealthStatus.UNHEALTHY, f"no answer within {timeout:g} s", {})
        except Exception as error:  # noqa: BLE001 - a check must not raise
            return self._report(HealthStatus.UNHEALTHY, f"{type(error).__name__}: {error}", {})
        details: dict[str, Any] = {"workers": len(known)}
        if fleet.worker is None:
            result = self._report(HealthStatus.HEALTHY, "no worker in this process", details)
        else:
            result = self._of_worker(fleet.worker, known.get(fleet.worker.id), now, details)
        if not unserved or result.status is not HealthStatus.HEALTHY:
            return result
        problems = [str(one) for one in unserved]
        details["missing_handlers"] = problems
        return self._report(HealthStatus.DEGRADED, "; ".join(problems), details)

    # --- how ---

    async def _check_definitions(self, settings: DurableConfig) -> None:
        """Problems of an operator's files fail the start instead of a submission."""
        assert self.fleet is not None
        if await has_definitions(settings):
            await self.fleet.definitions.load()
        if absent := self.fleet.definitions.absent:
            logger.warning(
                "handlers are not in this process; their steps wait for workers that have them",
                handlers=[str(one) for one in absent],
            )

    @property
    def step_handlers(self) -> Mapping[str, Callable[..., Any]]:
        """Handlers by the names that definitions use beside dotted paths."""
        return self._handlers

    @property
    def worker(self) -> Worker:
        """The worker of this process."""
        if self.fleet is None or self.fleet.worker is None:
            raise ConfigurationError("there is no worker in this process")
        return self.fleet.worker

    def _of_worker(
        self,
        worker: Worker,
        checkin: Mapping[str, Any] | None,
        now: float,
        details: dict[str, Any],
    ) -> HealthCheckResult:
        details |= {"worker": worker.id, "busy": worker.busy}
        if not worker.is_alive:
            why = f": {worker.failure}" if worker.failure is not None else ""
            return self._report(HealthStatus.UNHEALTHY, f"the worker is dead{why}", details)
        if checkin is None:
            return self._report(HealthStatus.UNHEALTHY, "the worker has not checked in", details)
        age = now - _seconds(checkin["last_checkin"])
        details["checkin_age"] = round(age, 1)
        assert self.fleet is not None
        if age > self.fleet.config.checkin_interval * 2:
            message = f"the worker checked in {age:.0f} s ago"
            return self._report(HealthStatus.DEGRADED, message, details)
        if failed := worker.failed_tasks:
            details["failed_tasks"] = dict(failed)
            named = "; ".join(f"{task} ({error})" for task, error in failed.items())
            return self._report(HealthStatus.DEGRADED, f"tasks failed: {named}", details)
        if worker.blocked is not None:
            message = f"a handler blocked the event loop for {worker.blocked:.1f} s"
            return self._report(HealthStatus.DEGRADED, message, details)
        return self._report(HealthStatus.HEALTHY, f"{worker.busy} steps at work", details)

    def _report(
        self, status: HealthStatus, message: str, details: Mapping[str, Any]
    ) -> HealthCheckResult:
        error = None if status is HealthStatus.HEALTHY else message
        return HealthCheckResult(
            component=self.name,
            status=status,
            message=message,
            error=error,
            details=dict(details),
        )

    async def _assemble(
        self, container: BootContainerProtocol, settings: DurableConfig
    ) -> DurableFleet:
        if await container.resolve_optional(DatabaseProviderProtocol) is None:
            return DurableFleet(settings)
        from lexigram.sql import Database  # loads SQLAlchemy: an application has it by now

        database = await container.resolve_optional(Database)
        if database is None:
            return DurableFleet(settings)
        from lexigram.workflow.durable._assembly import Around, assemble

        metrics = await container.resolve_optional(MetricsProtocol)
        is_bound = metrics is not None and not isinstance(metrics, NoOpMetrics)
        workflows = await container.resolve(Workflows)
        around = Around(
            services=cast("Services", container),
            emitter=DurableEventEmitter(
                await container.resolve_optional(HookRegistry),
                await container.resolve_optional(OutboxProtocol),
                settings.bus_events,
            ),
            blobs=await container.resolve_optional(BlobStoreProtocol),
            metrics=BoundMetrics(metrics) if metrics is not None and is_bound else None,
            progress=await container.resolve_optional(ProgressTrackerProtocol),
            handlers=self._handlers,
            orchestrations=_finder(workflows),
            orchestration_names=lambda: workflows.names,
            worker_name=lambda: self.worker_name,
        )
        return DurableFleet(settings, assemble(database, settings, around))


async def has_definitions(settings: DurableConfig) -> bool:
    """Whether an operator has a folder of definitions here."""
    folders = (settings.workflow_dir, settings.param_dir, settings.user_param_dir)
    return any([await anyio.Path(folder).is_dir() for folder in folders])


def _finder(workflows: Workflows) -> Callable[[str], Any]:
    """Workflows by name, looked up late: features of modules add theirs while they boot."""

    def find(name: str) -> Any:
        if name not in workflows.names:
            return None
        found = workflows.get(name)
        if not isinstance(found, type):
            return found

        async def saga(**arguments: Any) -> AbstractSaga[Any]:
            _refuse_arguments(found, arguments)
            return await workflows.saga(name, arguments)

        return saga

    return find


def _refuse_arguments(made: type[Any], given: Mapping[str, Any]) -> None:
    """TypeError for unknown arguments, and for missing arguments of plain data."""
    takes = parameters(made)
    names = {item.name for item in takes}
    kinds = {item.kind for item in inspect.signature(made).parameters.values()}
    takes_all = inspect.Parameter.VAR_KEYWORD in kinds
    unknown = [] if takes_all else [name for name in given if name not in names]
    missing = [
        item.name
        for item in takes
        if item.name not in given and not item.has_default and (item.bare or _is_data(item.key))
    ]
    if unknown or missing:
        problems = [f"{name} is missing" for name in missing]
        problems += [f"{name} is not one of its arguments" for name in unknown]
        raise TypeError(", ".join(problems))


def _is_data(key: Any) -> bool:
    return getattr(key, "__module__", "") == "builtins"


def _runs_of(fleet: DurableFleet) -> DurableRunsProtocol:
    return fleet.runs


def _has_documents(conditions: Conditions) -> bool:
    return conditions.has(DatabaseProviderProtocol) and conditions.has(BlobStoreProtocol)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()

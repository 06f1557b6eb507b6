"""Registers orchestration with the container, runs what runs by itself, and reports on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup
from attrs import asdict

from lexigram.cache.memory import MemoryCache
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.sql.database import DatabaseProviderProtocol
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.workflow.bulk import BulkCheckpointStoreProtocol
from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol
from lexigram.contracts.workflow.content_checkpoint import ContentCheckpointStoreProtocol
from lexigram.contracts.workflow.protocols import (
    ApprovalProtocol,
    ExecutionProtocol,
    PipelineContextProtocol,
    PipelineProtocol,
    SagaStoreProtocol,
    StateMachineProtocol,
    StatePersistenceProtocol,
    WorkflowGraphProtocol,
)
from lexigram.di import Provider, ProviderPriority
from lexigram.hooks import HookRegistry
from lexigram.observability import get_logger
from lexigram.workflow._declared import Declared, MakingServices, check_declared
from lexigram.workflow.bulk.checkpoint_cache import CacheBulkCheckpoints
from lexigram.workflow.checkpoint._store_none import NoContentCheckpointStore
from lexigram.workflow.checkpoint.store_memory import InMemoryContentCheckpointStore
from lexigram.workflow.config import (
    BulkOperationConfig,
    ContentCheckpointConfig,
    GraphConfig,
    WorkflowConfig,
)
from lexigram.workflow.constants import CONFIG_SECTION
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.graph.builder import WorkflowBuilder
from lexigram.workflow.pipeline.context import PipelineContext
from lexigram.workflow.pipeline.pipeline import Pipeline
from lexigram.workflow.runs.memory import InMemoryCheckpointStore
from lexigram.workflow.saga.memory import InMemorySagaStore
from lexigram.workflow.state.memory import InMemoryStatePersistence
from lexigram.workflow.workflows import Workflows

logger = get_logger(__name__)

# How long runs that events started may still go on when the application stops.
DRAIN_SECONDS = 10.0


class WorkflowProvider(Provider):
    """Binds everything about workflows. An explicit configuration wins over section ``workflow``.

    Stores are those of the application's database, or in memory where it has none; a store that
    is given wins. ``db_provider`` is another database for state machines.
    """

    name = "workflow"
    priority = ProviderPriority.DOMAIN
    config_key = CONFIG_SECTION
    config_model = WorkflowConfig
    optional_dependencies = ("sql", "cache", "observability")

    config: BulkOperationConfig

    def __init__(
        self,
        config: BulkOperationConfig | None = None,
        saga_store: SagaStoreProtocol | None = None,
        state_machine: StateMachineProtocol | None = None,
        db_provider: DatabaseProviderProtocol | None = None,
        state_table: str = "workflow_state_transitions",
        content_checkpoint_store: ContentCheckpointStoreProtocol | None = None,
        content_checkpoint_config: ContentCheckpointConfig | None = None,
        *,
        checkpoint_store: CheckpointStoreProtocol | None = None,
        workflows: Sequence[Declared] = (),
    ) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._saga_store = saga_store
        self._state_machine = state_machine
        self._state_database = db_provider
        self._state_table = state_table
        self._content_store = content_checkpoint_store
        self._content_config = content_checkpoint_config
        self._checkpoint_store = checkpoint_store
        self._declared = workflows
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._running = 0
        self._ended = anyio.Event()
        self._events: EventBusProtocol | None = None
        self._subscribed: list[tuple[type[DomainEvent], Any]] = []
        self._bound: Workflows | None = None
        self._problem: str | None = None
        self._parts: dict[str, str] = {}

    @property
    def settings(self) -> WorkflowConfig:
        """The section as a whole, also when only its bulk part was given."""
        if isinstance(self.config, WorkflowConfig):
            return self.config
        values = asdict(self.config, recurse=False)
        return WorkflowConfig(**values)

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind settings and what needs no database; stores are made in ``boot``."""
        settings = self.settings
        container.singleton(WorkflowProvider, self)
        container.singleton(WorkflowConfig, settings)
        container.singleton(BulkOperationConfig, self.config)
        container.singleton(GraphConfig, settings.graph)
        container.singleton(ContentCheckpointConfig, self._content)
        container.singleton(DurableConfig, settings.durable)
        container.transient(PipelineContextProtocol, factory=PipelineContext)
        container.transient(WorkflowGraphProtocol, factory=partial(_builder, settings.graph))
        if self._state_machine is not None:
            container.singleton(StateMachineProtocol, self._state_machine)
        for service in (
            *(CheckpointStoreProtocol, SagaStoreProtocol, StatePersistenceProtocol),
            *(BulkCheckpointStoreProtocol, ContentCheckpointStoreProtocol),
            *(Workflows, ExecutionProtocol, Pipeline, PipelineProtocol),
        ):
            container.promise(service)
        await check_declared(self._declared, container)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Make the stores, take the workflows, listen to the events that start them."""
        stores = await self._stores(container)
        for service, store in stores.items():
            container.bind(service, store)
        self._parts = {service.__name__: type(store).__name__ for service, store in stores.items()}
        self._events = await container.resolve_optional(EventBusProtocol)
        around: dict[str, Any] = {
            "approvals": await container.resolve_optional(ApprovalProtocol),
            "events": self._events,
            "hooks": await container.resolve_optional(HookRegistry),
        }
        limit = self.settings.pipeline_timeout
        services = cast("MakingServices", container)
        pipeline = Pipeline("default", timeout=limit, container=services, **around)
        container.bind(Pipeline, pipeline)
        container.bind(PipelineProtocol, pipeline)
        store, sagas = stores[CheckpointStoreProtocol], stores[SagaStoreProtocol]
        self._bound = Workflows(store, sagas, pipeline_timeout=limit, **around)
        container.bind(Workflows, self._bound)
        container.bind(ExecutionProtocol, self._bound)
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        await self.add(self._declared, container)
        if self.background_enabled and self.settings.pause_check_interval:
            self._tasks.start_soon(self._look_for_pauses, name="workflow.pauses")
        logger.debug("workflow settings", **self.settings.to_safe_dict())

    async def add(self, items: Sequence[Declared], container: BootContainerProtocol) -> None:
        """Take workflows of a module, and start them on their events."""
        assert self._bound is not None
        for workflow in await self._bound.add(items, cast("MakingServices", container)):
            if workflow.on is None or not self.background_enabled:
                continue
            if self._events is None:
                raise ConfigurationError(
                    f"workflow {workflow.definition.name!r} waits for events, and there is no bus",
                    hint="bind an EventBusProtocol",
                )
            handler = partial(self._begin, workflow.definition.name)
            self._events.subscribe(workflow.on, handler)
            self._subscribed.append((workflow.on, handler))

    async def shutdown(self) -> None:
        """Take no more events; give runs that they started a moment, then stop the rest.

        A run that is cut off is stored up to its last step, and can be resumed.
        """
        for event, handler in self._subscribed:
            assert self._events is not None
            self._events.unsubscribe(event, handler)
        self._subscribed.clear()
        with anyio.move_on_after(DRAIN_SECONDS):
            while self._running:
                self._ended = anyio.Event()
                await self._ended.wait()
        if self._running:
            logger.warning("workflows are cut off", running=self._running)
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        await self._stack.aclose()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """UNHEALTHY when the store of runs does not answer, or pauses cannot be looked for."""
        problem = self._problem
        if self._bound is not None and problem is None:
            try:
                with anyio.fail_after(timeout):
                    await self._bound.history(limit=1)
            except TimeoutError:
                problem = f"the store of runs gave no answer within {timeout:g} s"
            except Exception as error:  # noqa: BLE001 - stores of others: a check must not raise
                problem = f"{type(error).__name__}: {error}"
        names = [] if self._bound is None else list(self._bound.names)
        return HealthCheckResult(
            component=self.name,
            status=HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY,
            message=problem or f"{len(names)} workflows, {self._running} started by events run",
            error=problem,
            details={"workflows": names, "components": self._components()},
        )

    # --- how ---

    @property
    def _content(self) -> ContentCheckpointConfig:
        return self._content_config or self.settings.content_checkpoints

    def _components(self) -> dict[str, Any]:
        return {
            "pipeline": True,
            "saga_store": self._parts.get("SagaStoreProtocol"),
            "state_machine": self._state_machine is not None,
            "state_persistence": self._parts.get("StatePersistenceProtocol"),
            "checkpoint_store": self._parts.get("CheckpointStoreProtocol"),
        }

    async def _stores(self, container: BootContainerProtocol) -> dict[Any, Any]:
        """Where everything is kept: what was given, else the database, else this process."""
        stores: dict[Any, Any] = {
            CheckpointStoreProtocol: self._checkpoint_store,
            SagaStoreProtocol: self._saga_store,
            StatePersistenceProtocol: None,
            BulkCheckpointStoreProtocol: None,
            ContentCheckpointStoreProtocol: self._content_store,
        }
        if not self._content.enabled:
            stores[ContentCheckpointStoreProtocol] = NoContentCheckpointStore()
        if self._state_database is not None:
            from lexigram.workflow.state.store_sql import DatabaseStatePersistence

            stores[StatePersistenceProtocol] = DatabaseStatePersistence(
                self._state_database, self._state_table
            )
        in_database = await self._in_database(container)
        for service, store in stores.items():
            if store is None:
                made = in_database.get(service) or _IN_MEMORY[service]
                stores[service] = made()
        return stores

    async def _in_database(self, container: BootContainerProtocol) -> Mapping[Any, Any]:
        if await container.resolve_optional(DatabaseProviderProtocol) is None:
            return {}
        from lexigram.sql import Database  # loads SQLAlchemy: an application has it by now

        database = await container.resolve_optional(Database)
        if database is None:
            return {}
        from lexigram.workflow.bulk.store_sql import SqlBulkCheckpoints
        from lexigram.workflow.checkpoint.store_database import DatabaseContentCheckpointStore
        from lexigram.workflow.runs.store_sql import SqlCheckpointStore
        from lexigram.workflow.saga.store_sql import SqlSagaStore
        from lexigram.workflow.state.store_sql import DatabaseStatePersistence

        return {
            CheckpointStoreProtocol: partial(SqlCheckpointStore, database),
            SagaStoreProtocol: partial(SqlSagaStore, database),
            BulkCheckpointStoreProtocol: partial(SqlBulkCheckpoints, database),
            StatePersistenceProtocol: partial(
                DatabaseStatePersistence, database, self._state_table
            ),
            ContentCheckpointStoreProtocol: partial(DatabaseContentCheckpointStore, database),
        }

    def _begin(self, name: str, event: DomainEvent) -> None:
        """Start a run and let the publisher go on."""
        assert self._tasks is not None
        self._running += 1
        self._tasks.start_soon(self._run_for, name, event, name=f"workflow.{name}")

    async def _run_for(self, name: str, event: DomainEvent) -> None:
        assert self._bound is not None
        try:
            await self._bound.on_event(name, event)
        finally:
            self._running -= 1
            self._ended.set()

    async def _look_for_pauses(self) -> None:
        """Now and then let runs go on whose pause is over."""
        assert self._bound is not None
        while True:
            await anyio.sleep(self.settings.pause_check_interval)
            try:
                await self._bound.time_out_pauses()
                self._problem = None
            except Exception as error:  # noqa: BLE001 - a store may be away; it is tried again
                self._problem = f"pauses cannot be looked for: {error}"
                logger.warning("pauses cannot be looked for", error=str(error))


class WorkflowFeatureProvider(Provider):
    """Brings the workflows of a feature module to those of the application."""

    priority = ProviderPriority.DOMAIN
    dependencies = ("workflow",)

    def __init__(self, workflows: Sequence[Declared]) -> None:
        first = getattr(workflows[0], "__name__", repr(workflows[0])) if workflows else "nothing"
        super().__init__(name=f"workflows from {first}")
        self._declared = workflows

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Have what they ask for checked with the graph."""
        await check_declared(self._declared, container)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Add them, with services that the importing module sees."""
        provider = await container.resolve(WorkflowProvider)
        await provider.add(self._declared, container)


_IN_MEMORY: dict[Any, Any] = {
    CheckpointStoreProtocol: InMemoryCheckpointStore,
    SagaStoreProtocol: InMemorySagaStore,
    StatePersistenceProtocol: InMemoryStatePersistence,
    BulkCheckpointStoreProtocol: lambda: CacheBulkCheckpoints(MemoryCache()),
    ContentCheckpointStoreProtocol: InMemoryContentCheckpointStore,
}


def _builder(config: GraphConfig) -> WorkflowBuilder:
    return WorkflowBuilder("default", config)

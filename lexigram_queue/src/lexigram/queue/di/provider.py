"""Registers the backends of the bus, connects them, drains them and reports on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio

from lexigram.concurrency import call
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus, worst
from lexigram.contracts.core.hooks import HookRegistryProtocol
from lexigram.contracts.data.outbox import OutboxProtocol, OutboxStoreProtocol
from lexigram.contracts.data.sql.database import DatabaseProviderProtocol
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.contracts.observability.tracing import NoOpTracer, TracerProtocol
from lexigram.contracts.queue import QueueError, QueueProtocol
from lexigram.di import Provider, ProviderPriority
from lexigram.queue.admin.contributor import QueueAdminContributor
from lexigram.queue.backends.registry import QueueDriverRegistry
from lexigram.queue.backends.services import Services
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig, QueueConfig
from lexigram.queue.constants import CONFIG_SECTION
from lexigram.queue.core.dlq import DeadLetterQueue
from lexigram.queue.core.pipeline import MessagePipeline
from lexigram.queue.di.operators import register_operators
from lexigram.queue.operations.control import BusControl
from lexigram.queue.operations.sampling import Sampled, Sampler
from lexigram.queue.outbox.inbox import Inbox
from lexigram.queue.outbox.outbox import TransactionalOutbox

BOOT_MARGIN = 30.0  # seconds for a start beside waiting for brokers


class QueueProvider(Provider):
    """Binds ``QueueProtocol`` per backend. An explicit configuration wins over section ``queue``.

    The primary backend is the unnamed ``QueueProtocol``; all are bound by their name, each with
    its ``MessagePipeline``.
    """

    name = "queue"
    priority = ProviderPriority.INFRASTRUCTURE
    optional_dependencies = ("sql", "observability")
    config_key = CONFIG_SECTION
    config_model = QueueConfig

    config: QueueConfig

    def __init__(
        self, config: QueueConfig | None = None, registry: QueueDriverRegistry | None = None
    ) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._registry = registry
        self._services = Services()
        self._backends: list[tuple[NamedQueueConfig, QueueProtocol]] = []
        self._outboxes: list[TransactionalOutbox] = []
        self._sampler: Sampler | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the configuration and a queue per backend; nothing is connected yet."""
        container.singleton(QueueConfig, self.config)
        container.singleton(DeadLetterQueue)
        for entry in self.config.backends:
            self._register_backend(container, entry)
        if not self.config.backends:
            container.singleton(QueueProtocol, factory=_no_backend)
            # Left out: who can do without an outbox, as schedules and durable runs can, starts
            # without one. A binding that raises would stop them.
            for outbox in (OutboxProtocol, OutboxStoreProtocol, TransactionalOutbox):
                container.singleton(outbox, factory=_no_backend, when=False)
            container.singleton(MessagePipeline)
        register_operators(container, self._control())
        waits = [entry.wait_for_broker for entry in self.config.backends]
        if any(waits):
            self.boot_timeout = max(waits) + BOOT_MARGIN

    def _register_backend(
        self, container: ContainerRegistrarProtocol, entry: NamedQueueConfig
    ) -> None:
        if self._registry is None:
            self._registry = QueueDriverRegistry.with_defaults()  # reads what is installed
        pipeline = MessagePipeline()
        queue = self._registry.create_backend(
            entry.driver, entry, self._services, pipeline=pipeline
        )
        self._backends.append((entry, queue))
        outbox = TransactionalOutbox(queue, name=entry.name, config=self.config.outbox)
        self._outboxes.append(outbox)
        names = (entry.name, None) if entry is self.config.primary else (entry.name,)
        for name in names:
            container.singleton(QueueProtocol, queue, name=name)
            container.singleton(MessagePipeline, pipeline, name=name)
            container.singleton(OutboxProtocol, outbox, name=name)
            container.singleton(TransactionalOutbox, outbox, name=name)
            container.singleton(OutboxStoreProtocol, factory=_store_of(outbox), name=name)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Give the backends the services of the application, and connect them concurrently."""
        self._services.open(container)
        watchers: dict[str, Any] = {
            "set_tracer": await _real(container, TracerProtocol, NoOpTracer),
            "set_metrics": await _real(container, MetricsProtocol, NoOpMetrics),
            "set_hook_registry": await container.resolve_optional(HookRegistryProtocol),
            "set_event_bus": await container.resolve_optional(EventBusProtocol),
        }
        for _, queue in self._backends:
            for setter, watcher in watchers.items():
                if hasattr(queue, setter):  # a complete queue of others may have none of them
                    getattr(queue, setter)(watcher)
        await self._use_sql(container, watchers["set_metrics"])
        errors: list[QueueError] = []
        async with anyio.create_task_group() as tasks:
            for entry, queue in self._backends:
                tasks.start_soon(_connect, entry, queue, errors)
        if errors:
            raise errors[0]
        contributor = await container.resolve(QueueAdminContributor)
        await contributor.on_admin_boot(container)
        if self.background_enabled:
            for outbox in self._outboxes:
                await outbox.start()
            await self._start_sampler(watchers["set_metrics"])

    def _control(self) -> BusControl:
        primary = self.config.primary
        return BusControl(
            {entry.name: queue for entry, queue in self._backends},
            primary=None if primary is None else primary.name,
            health=self.health_check,
        )

    async def _start_sampler(self, metrics: MetricsProtocol | None) -> None:
        watched = [
            Sampled(queue=queue, policy=entry.dead_letters)
            for entry, queue in self._backends
            if isinstance(queue, BusQueue)
        ]
        interval = self.config.sample_interval
        self._sampler = Sampler(watched, metrics=metrics, interval=interval)
        await self._sampler.start()

    async def _use_sql(
        self, container: BootContainerProtocol, metrics: MetricsProtocol | None
    ) -> None:
        """Exactly once, and outboxes that follow transactions; without SQL there is neither."""
        if await container.resolve_optional(DatabaseProviderProtocol) is None:
            return
        from lexigram.sql import Database  # loads SQLAlchemy: an application has it by now

        database = await container.resolve_optional(Database)
        if database is None:
            return
        inbox = Inbox(database, retention=self.config.inbox_retention)
        for _, queue in self._backends:
            if isinstance(queue, BusQueue):
                queue.inbox = inbox.around
        for outbox in self._outboxes:
            outbox.use(database)
            assert outbox.relay is not None
            outbox.relay.metrics = metrics

    async def _stop_relays(self) -> None:
        for outbox in self._outboxes:
            await outbox.stop()

    async def shutdown(self) -> None:
        """Drain and disconnect, the last backend first; all are tried, all failures are raised."""
        failures: list[Exception] = []
        if self._sampler is not None:
            await self._sampler.stop()
        await self._stop_relays()
        for _, queue in reversed(self._backends):
            try:
                await queue.close()
            except Exception as error:  # noqa: BLE001 - raised below, with the others
                failures.append(error)
        if failures:
            raise ExceptionGroup("the bus did not stop cleanly", failures)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """The health of the worst backend; the details have each of them."""
        results: dict[str, HealthCheckResult] = {}
        started, host = anyio.current_time(), asyncio.current_task()
        async with anyio.create_task_group() as tasks:
            for entry, queue in self._backends:
                tasks.start_soon(_check, entry.name, queue, timeout, results, host)
        names = [entry.name for entry, _ in self._backends]
        bad = [name for name in names if not results[name].is_healthy()]
        return HealthCheckResult(
            component=self.name,
            status=worst(result.status for result in results.values()),
            message=f"configuration bound, {len(names)} backends"
            + (f", not healthy: {', '.join(bad)}" if bad else ""),
            error="; ".join(str(results[name].error) for name in bad) or None,
            duration_ms=(anyio.current_time() - started) * 1000,
            details={
                "backends": {
                    name: {"status": results[name].status.value, **(results[name].details or {})}
                    for name in names
                }
            },
        )


def _store_of(outbox: TransactionalOutbox) -> Callable[[], OutboxStoreProtocol]:
    def store() -> OutboxStoreProtocol:
        return outbox.store

    return store


async def _real(container: BootContainerProtocol, service: Any, nothing: type) -> Any:
    """The service, unless it is the one that does nothing: then it is not called per message."""
    found = await container.resolve_optional(service)
    return None if isinstance(found, nothing) else found


async def _connect(entry: NamedQueueConfig, queue: QueueProtocol, errors: list[QueueError]) -> None:
    try:
        if isinstance(queue, BusQueue):
            await queue.connect(wait=entry.wait_for_broker)
        else:
            await queue.connect()
    except QueueError as error:
        if entry.required or not isinstance(queue, BusQueue):
            errors.append(error.with_hint(_advice(error, entry)).with_details(backend=entry.name))
        else:
            await queue.connect_later()


def _advice(error: QueueError, entry: NamedQueueConfig) -> str:
    """The hint of the driver, and the settings of the bus that help."""
    cause = error.hint or "start the broker or correct its address"
    wait = "" if entry.wait_for_broker else "wait_for_broker: 30 waits for it, "
    return f"{cause}; in backend {entry.name!r}, {wait}required: false starts without it"


async def _check(
    name: str,
    queue: QueueProtocol,
    timeout: float,
    results: dict[str, HealthCheckResult],
    host: asyncio.Task[Any] | None,
) -> None:
    try:
        results[name] = await call(queue.health_check, timeout, timeout=timeout, host=host)
    except Exception as error:  # noqa: BLE001 - queues of others: a check must not raise
        results[name] = HealthCheckResult(
            component=name, status=HealthStatus.UNHEALTHY, error=f"{type(error).__name__}: {error}"
        )


def _no_backend() -> Any:
    raise ConfigurationError(
        "the bus has no backend",
        hint="add one to queue.backends, such as {name: events, driver: memory}",
    )

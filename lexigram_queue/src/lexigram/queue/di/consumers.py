"""Starts the consumers of one ``QueueModule.scope(...)`` with the application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import QueueProtocol
from lexigram.di import Named, Provider, ProviderPriority
from lexigram.queue.bus import BusQueue
from lexigram.queue.consumers.binding import handler_of
from lexigram.queue.consumers.consumer import MessageConsumer


class ConsumersProvider(Provider):
    """Declares groups in boot, so that nothing is missed; receives once everything has booted."""

    priority = ProviderPriority.COMMS
    dependencies = ("queue",)

    def __init__(self, consumers: Sequence[type[MessageConsumer]]) -> None:
        names = ", ".join(kind.__qualname__ for kind in consumers)
        super().__init__(name=f"queue.consumers({names})")
        self._kinds = consumers
        self._consumers: list[MessageConsumer] = []
        self._foreign: list[QueueProtocol] = []

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the classes: one object each; have what their handlers ask for checked."""
        for kind in self._kinds:
            container.singleton(kind)
            handler, parameter = handler_of(kind)
            role = f"consumer {kind.__qualname__}"
            container.check_entry(handler, given=("self", parameter), role=role)

    async def boot(self, container: BootContainerProtocol) -> None:
        """Make the consumers and their groups."""
        for kind in self._kinds:
            consumer = await container.resolve(kind)
            queue = await _queue_of(consumer, container)
            if not isinstance(queue, BusQueue):
                await queue.connect()  # nobody else does for a queue of the application
                self._foreign.append(queue)
            await consumer.prepare(queue, container)
            self._consumers.append(consumer)

    async def start(self) -> None:
        """Begin to receive: every provider has booted. Groups are there even if it may not."""
        if not self.background_enabled:
            return
        for consumer in self._consumers:
            await consumer.start()

    async def stop(self) -> None:
        """Finish or hand back what is in flight, before the first provider goes."""
        for consumer in reversed(self._consumers):
            await consumer.stop()
        self._consumers.clear()

    async def shutdown(self) -> None:
        """Stop what a start that failed has left, and close queues of the application."""
        await self.stop()
        for queue in reversed(self._foreign):
            await queue.close()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """DEGRADED when a consumer should receive and does not; the broker is the queue's check."""
        silent = [one for one in self._consumers if self.background_enabled and not one.is_running]
        idle = [type(one).__qualname__ for one in silent]
        return HealthCheckResult(
            component=self.name,
            status=HealthStatus.DEGRADED if idle else HealthStatus.HEALTHY,
            message=f"not receiving: {', '.join(idle)}" if idle else None,
            details={"consumers": [type(one).__qualname__ for one in self._consumers]},
        )


async def _queue_of(consumer: MessageConsumer, container: BootContainerProtocol) -> QueueProtocol:
    name = consumer.backend
    if name is None:
        return await container.resolve(QueueProtocol)
    queue = await container.resolve_optional(Annotated[QueueProtocol, Named(name)])
    if queue is None:
        raise ConfigurationError(
            f"{type(consumer).__qualname__} wants backend {name!r}, which does not exist",
            hint="add it to queue.backends, or bind a QueueProtocol under that name",
        )
    return queue

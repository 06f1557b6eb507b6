"""A namespace: its clients, and how it is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import TYPE_CHECKING, Any, Final

import anyio
from attrs import define, field

from lexigram.queue.backends.azure_servicebus._links import EXTRA, Inbox, Requests, Senders
from lexigram.queue.backends.azure_servicebus._names import Place
from lexigram.queue.backends.clouds import unless
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.config import AzureServiceBusDriverConfig
from lexigram.queue.errors import AzureServiceBusQueueError

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient
    from azure.servicebus.aio.management import ServiceBusAdministrationClient
SIZES: Final = {"Standard": 256 * 1024, "Premium": 1024 * 1024}  # bytes of a message or a batch
PAGE: Final = 250


@define(eq=False, kw_only=True)
class Space:
    """The clients of a namespace, and what is open there."""

    reading: ServiceBusClient  # gives up at once: the runtime tries again
    asking: ServiceBusClient
    admin: ServiceBusAdministrationClient
    senders: Senders
    max_size: int = SIZES["Standard"]
    inboxes: dict[str, Inbox] = field(factory=dict[str, Inbox])
    covered: dict[str, float] = field(factory=dict[str, float])
    asked: dict[tuple[str, bool], Requests] = field(factory=dict[tuple[str, bool], Requests])

    def requests(self, queue: str, *, dead: bool = False) -> Requests:
        """For a queue, or its dead-letter sub-queue."""
        found = self.asked.get((queue, dead))
        if found is None:
            options = {}
            if dead:
                library = require_library("azure.servicebus", extra=EXTRA)
                options["sub_queue"] = library.ServiceBusSubQueue.DEAD_LETTER
            found = self.asked[queue, dead] = Requests(self.asking, queue, **options)
        return found

    async def forget(self, place: Place) -> None:
        """A group is gone."""
        inbox = self.inboxes.pop(place.queue, None)
        if inbox is not None:
            await inbox.close()

    async def close(self) -> None:
        """Close links and clients."""
        inboxes, self.inboxes = self.inboxes, {}
        asked, self.asked = self.asked, {}
        with anyio.move_on_after(10, shield=True):
            await asyncio.gather(
                *(inbox.close() for inbox in inboxes.values()),
                *(one.close() for one in asked.values()),
                self.senders.close(),
                return_exceptions=True,
            )
            await asyncio.gather(
                self.reading.close(),
                self.asking.close(),
                self.admin.close(),
                return_exceptions=True,
            )


def open_space(config: AzureServiceBusDriverConfig) -> Space:
    """Make the clients; links open when they are first used."""
    if not config.connection_str:
        raise AzureServiceBusQueueError(
            "no connection string", hint="set azure_servicebus.connection_str"
        )
    make = require_library("azure.servicebus.aio", extra=EXTRA).ServiceBusClient
    # Without a time for one attempt, the client waits for some answers for ever.
    retry = {"retry_total": 3, "retry_backoff_factor": 0.2, "try_timeout": config.timeout}
    reading = make.from_connection_string(config.connection_str, retry_total=0)
    return Space(
        reading=reading,
        asking=(asking := make.from_connection_string(config.connection_str, **retry)),
        admin=open_administration(config.management_str or config.connection_str),
        senders=Senders(asking),
    )


def open_administration(connection_str: str) -> Any:
    library = require_library("azure.servicebus.aio.management", extra=EXTRA)
    make = library.ServiceBusAdministrationClient.from_connection_string
    if "usedevelopmentemulator=true" not in connection_str.lower():
        return make(connection_str)
    # The emulator's management speaks plain HTTP, which the client (7.15) does not know.
    transport = require_library("azure.core.pipeline.transport", extra=EXTRA).AioHttpTransport

    class Plain(transport):  # type: ignore[misc, valid-type]  # loaded late
        async def send(self, request: Any, **options: Any) -> Any:
            request.url = request.url.replace("https://", "http://", 1)
            # loaded late, so its type is not known
            return await super().send(request, **options)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    return make(connection_str, transport=Plain())


def size_of_tier(properties: Any) -> int:
    tier = str(getattr(properties.messaging_sku, "value", properties.messaging_sku))
    if tier not in SIZES:
        raise AzureServiceBusQueueError(
            f"the namespace is of tier {tier}, which has no topics",
            hint="use a namespace of tier Standard or Premium",
        )
    return SIZES[tier]


async def unless_there(made: Awaitable[Any]) -> bool:
    """Create it; False when it is there already."""
    azure = require_library("azure.core.exceptions", extra=EXTRA)
    return await unless(azure.ResourceExistsError, made)


async def if_there(asked: Awaitable[Any]) -> bool:
    """Delete it, or look for it; False when it is not there."""
    azure = require_library("azure.core.exceptions", extra=EXTRA)
    return await unless(azure.ResourceNotFoundError, asked)


async def list_subscriptions(space: Space, topic: str) -> AsyncGenerator[str, None]:
    absent = require_library("azure.core.exceptions", extra=EXTRA).ResourceNotFoundError
    try:
        async for found in space.admin.list_subscriptions(topic):
            yield found.name
    except absent:
        return


async def peek_all(ask: Requests, limit: int | None = None) -> list[Any]:
    found: list[Any] = []
    start = 1
    while (limit is None or len(found) < limit) and (page := await ask.peek(PAGE, start)):
        found += page
        start = int(page[-1].sequence_number or 0) + 1
    return found

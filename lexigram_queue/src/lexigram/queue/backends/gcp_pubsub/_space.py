"""The topics and subscriptions of a project: requests, and both clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import anyio
from attrs import define, field

from lexigram.queue.backends.clouds import unless
from lexigram.queue.backends.gcp_pubsub._errors import EXTRA, api_errors
from lexigram.queue.backends.gcp_pubsub._pull import Calls, Inbox
from lexigram.queue.backends.gcp_pubsub._wire import Out
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.config import GCPPubSubDriverConfig
from lexigram.queue.errors import GCPPubSubQueueError

CLOSING: Final = 0.03  # seconds
ACKS: Final = 1000  # ack ids of one request, of 512 KiB
KEPT: Final = timedelta(days=31)  # the longest of the service


@define(eq=False, kw_only=True)
class Space:
    """Both clients, what is known of the project, and the requests that are made of it."""

    project: str
    timeout: float
    into: Calls  # PublisherAsyncClient
    out: Calls  # SubscriberAsyncClient
    inboxes: dict[str, Inbox] = field(factory=dict[str, Inbox])
    covered: dict[str, float] = field(factory=dict[str, float])
    looks: dict[str, asyncio.Lock] = field(factory=dict[str, asyncio.Lock])

    def looking(self, name: str) -> asyncio.Lock:
        """Two that look at once would each see a part."""
        return self.looks.setdefault(name, asyncio.Lock())

    async def forget(self, name: str) -> None:
        """A subscription is gone: give back what came of it."""
        inbox = self.inboxes.pop(name, None)
        if inbox is not None:
            await inbox.close()

    async def close(self) -> None:
        """Give back what nobody took, and close both clients."""
        inboxes, self.inboxes = self.inboxes, {}
        with anyio.move_on_after(10, shield=True):
            await asyncio.gather(
                *(inbox.close() for inbox in inboxes.values()), return_exceptions=True
            )
            await asyncio.gather(self.into.close(), self.out.close(), return_exceptions=True)
            # The library hears of cancelled calls from a thread, a moment later, in this loop: it
            # must not be closed by then.
            await asyncio.sleep(CLOSING)

    # Requests.

    @property
    def patient(self) -> dict[str, Any]:
        """How a call waits, and is tried again when the service is busy."""
        return {"retry": retry_for(self.timeout), "timeout": self.timeout}

    async def ping(self, timeout: float) -> None:
        request = {"project": f"projects/{self.project}", "page_size": 1}
        await self.out.list_subscriptions(
            request=request, retry=retry_for(timeout), timeout=timeout
        )

    async def make_topic(self, name: str, labels: Mapping[str, str]) -> None:
        request = {"name": name, "labels": dict(labels)}
        await unless_there(self.into.create_topic(request=request, **self.patient))

    async def subscribe(self, **settings: Any) -> bool:
        # An empty expiration_policy: it never goes for want of use.
        lasting: dict[str, Any] = {"message_retention_duration": KEPT, "expiration_policy": {}}
        request = lasting | settings
        return await unless_there(self.out.create_subscription(request=request, **self.patient))

    async def update(self, settings: Any, path: str) -> None:
        request = {"subscription": settings, "update_mask": {"paths": [path]}}
        await self.out.update_subscription(request=request, **self.patient)

    async def find(self, name: str) -> Any:
        """A subscription; None when it is not there."""
        try:
            return await self.out.get_subscription(subscription=name, **self.patient)
        except api_errors().NotFound:
            return None

    async def subscriptions(self, topic: str) -> list[str]:
        try:
            return await self.into.list_all("list_topic_subscriptions", topic=topic, **self.patient)
        except api_errors().NotFound:
            return []

    async def send(self, entity: str, chunk: Sequence[Out]) -> None:
        request = {"topic": entity, "messages": [out.native() for out in chunk]}
        await self.into.publish(request=request, **self.patient)

    async def pull(self, name: str, most: int, wait: float) -> Sequence[Any]:
        """One pull without retries: receive() is retried by its caller, and reports errors."""
        request = {"subscription": name, "max_messages": most}
        try:
            answer: Any = await self.out.pull(request=request, retry=None, timeout=wait)
        except api_errors().DeadlineExceeded:
            return []
        # As plain protobuf: the wrappers of the library look up each field anew, 27 times for a
        # message; of 899 calls of functions for a message, publish to ack, 431 were left.
        plain: Any = answer.__class__.pb(answer)
        return list(plain.received_messages)

    async def acknowledge(self, name: str, ack_ids: Sequence[str]) -> None:
        for start in range(0, len(ack_ids), ACKS):
            request = {"subscription": name, "ack_ids": ack_ids[start : start + ACKS]}
            await self.out.acknowledge(request=request, **self.patient)

    async def modify(self, name: str, ack_ids: Sequence[str], seconds: int) -> None:
        for start in range(0, len(ack_ids), ACKS):
            request = {
                "subscription": name,
                "ack_ids": ack_ids[start : start + ACKS],
                "ack_deadline_seconds": seconds,
            }
            await self.out.modify_ack_deadline(request=request, **self.patient)


async def open_space(config: GCPPubSubDriverConfig) -> Space:
    """Make both clients; what the libraries raise is passed on."""
    project = config.project_id
    library = require_library("google.pubsub_v1", extra=EXTRA)
    publishing = require_library("google.pubsub_v1.services.publisher.transports", extra=EXTRA)
    pulling = require_library("google.pubsub_v1.services.subscriber.transports", extra=EXTRA)
    options: dict[str, Any] = {"host": config.endpoint} if config.endpoint else {}
    if config.emulator_host:
        grpc = require_library("grpc.aio", extra=EXTRA)
        size = [(f"grpc.max_{way}_message_length", -1) for way in ("receive", "send")]
        options = {"channel": grpc.insecure_channel(config.emulator_host, options=size)}
    else:
        found = await anyio.to_thread.run_sync(find_credentials, config.credentials_file)
        options["credentials"], default = found
        options["always_use_jwt_access"] = True  # as the client itself does
        project = project or default
    if not project:
        raise GCPPubSubQueueError("no project", hint="set gcp_pubsub.project_id")
    into = publishing.PublisherGrpcAsyncIOTransport(**options)
    out = pulling.SubscriberGrpcAsyncIOTransport(**options)

    def clients() -> Space:
        return Space(
            project=project,
            timeout=config.timeout,
            into=Calls(library.PublisherAsyncClient(transport=into)),
            out=Calls(library.SubscriberAsyncClient(transport=out)),
        )

    # Channels belong to this loop; the clients around them look for files when made.
    return await anyio.to_thread.run_sync(clients)


def find_credentials(file: str | None) -> tuple[Any, str | None]:
    """Those of a service account, or the default ones; and the project they are of."""
    scopes = ["https://www.googleapis.com/auth/pubsub"]
    if file:
        library = require_library("google.oauth2.service_account", extra=EXTRA)
        found = library.Credentials.from_service_account_file(file, scopes=scopes)
        return found, found.project_id
    found, project = require_library("google.auth", extra=EXTRA).default(scopes=scopes)
    return found, project


def retry_for(timeout: float) -> Any:
    """Again while the service is busy or away, for so long."""
    library, errors = require_library("google.api_core.retry", extra=EXTRA), api_errors()
    return library.AsyncRetry(
        predicate=library.if_exception_type(
            errors.ResourceExhausted,
            errors.ServiceUnavailable,
            errors.InternalServerError,
            errors.Aborted,
        ),
        initial=0.1,
        maximum=2.0,
        multiplier=2.0,
        timeout=timeout / 3,
    )


async def unless_there(made: Awaitable[Any]) -> bool:
    """Create it; False when it is there already."""
    return await unless(api_errors().AlreadyExists, made)


async def if_there(gone: Awaitable[Any]) -> bool:
    """Delete it; False when it is not there."""
    return await unless(api_errors().NotFound, gone)

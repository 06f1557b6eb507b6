"""The bus on Amazon SQS: a queue for each group, and one beside it for its dead letters.

SQS has no topics. A publisher sends a copy to the queue of every group a topic has, and learns
which these are from the names of the queues, which it lists. A list is cached for
``groups_refresh`` seconds, and declaring a group waits until every older list has expired: once a
group is declared, it gets every message.

What SQS has not, and how it is done here:

- *Kept for the first group.* A topic without a group has a queue of its own, its *keeper*; the
  first group takes over what is in it. It is never deleted: what is sent to a queue that is
  being deleted is lost.
- *A changed message comes again.* A retry is a delayed copy, confirmed before the old message is
  deleted. The lease is renewed before that: who has lost it sends no copy.
- *Long delays.* SQS delays for 15 minutes. A message that is received before it is due is hidden
  again, up to 12 hours at a time.
- *Large bodies* go to the blob store of the application, and a reference to the queue.

SQS has receipts that outlive their lease, so each delivery remembers its own end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio

from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.data.blobs import BlobError, BlobStoreProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    DeadLetterEntry,
    Delivery,
    MessageTooLargeError,
    QueueError,
)
from lexigram.queue.backends.clouds import CloudDriver, health_of
from lexigram.queue.backends.services import Services
from lexigram.queue.backends.sqs._bodies import Bodies
from lexigram.queue.backends.sqs._errors import (
    NAME,
    cannot_error,
    code_of,
    hint_for,
    is_foreign,
    missing_error,
    status_of,
)
from lexigram.queue.backends.sqs._publisher import Publisher
from lexigram.queue.backends.sqs._receiver import Held, Receiver
from lexigram.queue.backends.sqs._space import Space, open_space
from lexigram.queue.backends.sqs._topology import declare_group
from lexigram.queue.backends.sqs._wire import (
    HEADERS,
    LARGEST,
    LATEST,
    LONGEST_LEASE,
    Json,
    Place,
    Received,
    groups_prefix,
    inline,
    size,
    wire,
)
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig, SQSDriverConfig, override
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.errors import SQSQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.envelope import CUT, mark_unreadable, redriven

if TYPE_CHECKING:
    from lexigram.contracts.queue import QueueDriverProtocol
DEFAULT_PREFIX: Final = "lexigram"

# Not TTL and PRIORITY: SQS has neither. Not FAIRNESS: a fair queue promises no order of its own.
# Not PEEK: SQS looks by taking. Not PAUSE: a change of a queue takes up to a minute to apply.
# ORDERING and DEDUP are what FIFO queues have (setting ``fifo``).
CAPABILITIES: Final = frozenset(Capability) - {
    Capability.TTL,
    Capability.PRIORITY,
    Capability.FAIRNESS,
    Capability.PEEK,
    Capability.PAUSE,
    Capability.BEGUN_MARK,
    Capability.ORDERING,
    Capability.DEDUP,
}
OF_FIFO: Final = frozenset({Capability.ORDERING, Capability.DEDUP})

DEDUP_WINDOW: Final = 300.0  # seconds, of the service
SHORT_POLLS: Final = 0.1  # seconds between looks, where less than a second is waited for


class SQSDriver(CloudDriver[Space, Place]):
    """One member on an account and region; its queues begin with ``prefix``."""

    name = NAME

    def __init__(
        self,
        region: str | None = None,
        *,
        config: SQSDriverConfig | None = None,
        prefix: str | None = None,
        endpoint_url: str | None = None,
        visibility_timeout: float | None = None,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
        blobs: BlobStoreProtocol | None = None,
        services: Services | None = None,
    ) -> None:
        """``region`` comes before that of ``config``, which has all other settings.

        ``endpoint_url`` and ``prefix`` are what its ``queue_url`` says, one by one.
        """
        super().__init__()
        self._config = config = override(config or SQSDriverConfig(), region=region)
        endpoint, name = _of_url(config.queue_url)
        endpoint_url, prefix = endpoint_url or endpoint, prefix or name or DEFAULT_PREFIX
        if visibility_timeout is None:
            visibility_timeout = config.visibility_timeout or DEFAULT_VISIBILITY_TIMEOUT
        fifo = config.fifo
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,19}", prefix):
            text = (
                "prefix must be at most 20 characters out of A-Z, a-z, 0-9, dashes and underscores"
            )
            raise ValueError(f"{text}, not {prefix!r}")
        if not 0 < visibility_timeout <= LONGEST_LEASE:
            raise ValueError(f"SQS leases a message for at most {LONGEST_LEASE} seconds")
        if dedup_window and not (fifo and dedup_window <= DEDUP_WINDOW):
            text = f"SQS remembers ids for {DEDUP_WINDOW:g} seconds, and only with fifo"
            raise ValueError(f"{text}: dedup_window {dedup_window:g} cannot be kept")
        self.prefix, self.fifo = prefix, fifo
        # SQS counts whole seconds.
        self._lease = max(1, ceil(visibility_timeout))
        self.visibility_timeout: float | None = float(self._lease)
        self.capabilities = CAPABILITIES | (OF_FIFO if fifo else frozenset[Capability]())
        self.address = endpoint_url or f"SQS in {config.region}"
        self._endpoint_url, self._services = endpoint_url, services
        self._bodies = Bodies(prefix, blobs)
        self._publisher = Publisher(
            self._bodies,
            inline_bytes=config.inline_bytes,
            max_backlog=max_backlog,
            place=self._place,
            translate_errors=self._translate_errors,
        )
        self._receiver = Receiver(self._bodies, lease=self._lease, fifo=fifo)

    def __repr__(self) -> str:
        return f"SQSDriver({self.address}, prefix={self.prefix!r})"

    @property
    def blobs(self) -> BlobStoreProtocol | None:
        """Where large bodies go."""
        return self._bodies.blobs

    @property
    def max_message_bytes(self) -> int | None:
        """What a message holds beside its headers; no limit with a blob store."""
        return None if self._bodies.blobs is not None else LARGEST - HEADERS

    # Life.

    async def connect(self) -> None:
        """Open the clients and list the groups; SQS knows no connections."""
        async with self._opening:
            if self._bodies.blobs is None and self._services is not None:
                self._bodies.blobs = await self._services.find(BlobStoreProtocol)
            space = self._space or await self._open()
            try:
                with self._translate_errors("connect"):
                    async with asyncio.timeout(self._config.timeout):
                        await space.list_groups()
            except BaseException:
                # Those in use stay open: there is no connection that could be broken.
                if space is not self._space:
                    await space.close()
                raise
            self._space = space

    async def _open(self) -> Space:
        with self._translate_errors("connect"):
            return await open_space(self._config, self.prefix, self._endpoint_url)

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make both queues exist; the first group begins with what was kept."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("declare", topic):
            await declare_group(space, place)

    async def drop(self, topic: str, group: str) -> None:
        """Delete both queues, and what they have in the blob store."""
        space, place = self._now(), self._place(topic, group)
        with self._translate_errors("drop", topic):
            space.listed_until = 0.0
            for queue in (place.queue, place.dead):
                url = await space.url_of(queue)
                if url is not None:
                    await space.unless_gone(space.asking.delete_queue(QueueUrl=url))
                space.urls.pop(queue, None)
            await self._bodies.drop(place.queue)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All queues of this prefix that say which group they are of."""
        space = self._now()
        with self._translate_errors("list groups"):
            found = [await space.names_of(queue) for queue in await space.list_groups()]
        return [names for names in found if names is not None]

    # Out.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send to the queue of every group, in as few requests as fit."""
        await self._publisher.publish_many(self._now(), messages)

    # In.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what is there, or wait for it by long polls."""
        space, place = self._now(), self._place(topic, group)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        with self._translate_errors("receive", topic):
            url = await space.url_of(place.queue)
            if url is None:
                raise missing_error(topic, group)
            while True:
                left = deadline - loop.time()
                found = await self._receiver.poll(space, place, url, limit, max(0.0, left))
                if found or deadline - loop.time() <= 0:
                    return found
                if left < 1:  # SQS waits for whole seconds
                    await anyio.sleep(min(SHORT_POLLS, max(0.0, deadline - loop.time())))

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Delete them, ten in a request."""
        space = self._now()
        for queue, held in self._ours(deliveries).items():
            with self._translate_errors("acknowledge", deliveries[0].topic):
                await space.delete(queue, [one.raw.handle for one in held])
                for one in held:
                    one.finish()
                await self._bodies.forget([one.raw for one in held])

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Make them visible: they come again at once."""
        space = self._now()
        for queue, held in self._ours(deliveries).items():
            with self._translate_errors("release", deliveries[0].topic):
                await space.hide(queue, {one.raw.handle: 0 for one in held})
            for one in held:
                one.finish()

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Hide them for longer; SQS ends it twelve hours after a message was received."""
        space, now = self._now(), asyncio.get_running_loop().time()
        kept: set[Held] = set()
        for queue, held in self._ours(deliveries).items():
            with self._translate_errors("extend", deliveries[0].topic):
                kept.update(await self._renew(space, queue, held, ceil(seconds), now))
        lost = [delivery for delivery in deliveries if delivery.receipt not in kept]
        for delivery in lost:
            delivery.receipt.finish()
        return lost

    async def _renew(
        self, space: Space, queue: str, held: Sequence[Held], seconds: int, now: float
    ) -> list[Held]:
        """Those that are still ours, for so long."""
        times = {one.raw.handle: min(seconds, int(one.began + LONGEST_LEASE - now)) for one in held}
        lost = await space.hide(queue, {handle: s for handle, s in times.items() if s > 0})
        kept = [one for one in held if times[one.raw.handle] > 0 and one.raw.handle not in lost]
        for one in kept:
            one.until = now + times[one.raw.handle]
        return kept

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Hide it as it is for ``delay``; changed, a delayed copy is sent and the old one deleted."""
        space, held, now = self._now(), delivery.receipt, asyncio.get_running_loop().time()
        if not self._ours([delivery]):
            return
        with self._translate_errors("nack", delivery.topic):
            if message is None and now + delay < held.began + LONGEST_LEASE - 1:
                await space.hide(held.queue, {held.raw.handle: max(0, ceil(delay))})
                held.finish()
                return
            if delay > LATEST:
                raise cannot_error(
                    Capability.DELAYED_RETRY, delivery.topic, "lower the cap of retries"
                )
            out = await self._copy(delivery, message or delivery.message, delay)
            if await self._renew(space, held.queue, [held], self._lease, now):
                await space.send(held.queue, [out])
                await space.delete(held.queue, [held.raw.handle])
        held.finish()

    async def _copy(self, delivery: Delivery, message: BusMessage, delay: float) -> Json:
        """The message again: a crash between copy and deletion doubles, on FIFO not even that."""
        held: Held = delivery.receipt
        content = held.raw.content
        if message.payload != delivery.message.payload:
            content = self._publisher.check(message) or await self._bodies.store(
                held.queue, message
            )
        return wire(message, content, held.queue, delay=delay, dedup=held.raw.id)

    def _ours(self, deliveries: Sequence[Delivery]) -> dict[str, list[Held]]:
        now, found = asyncio.get_running_loop().time(), dict[str, list[Held]]()
        for delivery in deliveries:
            held: Held = delivery.receipt
            if now < held.until:
                found.setdefault(held.queue, []).append(held)
        return found

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Send it to the queue of the dead letters with the entry as attributes, then delete it."""
        space, held = self._now(), delivery.receipt
        if not self._ours([delivery]):
            return
        place = self._place(delivery.topic, delivery.group)
        with self._translate_errors("dead letter", delivery.topic):
            now = asyncio.get_running_loop().time()
            if await self._renew(space, held.queue, [held], self._lease, now):
                out = wire(
                    entry.message, held.raw.content, place.dead, dedup=held.raw.id, dead=entry
                )
                if size(out) > LARGEST:
                    out = cut_dead_letter(entry, place.dead, held.raw.id)
                await space.send(place.dead, [out])
                await space.delete(held.queue, [held.raw.handle])
        held.finish()

    async def count_dead(self, topic: str, group: str) -> int:
        """What SQS counts."""
        return await self._count("count dead letters", self._place(topic, group).dead, topic)

    async def _read_dead(self, space: Space, place: Place) -> Sequence[DeadLetterEntry]:
        """Take all, and let them go again."""
        handles: list[str] = []
        found: dict[str, DeadLetterEntry] = {}
        try:
            async for page in space.drain(place.dead):
                handles += [one.handle for one in page]
                for one in page:
                    body, _ = await self._bodies.read(one)
                    dead = one.dead_entry(place.topic, place.group, body)
                    found.setdefault(dead.message.id, dead)
        finally:
            await space.release(place.dead, handles)
        return sorted(found.values(), key=lambda dead: dead.failed_at)

    async def _clear_dead(
        self, space: Space, place: Place, ids: Sequence[str] | None, *, again: bool
    ) -> int:
        """Take the wanted ones out, page by page.

        Not by a task of SQS (StartMessageMoveTask): it moves all, with their retries used up.
        """
        wanted = None if ids is None else set(ids)
        done: set[str] = set()
        others: list[str] = []
        try:
            async for page in space.drain(place.dead):
                first: dict[str, tuple[Received, BusMessage]] = {}
                out: list[str] = []
                for raw in page:
                    message = raw.dead_entry(place.topic, place.group, b"").message
                    if wanted is not None and message.id not in wanted:
                        others.append(raw.handle)
                        continue
                    out.append(raw.handle)
                    if message.id not in done:
                        first.setdefault(message.id, (raw, message))
                if first and again:
                    outs = [
                        wire(redriven(message), raw.content, place.queue, dedup=raw.id)
                        for raw, message in first.values()
                    ]
                    await space.send(place.queue, outs)
                elif first:
                    await self._bodies.forget([raw for raw, _ in first.values()])
                await space.delete(place.dead, out)
                done.update(first)
                if wanted is not None and done >= wanted:
                    break
        finally:
            await space.release(place.dead, others)
        return len(done)

    # Looking and steering.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """Not declared: SQS looks by taking, and counts it as a delivery."""
        raise cannot_error(Capability.PEEK, topic, "use depth and lag")

    async def purge(self, topic: str, group: str) -> int:
        """Take what waits and delete it; what is delayed stays."""
        space, place, total = self._now(), self._place(topic, group), 0
        with self._translate_errors("purge", topic):
            async for page in space.drain(place.queue):
                await space.delete(place.queue, [one.handle for one in page])
                await self._bodies.forget(page)
                total += len(page)
        return total

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Unsupported: a change of a queue takes up to a minute to apply."""
        raise cannot_error(Capability.PAUSE, topic, "stop the consumers")

    async def is_paused(self, topic: str, group: str) -> bool:
        """Never."""
        return False

    async def depth(self, topic: str, group: str) -> int:
        """Visible, hidden and delayed ones."""
        queue = self._place(topic, group).queue
        return await self._count("depth", queue, topic, "NotVisible", "Delayed")

    async def lag(self, topic: str, group: str) -> int:
        """Visible ones."""
        return await self._count("lag", self._place(topic, group).queue, topic)

    async def _count(self, what: str, queue: str, topic: str, *more: str) -> int:
        with self._translate_errors(what, topic):
            facts = await self._now().facts_of(queue)
        return sum(
            int((facts or {}).get(f"ApproximateNumberOfMessages{kind}", 0)) for kind in ("", *more)
        )

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when SQS answers in time."""

        async def ask() -> None:
            space, prefix = self._now(), groups_prefix(self.prefix)
            with self._translate_errors("health check"):
                await space.asking.list_queues(QueueNamePrefix=prefix, MaxResults=1)

        facts = {"address": self.address, "prefix": self.prefix}
        return await health_of(ask, "SQS", facts, timeout)

    # Names and errors.

    def _place(self, topic: str, group: str) -> Place:
        return Place(prefix=self.prefix, topic=topic, group=group, fifo=self.fifo)

    def _is_foreign(self, error: Exception) -> bool:
        return is_foreign(error)

    def _error(self, error: Exception, what: str, topic: str) -> QueueError:
        code, status = code_of(error), status_of(error)
        text = f"could not {what} on {self.address}: {str(error) or code}"
        if code.endswith("BatchRequestTooLong") or "must be shorter than" in text:
            hint = "raise MaximumMessageSize of the queue, or lower sqs.inline_bytes"
            return MessageTooLargeError(text, backend=NAME, topic=topic, hint=hint)
        if isinstance(error, BlobError):
            hint = "check the blob store; what was not confirmed can be sent again"
            return SQSQueueError(text, topic=topic, hint=hint)
        return SQSQueueError(text, topic=topic, hint=hint_for(code, status), details={"code": code})


def cut_dead_letter(entry: DeadLetterEntry, queue: str, dedup: str) -> Json:
    """A dead letter of which SQS has room for a part only: its producer used up all there is."""
    payload, headers = entry.message.payload, dict(entry.message.headers)
    kept = payload[: LARGEST // 2]  # as base64 it is a third longer
    mark_unreadable(headers, f"{CUT} {len(kept)} of {len(payload)} bytes are kept")
    message = replace(entry.message, payload=kept, headers=headers)
    short = replace(entry, message=message, traceback=None)
    return wire(message, inline(kept), queue, dedup=dedup, dead=short)


class SQSQueue(BusQueue):
    """The bus on SQS, usable without a container."""

    def __init__(
        self,
        region: str | None = None,
        queue_url: str | None = None,
        visibility_timeout: float | None = None,
        max_in_flight: int = 100,
        tracer: TracerProtocol | None = None,
        *,
        config: SQSDriverConfig | None = None,
        options: BusOptions | None = None,
    ) -> None:
        """``queue_url``: where its queues are, and how their names begin.

        ``config``: all settings; those that are given by name come before them.
        ``max_in_flight``: messages a consumer holds, unless ``options`` say it.
        """
        driver: QueueDriverProtocol = SQSDriver(
            region,
            config=override(config or SQSDriverConfig(), queue_url=queue_url),
            visibility_timeout=visibility_timeout,
        )
        super().__init__(driver, options=options or BusOptions(prefetch=max_in_flight))
        self.set_tracer(tracer)


def _of_url(queue_url: str | None) -> tuple[str | None, str | None]:
    """Endpoint and prefix in a URL such as https://sqs.eu-west-1.amazonaws.com/123456789012/shop."""
    if not queue_url:
        return None, None
    parts = urlsplit(queue_url)
    if not parts.scheme or not parts.netloc:
        raise ValueError(
            f"queue_url must be a URL such as https://host/account/name, not {queue_url!r}"
        )
    return f"{parts.scheme}://{parts.netloc}", parts.path.rsplit("/", 1)[-1] or None


def build(entry: NamedQueueConfig, services: Services) -> SQSDriver:
    """The driver a configuration asks for."""
    own = entry.sqs or SQSDriverConfig()
    return SQSDriver(
        config=own,
        visibility_timeout=own.visibility_timeout or entry.visibility_timeout,
        max_backlog=entry.max_backlog,
        dedup_window=entry.dedup_window,
        services=services,
    )

"""The bus on Amazon SQS: a queue for each group, and one beside it for its dead letters.

SQS has no topics. A publisher sends a copy to the queue of every group a topic has, and learns
which these are from the names of the queues, which it lists. A list is taken for true for
``groups_refresh`` seconds, and whoever makes a new group waits until every older list is over:
once a group is declared, no message passes it by.

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
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import anyio
from attrs import define, field

from lexigram import clock
from lexigram.contracts.core.health import HealthCheckResult
from lexigram.contracts.data.blobs import (
    BlobCorruptError,
    BlobError,
    BlobNotFoundError,
    BlobStoreProtocol,
)
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    CapabilityError,
    DeadLetterEntry,
    Delivery,
    MessageTooLargeError,
    NotConnectedError,
    QueueError,
    QueueFullError,
)
from lexigram.queue.backends.clouds import health_of, translated
from lexigram.queue.backends.sqs_wire import (
    BATCH,
    HEADERS,
    LARGEST,
    LATEST,
    LONGEST_LEASE,
    OWN_HEADERS,
    RETENTION,
    Content,
    Json,
    Place,
    Received,
    batches,
    from_tags,
    groups_prefix,
    header_bytes,
    inline,
    is_for_patterns,
    received,
    reference,
    topic_mark,
    wire,
)
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig, SQSDriverConfig
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.drivers.libraries import require_library
from lexigram.queue.drivers.services import Services
from lexigram.queue.envelope import delay_of, redriven
from lexigram.queue.errors import SQSQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.topics import is_pattern, matcher

if TYPE_CHECKING:
    from lexigram.contracts.queue import QueueDriverProtocol

NAME: Final = "sqs"
EXTRA: Final = "sqs"
DEFAULT_PREFIX: Final = "lexigram"

# Not TTL and PRIORITY: SQS has neither. Not FAIRNESS: a fair queue promises no order of its own.
# Not PEEK: SQS looks by taking. Not PAUSE: what a queue is told takes up to a minute to be known.
# ORDERING and DEDUP are what FIFO queues have (setting ``fifo``).
CAPABILITIES: Final = frozenset(Capability) - {
    Capability.TTL,
    Capability.PRIORITY,
    Capability.FAIRNESS,
    Capability.PEEK,
    Capability.PAUSE,
    Capability.ORDERING,
    Capability.DEDUP,
}
OF_FIFO: Final = frozenset({Capability.ORDERING, Capability.DEDUP})

DEDUP_WINDOW: Final = 300.0  # seconds, of the service
MOST_RECEIVES: Final = 1000  # of the service; the runtime counts its own, far below
LONGEST_POLL: Final = 20  # seconds, of the service
DELETED_FOR: Final = 60.0  # seconds until a queue of the same name can be made again
MARGIN: Final = 1.0  # seconds a send may take after its list of groups was over
LOOK: Final = 1  # seconds to wait for messages in a queue that may be empty
HOLD: Final = 60  # seconds dead letters are held while they are looked through
SHORT_POLLS: Final = 0.1  # seconds between looks, where less than a second is waited for
ATTEMPTS: Final = 4  # of a request that was throttled, or whose entries were
CONNECTIONS: Final = 100
WANTED: Final = ["ApproximateReceiveCount", "SentTimestamp", "MessageGroupId"]

_log = logging.getLogger(__name__)


class SQSDriver:
    """One member on an account and region; its queues begin with ``prefix``."""

    name = NAME

    def __init__(
        self,
        region: str = "us-east-1",
        *,
        prefix: str = DEFAULT_PREFIX,
        endpoint_url: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        fifo: bool = False,
        groups_refresh: float = 2.0,
        inline_bytes: int = 256 * 1024,
        timeout: float = 10.0,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
        blobs: BlobStoreProtocol | None = None,
        services: Services | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,19}", prefix):
            text = "prefix must be at most 20 letters, digits and dashes"
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
        self.address = endpoint_url or f"SQS in {region}"
        self.blobs = blobs
        self._region, self._endpoint_url = region, endpoint_url
        self._keys = (access_key_id, secret_access_key)
        self._refresh, self._inline_bytes, self._timeout = groups_refresh, inline_bytes, timeout
        self._max_backlog, self._services = max_backlog, services
        self._opening = asyncio.Lock()
        self._space: _Space | None = None

    def __repr__(self) -> str:
        return f"SQSDriver({self.address}, prefix={self.prefix!r})"

    @property
    def max_message_bytes(self) -> int | None:
        """What a message holds beside its headers; no limit with a blob store."""
        return None if self.blobs is not None else LARGEST - HEADERS

    # Life.

    async def connect(self) -> None:
        """Open the clients and list the groups; SQS knows no connections."""
        async with self._opening:
            if self.blobs is None and self._services is not None:
                self.blobs = await self._services.find(BlobStoreProtocol)
            space = self._space or await self._open()
            try:
                with self._translated("connect"):
                    async with asyncio.timeout(self._timeout):
                        await self._list(space)
            except BaseException:
                # Those in use stay open: there is no connection that could be broken.
                if space is not self._space:
                    await space.close()
                raise
            self._space = space

    async def _open(self) -> _Space:
        require_library("aiobotocore.session", extra=EXTRA)
        config = require_library("aiobotocore.config", extra=EXTRA).AioConfig
        access, secret = self._keys

        def options(attempts: int, patience: float) -> Json:
            return {
                "region_name": self._region,
                "endpoint_url": self._endpoint_url,
                "aws_access_key_id": access,
                "aws_secret_access_key": secret,
                "config": config(
                    connect_timeout=self._timeout,
                    read_timeout=patience,
                    max_pool_connections=CONNECTIONS,
                    retries={"mode": "standard", "total_max_attempts": attempts},
                ),
            }

        # Receiving gives up at once: the runtime tries again.
        wanted = [options(ATTEMPTS, self._timeout), options(1, self._timeout + LONGEST_POLL)]
        stack = AsyncExitStack()
        with self._translated("connect"):
            try:
                session = await _session(wanted[0])
                asking, reading = [
                    await stack.enter_async_context(session.create_client("sqs", **one))
                    for one in wanted
                ]
            except BaseException:
                await stack.aclose()
                raise
        return _Space(asking=asking, reading=reading, stack=stack)

    async def close(self) -> None:
        """Leave; what was not settled is delivered again when its lease ends."""
        space, self._space = self._space, None
        if space is not None:
            await space.close()

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make both queues exist; the first group begins with what was kept."""
        space, place = self._now(), self._place(topic, group)
        with self._translated("declare", topic):
            facts = await self._facts(space, place.queue)
            if facts is None or "RedrivePolicy" not in facts:
                await self._make(space, place)
                facts = await self._facts(space, place.queue) or {}
            space.listed_until = 0.0
            await self._be_known(space, place, float(facts.get("CreatedTimestamp", 0)))
            if not is_pattern(topic):
                await self._take_over(space, place)

    async def _make(self, space: _Space, place: Place) -> None:
        await self._create(space, place.dead, place.tags)
        facts = await self._facts(space, place.dead) or {}
        # Attributes are set afterwards: with others than the queue has, making it is an error.
        await space.asking.set_queue_attributes(
            QueueUrl=space.urls[place.dead], Attributes={"MessageRetentionPeriod": str(RETENTION)}
        )
        await self._create(space, place.queue, place.tags)
        policy = (
            f'{{"deadLetterTargetArn":"{facts["QueueArn"]}","maxReceiveCount":{MOST_RECEIVES}}}'
        )
        await space.asking.set_queue_attributes(
            QueueUrl=space.urls[place.queue],
            Attributes={"MessageRetentionPeriod": str(RETENTION), "RedrivePolicy": policy},
        )

    async def _create(self, space: _Space, queue: str, tags: Mapping[str, str]) -> None:
        attributes = {"FifoQueue": "true"} if queue.endswith(".fifo") else {}
        with anyio.fail_after(DELETED_FOR + self._timeout):
            while True:
                try:
                    made = await space.asking.create_queue(
                        QueueName=queue, Attributes=attributes, tags=dict(tags)
                    )
                except _client_error() as error:
                    if "QueueDeletedRecently" not in _code(error):
                        raise
                    await anyio.sleep(1)  # it was dropped less than a minute ago
                else:
                    space.urls[queue] = made["QueueUrl"]
                    return

    async def _be_known(self, space: _Space, place: Place, created: float) -> None:
        """Return when every publisher has a list with this group in it."""
        if not self._refresh:
            return  # nobody keeps a list
        with anyio.fail_after(DELETED_FOR + self._timeout):
            while place.queue not in await self._list(space):  # noqa: ASYNC110 - SQS tells nobody
                await anyio.sleep(0.2)  # SQS lists a new queue a little later
        await anyio.sleep(max(0.0, created + self._refresh + 2 * MARGIN - clock.timestamp()))

    async def _take_over(self, space: _Space, place: Place) -> None:
        """Move what the keeper has into the queue of the first group."""
        keeper = place.keeper
        if await self._facts(space, keeper) is None or not await self._is_first(space, place):
            return
        async for page in self._drain(space, keeper):
            outs = [wire(one.message(place.topic, b""), one.content, place.queue) for one in page]
            await self._send(space, place.queue, outs)
            await self._delete(space, keeper, [one.handle for one in page])

    async def _is_first(self, space: _Space, place: Place) -> bool:
        """Whether no group of the topic is older; two that begin at once must not share."""
        ages: list[tuple[float, str]] = []
        for queue in {place.queue, *self._plain(await self._list(space), place.topic)}:
            facts = await self._facts(space, queue)
            if facts is not None:
                ages.append((float(facts["CreatedTimestamp"]), queue))
        return min(ages)[1] == place.queue

    async def drop(self, topic: str, group: str) -> None:
        """Delete both queues, and what they have in the blob store."""
        space, place = self._now(), self._place(topic, group)
        with self._translated("drop", topic):
            space.listed_until = 0.0
            for queue in (place.queue, place.dead):
                url = await self._url(space, queue)
                if url is not None:
                    await self._unless_gone(space.asking.delete_queue(QueueUrl=url))
                space.urls.pop(queue, None)
            if self.blobs is not None:
                paths = [info.path async for info in self.blobs.list(self._folder(place.queue))]
                for path in paths:
                    await self.blobs.delete(path)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All queues of this prefix that say which group they are of."""
        space = self._now()
        with self._translated("list groups"):
            found = [await self._names(space, queue) for queue in await self._list(space)]
        return [names for names in found if names is not None]

    async def _list(self, space: _Space) -> frozenset[str]:
        """Ask which groups there are, and remember it."""
        begun, urls = asyncio.get_running_loop().time(), list[str]()
        asked: Json = {"QueueNamePrefix": groups_prefix(self.prefix), "MaxResults": 1000}
        while True:
            page = await space.asking.list_queues(**asked)
            urls += page.get("QueueUrls", [])
            if not page.get("NextToken"):
                break
            asked["NextToken"] = page["NextToken"]
        names = {url.rsplit("/", 1)[-1]: url for url in urls}
        space.urls.update(names)
        space.listed, space.listed_until = frozenset(names), begun + self._refresh
        return space.listed

    async def _known(self, space: _Space) -> frozenset[str]:
        """The list, not older than ``groups_refresh``; those who ask at once share an answer."""
        async with space.listing:
            if space.listed_until > asyncio.get_running_loop().time():
                return space.listed
            return await self._list(space)

    async def _names(self, space: _Space, queue: str) -> tuple[str, str] | None:
        """Topic and group of a queue. Never change, so they are asked for once."""
        if queue not in space.names:
            url = space.urls[queue]
            answer = await self._unless_gone(space.asking.list_queue_tags(QueueUrl=url))
            if answer is None:
                return None
            space.names[queue] = from_tags(answer.get("Tags", {}))
        return space.names[queue]

    def _plain(self, queues: frozenset[str], topic: str) -> list[str]:
        begin = groups_prefix(self.prefix) + topic_mark(topic)
        return sorted(queue for queue in queues if queue.startswith(begin))

    async def _targets(self, space: _Space, queues: frozenset[str], topic: str) -> list[str]:
        """The queues of all groups that get what is sent to a topic."""
        found = self._plain(queues, topic)
        for queue in queues:
            if is_for_patterns(queue, self.prefix):
                names = await self._names(space, queue)
                if names is not None and matcher(names[0])(topic):
                    found.append(queue)
        return found

    async def _url(self, space: _Space, queue: str) -> str | None:
        """Where a queue is, or None when it is not."""
        if queue not in space.urls:
            answer = await self._unless_gone(space.asking.get_queue_url(QueueName=queue))
            if answer is None:
                return None
            space.urls[queue] = answer["QueueUrl"]
        return space.urls[queue]

    async def _facts(self, space: _Space, queue: str) -> Mapping[str, str] | None:
        """The attributes of a queue, or None when there is none."""
        url = await self._url(space, queue)
        if url is None:
            return None
        asked = space.asking.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        answer = await self._unless_gone(asked)
        if answer is None:
            space.urls.pop(queue, None)
            return None
        attributes: Mapping[str, str] = answer["Attributes"]
        return attributes

    async def _unless_gone(self, asked: Awaitable[Any]) -> Any:
        try:
            return await asked
        except _client_error() as error:
            if not _is_gone(error):
                raise
            return None

    # In.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send to the queue of every group, in as few requests as fit."""
        space = self._now()
        contents = {id(message): self._checked(message) for message in messages}
        left, gone = list(messages), set[str]()
        try:
            while left:
                with self._translated("publish", left[0].topic):
                    plan = await self._plan(space, left, gone)
                sending = _Sending(contents=contents)
                async with anyio.create_task_group() as tasks:
                    for queue, share in plan.items():
                        tasks.start_soon(self._publish, space, queue, share, sending)
                gone |= sending.gone
                if sending.error is not None:
                    failed = sending.failed | _never_confirmed(left, sending)
                    sending.error.details["unconfirmed"] = [
                        message.id for message in left if message.id in failed
                    ]
                    raise sending.error
                # Groups dropped since they were listed get nothing; but somebody must.
                left = [message for message in left if message.id not in sending.confirmed]
                if sending.gone:
                    space.listed_until = 0.0
        except QueueError as error:
            error.details.setdefault("unconfirmed", [message.id for message in left])
            raise

    async def _plan(
        self, space: _Space, messages: Sequence[BusMessage], gone: set[str]
    ) -> dict[str, list[BusMessage]]:
        """What goes to which queue, in order."""
        queues = await self._known(space) - gone
        targets: dict[str, list[str]] = {}
        plan: dict[str, list[BusMessage]] = {}
        for message in messages:
            topic = message.topic
            if topic not in targets:
                found = await self._targets(space, queues, topic)
                targets[topic] = found or [await self._keeper(space, topic)]
            for queue in targets[topic]:
                plan.setdefault(queue, []).append(message)
        return plan

    async def _keeper(self, space: _Space, topic: str) -> str:
        place = self._place(topic, "")
        facts = await self._facts(space, place.keeper)
        if facts is None:
            await self._create(space, place.keeper, place.tags)
            await space.asking.set_queue_attributes(
                QueueUrl=space.urls[place.keeper],
                Attributes={"MessageRetentionPeriod": str(RETENTION)},
            )
        room = self._max_backlog - int((facts or {}).get("ApproximateNumberOfMessages", 0))
        space.rooms[place.keeper] = max(0, room)
        return place.keeper

    async def _publish(
        self, space: _Space, queue: str, messages: Sequence[BusMessage], sending: _Sending
    ) -> None:
        """Send to one queue; what happens is told in ``sending``, so that the others go on."""
        room = space.rooms.pop(queue, None)
        waiting = list(messages[:room])
        try:
            with self._translated("publish", messages[0].topic):
                # A page at a time: a claim check holds its body no longer than needed.
                for start in range(0, len(waiting), BATCH):
                    page = waiting[start : start + BATCH]
                    outs = [
                        await self._out(
                            queue, one, sending.contents[id(one)], kept=room is not None
                        )
                        for one in page
                    ]
                    await self._send(space, queue, outs)
                    sending.confirmed.update(one.id for one in page)
                    sending.counts[queue] = start + len(page)
            if room is not None and room < len(messages):
                raise QueueFullError(
                    f"topic {messages[0].topic} has no group and keeps {self._max_backlog} messages",
                    backend=NAME,
                    topic=messages[0].topic,
                    hint="start a consumer of the topic, or raise max_backlog",
                )
        except QueueError as error:
            if error.details.get("gone") == queue:
                sending.gone.add(queue)
                space.urls.pop(queue, None)
                return
            done = sending.counts.get(queue, 0)
            sending.failed.update(one.id for one in messages[done:])
            sending.error = error

    async def _out(
        self, queue: str, message: BusMessage, content: Content | None, *, kept: bool = False
    ) -> Json:
        """An entry; a body that is too large is put into the blob store first."""
        if content is None:
            content = await self._store(queue, message)
        made = wire(message, content, queue)
        if kept:
            made.pop("DelaySeconds", None)  # it could not be taken over while it waits
        return made

    async def _store(self, queue: str, message: BusMessage) -> Content:
        assert self.blobs is not None
        path = f"{self._folder(queue)}{uuid4().hex}"
        await self.blobs.upload(path, message.payload)
        return reference(path, message.payload)

    def _folder(self, queue: str) -> str:
        return f"queue/{queue}/"  # of one queue: what a group has settled, no other needs

    def _checked(self, message: BusMessage) -> Content | None:
        """The body; None when it goes to the blob store. Raises before anything is sent."""
        if delay_of(message) > LATEST:
            raise _cannot(
                Capability.SCHEDULE, message.topic, f"SQS keeps it for {LATEST / 86400:g} days"
            )
        content = inline(message.payload)
        length, headers = len(content.text.encode()), header_bytes(message)
        if headers <= OWN_HEADERS:
            if self.blobs is not None and length > self._inline_bytes:
                return None
            if length <= LARGEST - HEADERS:
                return content
        raise MessageTooLargeError(
            f"{length} bytes of body and {headers} of headers are more than SQS takes "
            f"({LARGEST - HEADERS} and {OWN_HEADERS}); bytes that are no text count 4 for 3",
            backend=NAME,
            topic=message.topic,
            hint="add BlobModule: large bodies go there; or send a reference to stored content",
        )

    async def _send(self, space: _Space, queue: str, outs: Sequence[Json]) -> None:
        """Send entries in order; returns when SQS confirmed all of them."""
        url = await self._url(space, queue)
        if url is None:
            raise _gone(queue)
        for batch in batches(outs):
            left = [{"Id": str(number), **made} for number, made in enumerate(batch)]
            failed: dict[str, Json] = {}
            for attempt in range(ATTEMPTS):
                try:
                    answer = await space.asking.send_message_batch(QueueUrl=url, Entries=left)
                except _client_error() as error:
                    if _is_gone(error):
                        raise _gone(queue) from error
                    raise
                failed = {str(one["Id"]): one for one in answer.get("Failed", [])}
                left = [made for made in left if made["Id"] in failed]
                if not left:
                    break
                if any(one.get("SenderFault") for one in failed.values()):
                    raise self._refused(next(iter(failed.values())))
                await anyio.sleep(0.1 * 2**attempt)
            else:
                raise self._refused(next(iter(failed.values())))

    def _refused(self, failed: Mapping[str, Any]) -> SQSQueueError:
        code = str(failed.get("Code"))
        return SQSQueueError(
            f"SQS did not take a message: {failed.get('Message') or code}",
            details={"code": code},
            hint=_hint(code, None),
        )

    # Out.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Take what is there, or wait for it by long polls."""
        space, place = self._now(), self._place(topic, group)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        with self._translated("receive", topic):
            url = await self._url(space, place.queue)
            if url is None:
                raise _missing(topic, group)
            while True:
                left = deadline - loop.time()
                found = await self._poll(space, place, url, limit, max(0.0, left))
                if found or deadline - loop.time() <= 0:
                    return found
                if left < 1:  # SQS waits for whole seconds
                    await anyio.sleep(min(SHORT_POLLS, max(0.0, deadline - loop.time())))

    async def _poll(
        self, space: _Space, place: Place, url: str, limit: int, wait: float
    ) -> list[Delivery]:
        found: list[Delivery] = []
        seconds = min(LONGEST_POLL, int(wait))
        while len(found) < limit:
            asked = min(BATCH, limit - len(found))
            raws = await self._take(space, place.queue, url, asked, self._lease, seconds)
            until = asyncio.get_running_loop().time() + self._lease
            firsts = await self._firsts(space, place.queue, raws)
            due = await self._due(space, place.queue, firsts)
            found += await self._deliveries(space, place, due, until)
            if len(raws) < asked:
                break
            seconds = 0
        return sorted(found, key=lambda one: one.receipt.raw.since)  # as they became due

    async def _take(
        self, space: _Space, queue: str, url: str, number: int, hold: int, wait: int
    ) -> list[Received]:
        try:
            answer = await space.reading.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=number,
                VisibilityTimeout=hold,
                WaitTimeSeconds=wait,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=WANTED,
            )
        except _client_error() as error:
            if _is_gone(error):
                space.urls.pop(queue, None)
            raise
        return [received(raw) for raw in answer.get("Messages", [])]

    async def _firsts(
        self, space: _Space, queue: str, found: Sequence[Received]
    ) -> Sequence[Received]:
        """One of each key: a FIFO queue gives several at once, and the second must wait."""
        firsts: dict[str, Received] = {}
        if self.fifo:
            for one in found:
                firsts.setdefault(one.key or one.id, one)
        if not self.fifo or len(firsts) == len(found):
            return found
        kept = list(firsts.values())
        await self._hide(space, queue, {one.handle: 0 for one in found if one not in kept})
        return kept

    async def _due(
        self, space: _Space, queue: str, found: Sequence[Received]
    ) -> Sequence[Received]:
        """Those whose time has come; the others are hidden until it comes."""
        now = clock.timestamp()
        early = {
            one.handle: one.due - now for one in found if one.due is not None and one.due > now
        }
        if not early:
            return found
        seconds = {handle: min(LONGEST_LEASE, ceil(left)) for handle, left in early.items()}
        await self._hide(space, queue, seconds)
        return [one for one in found if one.handle not in early]

    async def _deliveries(
        self, space: _Space, place: Place, found: Sequence[Received], until: float
    ) -> list[Delivery]:
        made: list[Delivery] = []
        try:
            for one in found:
                message = one.message(place.topic, await self._payload(one))
                held = _Held(raw=one, queue=place.queue, began=until - self._lease, until=until)
                made.append(
                    Delivery(
                        message=message,
                        topic=place.topic,
                        group=place.group,
                        receipt=held,
                        delivery_count=one.deliveries(fifo=self.fifo),
                    )
                )
        except BlobError as error:  # the store is down: all of them come again
            await self._hide(space, place.queue, {one.handle: 0 for one in found})
            raise SQSQueueError(
                f"the body of a message is not to be had: {error}",
                topic=place.topic,
                hint="check the blob store; the message comes again",
            ) from error
        return made

    async def _payload(self, one: Received) -> bytes:
        where = one.blob
        if where is None:
            return one.payload()
        if self.blobs is None:
            raise BlobError("the body is in a blob store, and there is none", hint="add BlobModule")
        path, digest = where
        try:
            return one.payload(await self.blobs.download(path, sha256=digest))
        except (BlobNotFoundError, BlobCorruptError) as error:
            _log.error("the body of message %s is lost: %s", one.id, error)
            return one.payload()  # what could be read: the reference

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Delete them, ten in a request."""
        space = self._now()
        for queue, held in self._ours(deliveries).items():
            with self._translated("acknowledge", deliveries[0].topic):
                await self._delete(space, queue, [one.raw.handle for one in held])
                for one in held:
                    one.finish()
                await self._forget_bodies([one.raw for one in held])

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Make them visible: they come again at once."""
        space = self._now()
        for queue, held in self._ours(deliveries).items():
            with self._translated("release", deliveries[0].topic):
                await self._hide(space, queue, {one.raw.handle: 0 for one in held})
            for one in held:
                one.finish()

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Hide them for longer; SQS ends it twelve hours after a message was received."""
        space, now = self._now(), asyncio.get_running_loop().time()
        kept: set[_Held] = set()
        for queue, held in self._ours(deliveries).items():
            with self._translated("extend", deliveries[0].topic):
                kept.update(await self._renew(space, queue, held, ceil(seconds), now))
        lost = [delivery for delivery in deliveries if delivery.receipt not in kept]
        for delivery in lost:
            delivery.receipt.finish()
        return lost

    async def _renew(
        self, space: _Space, queue: str, held: Sequence[_Held], seconds: int, now: float
    ) -> list[_Held]:
        """Those that are still ours, for so long."""
        times = {one.raw.handle: min(seconds, int(one.began + LONGEST_LEASE - now)) for one in held}
        lost = await self._hide(space, queue, {handle: s for handle, s in times.items() if s > 0})
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
        with self._translated("nack", delivery.topic):
            if message is None and now + delay < held.began + LONGEST_LEASE - 1:
                await self._hide(space, held.queue, {held.raw.handle: max(0, ceil(delay))})
                held.finish()
                return
            if delay > LATEST:
                raise _cannot(Capability.DELAYED_RETRY, delivery.topic, "lower the cap of retries")
            out = await self._copy(delivery, message or delivery.message, delay)
            if await self._renew(space, held.queue, [held], self._lease, now):
                await self._send(space, held.queue, [out])
                await self._delete(space, held.queue, [held.raw.handle])
        held.finish()

    async def _copy(self, delivery: Delivery, message: BusMessage, delay: float) -> Json:
        """The message again: a crash between copy and deletion doubles, on FIFO not even that."""
        held: _Held = delivery.receipt
        content = held.raw.content
        if message.payload != delivery.message.payload:
            content = self._checked(message) or await self._store(held.queue, message)
        return wire(message, content, held.queue, delay=delay, dedup=held.raw.id)

    def _ours(self, deliveries: Sequence[Delivery]) -> dict[str, list[_Held]]:
        now, found = asyncio.get_running_loop().time(), dict[str, list[_Held]]()
        for delivery in deliveries:
            held: _Held = delivery.receipt
            if now < held.until:
                found.setdefault(held.queue, []).append(held)
        return found

    async def _delete(self, space: _Space, queue: str, handles: Sequence[str]) -> None:
        """Delete by receipt; one that SQS no longer knows is somebody else's by now."""

        async def ask(url: str, numbers: Mapping[str, str]) -> Any:
            entries = [{"Id": one, "ReceiptHandle": handle} for one, handle in numbers.items()]
            return await space.asking.delete_message_batch(QueueUrl=url, Entries=entries)

        await self._by_tens(space, queue, handles, ask)

    async def _hide(self, space: _Space, queue: str, seconds: Mapping[str, int]) -> set[str]:
        """Hide by receipt for so many seconds; returns those that are lost."""

        async def ask(url: str, numbers: Mapping[str, str]) -> Any:
            entries = [
                {"Id": one, "ReceiptHandle": handle, "VisibilityTimeout": seconds[handle]}
                for one, handle in numbers.items()
            ]
            return await space.asking.change_message_visibility_batch(QueueUrl=url, Entries=entries)

        return await self._by_tens(space, queue, list(seconds), ask)

    async def _by_tens(
        self,
        space: _Space,
        queue: str,
        handles: Sequence[str],
        ask: Callable[[str, Mapping[str, str]], Awaitable[Any]],
    ) -> set[str]:
        """Requests about receipts; those SQS refuses for good are returned, throttled ones tried."""
        url, refused = await self._url(space, queue), set[str]()
        if url is None:
            return set(handles)  # the group was dropped
        for start in range(0, len(handles), BATCH):
            left = {str(number): one for number, one in enumerate(handles[start : start + BATCH])}
            failed: list[Json] = []
            for attempt in range(ATTEMPTS):
                answer = await self._unless_gone(ask(url, left))
                failed = list(answer.get("Failed", [])) if answer else []
                final = [one for one in failed if one.get("SenderFault")]
                refused.update(left[one["Id"]] for one in final)
                left = {one["Id"]: left[one["Id"]] for one in failed if one not in final}
                if not left:
                    break
                await anyio.sleep(0.1 * 2**attempt)
            else:
                raise self._refused(failed[0])
        return refused

    async def _forget_bodies(self, raws: Sequence[Received]) -> None:
        """Delete what settled messages have in the blob store; a failure leaves it there."""
        for raw in raws:
            where = raw.blob
            if where is not None and self.blobs is not None:
                try:
                    await self.blobs.delete(where[0])
                except BlobError as error:
                    _log.warning("the body %s of a settled message is left: %s", where[0], error)

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Send it to the queue of the dead letters with the entry as attributes, then delete it."""
        space, held = self._now(), delivery.receipt
        if not self._ours([delivery]):
            return
        place = self._place(delivery.topic, delivery.group)
        with self._translated("dead letter", delivery.topic):
            now = asyncio.get_running_loop().time()
            if await self._renew(space, held.queue, [held], self._lease, now):
                out = wire(
                    entry.message, held.raw.content, place.dead, dedup=held.raw.id, dead=entry
                )
                await self._send(space, place.dead, [out])
                await self._delete(space, held.queue, [held.raw.handle])
        held.finish()

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Take all, and let them go again."""
        space, place = self._now(), self._place(topic, group)
        handles: list[str] = []
        found: dict[str, DeadLetterEntry] = {}
        with self._translated("list dead letters", topic):
            try:
                async for page in self._drain(space, place.dead):
                    handles += [one.handle for one in page]
                    for one in page:
                        dead = one.dead_entry(topic, group, await self._payload(one))
                        found.setdefault(dead.message.id, dead)
            finally:
                await self._let_go(space, place.dead, handles)
        oldest = sorted(found.values(), key=lambda dead: dead.failed_at)
        return oldest[offset : offset + limit]

    async def _let_go(self, space: _Space, queue: str, handles: Sequence[str]) -> None:
        with anyio.move_on_after(self._timeout, shield=True):
            await self._hide(space, queue, dict.fromkeys(handles, 0))

    async def _drain(self, space: _Space, queue: str) -> AsyncIterator[list[Received]]:
        """All that is visible, page by page, held for a minute."""
        facts, taken = await self._facts(space, queue), 0
        if facts is None:
            return
        expected, url = int(facts["ApproximateNumberOfMessages"]), space.urls[queue]
        while True:
            # Its count is a moment old: a queue said to be empty is waited for, too.
            wait = LOOK if taken < max(1, expected) else 0
            page = await self._take(space, queue, url, BATCH, HOLD, wait)
            if not page:
                return
            taken += len(page)
            yield page

    async def count_dead(self, topic: str, group: str) -> int:
        """What SQS counts."""
        return await self._count("count dead letters", self._place(topic, group).dead, topic)

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Send them to the queue of the group again, then delete the dead ones.

        Not by a task of SQS (StartMessageMoveTask): it moves all, with their retries used up.
        """
        space, place = self._now(), self._place(topic, group)

        async def again(page: Sequence[tuple[Received, BusMessage]]) -> None:
            outs = [
                wire(redriven(message), raw.content, place.queue, dedup=raw.id)
                for raw, message in page
            ]
            await self._send(space, place.queue, outs)

        with self._translated("redrive", topic):
            return await self._clear_dead(space, place, ids, again)

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Delete the dead ones, and their bodies."""

        async def forget(page: Sequence[tuple[Received, BusMessage]]) -> None:
            await self._forget_bodies([raw for raw, _ in page])

        with self._translated("purge dead letters", topic):
            return await self._clear_dead(self._now(), self._place(topic, group), ids, forget)

    async def _clear_dead(
        self,
        space: _Space,
        place: Place,
        ids: Sequence[str] | None,
        before: Callable[[Sequence[tuple[Received, BusMessage]]], Awaitable[None]],
    ) -> int:
        """Take the wanted ones out; ``before`` hears of each page of them, each id once."""
        wanted = None if ids is None else set(ids)
        done: set[str] = set()
        others: list[str] = []
        try:
            async for page in self._drain(space, place.dead):
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
                if first:
                    await before(list(first.values()))
                await self._delete(space, place.dead, out)
                done.update(first)
                if wanted is not None and done >= wanted:
                    break
        finally:
            await self._let_go(space, place.dead, others)
        return len(done)

    # Looking and steering.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """Not declared: SQS looks by taking, and counts it as a delivery."""
        raise _cannot(Capability.PEEK, topic, "use depth and lag")

    async def purge(self, topic: str, group: str) -> int:
        """Take what waits and delete it; what is delayed stays."""
        space, place, total = self._now(), self._place(topic, group), 0
        with self._translated("purge", topic):
            async for page in self._drain(space, place.queue):
                await self._delete(space, place.queue, [one.handle for one in page])
                await self._forget_bodies(page)
                total += len(page)
        return total

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Not declared: what a queue is told takes up to a minute to be known."""
        raise _cannot(Capability.PAUSE, topic, "stop the consumers")

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
        with self._translated(what, topic):
            facts = await self._facts(self._now(), queue)
        return sum(
            int((facts or {}).get(f"ApproximateNumberOfMessages{kind}", 0)) for kind in ("", *more)
        )

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when SQS answers in time."""

        async def ask() -> None:
            space, prefix = self._now(), groups_prefix(self.prefix)
            with self._translated("health check"):
                await space.asking.list_queues(QueueNamePrefix=prefix, MaxResults=1)

        facts = {"address": self.address, "prefix": self.prefix}
        return await health_of(ask, "SQS", facts, timeout)

    # Names and errors.

    def _now(self) -> _Space:
        if self._space is None:
            raise NotConnectedError(
                "SQSDriver not connected", backend=NAME, hint="await driver.connect() first"
            )
        return self._space

    def _place(self, topic: str, group: str) -> Place:
        return Place(prefix=self.prefix, topic=topic, group=group, fifo=self.fifo)

    def _translated(self, what: str, topic: str = "unknown") -> AbstractContextManager[None]:
        """The one place where errors of the client and the service become ours."""
        return translated(_is_foreign, lambda error: self._error(error, what, topic))

    def _error(self, error: Exception, what: str, topic: str) -> QueueError:
        code, status = _code(error), _status(error)
        text = f"could not {what} on {self.address}: {str(error) or code}"
        if code.endswith("BatchRequestTooLong") or "must be shorter than" in text:
            hint = "raise MaximumMessageSize of the queue, or lower sqs.inline_bytes"
            return MessageTooLargeError(text, backend=NAME, topic=topic, hint=hint)
        if isinstance(error, BlobError):
            hint = "check the blob store; what was not confirmed can be sent again"
            return SQSQueueError(text, topic=topic, hint=hint)
        return SQSQueueError(text, topic=topic, hint=_hint(code, status), details={"code": code})


def _is_foreign(error: Exception) -> bool:
    """The client has two bases, and the blob store one."""
    library = require_library("botocore.exceptions", extra=EXTRA)
    return isinstance(error, BlobError | library.ClientError | library.BotoCoreError)


def _hint(code: str, status: int | None) -> str:
    last = code.rsplit(".", 1)[-1]
    if last in _CREDENTIALS or "AccessDenied" in last or status in (401, 403):
        return (
            "check sqs.access_key_id and sqs.secret_access_key, or the role of this machine; the "
            "rights it needs are in docs/how-to/brokers.md"
        )
    if "Throttl" in last or last in ("OverLimit", "TooManyRequests") or status in (429, 503):
        return "SQS throttles: it is tried again later; ask AWS for a higher quota if it stays so"
    if last in _GONE:
        return "the queue is not there: declare the group, or check sqs.queue_url and sqs.region"
    if "InvalidMessageContents" in last or "InvalidParameter" in last:
        return "SQS refuses this setting or message; its text says which"
    return "check sqs.region and sqs.queue_url, and that SQS can be reached"


_CREDENTIALS: Final = frozenset(
    {
        "InvalidClientTokenId",
        "InvalidSecurity",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        "ExpiredToken",
        "ExpiredTokenException",
        "MissingAuthenticationToken",
        "IncompleteSignature",
        "NoCredentialsError",
        "PartialCredentialsError",
    }
)
_GONE: Final = frozenset({"NonExistentQueue", "QueueDoesNotExist"})


def _code(error: BaseException) -> str:
    return str(_answer(error, "Error").get("Code") or type(error).__name__)


def _status(error: BaseException) -> int | None:
    found = _answer(error, "ResponseMetadata").get("HTTPStatusCode")
    return None if found is None else int(found)


def _answer(error: BaseException, part: str) -> Json:
    """What SQS said, where it said anything."""
    answer: Json = getattr(error, "response", None) or {}
    found: Json = answer.get(part) or {}
    return found


def _is_gone(error: BaseException) -> bool:
    return _code(error).rsplit(".", 1)[-1] in _GONE


def _client_error() -> type[Exception]:
    found: type[Exception] = require_library("botocore.exceptions", extra=EXTRA).ClientError
    return found


def _gone(queue: str) -> SQSQueueError:
    """A group was dropped since it was listed."""
    return SQSQueueError(
        f"queue {queue} is gone",
        details={"gone": queue},
        hint=_hint("QueueDoesNotExist", None),
    )


def _missing(topic: str, group: str) -> SQSQueueError:
    return SQSQueueError(
        f"group {group} of {topic} does not exist",
        topic=topic,
        hint="declare the group first; the queues of another prefix are others",
    )


def _cannot(wanted: Capability, topic: str, instead: str) -> CapabilityError:
    return CapabilityError(
        f"SQS cannot do this {wanted.value}", backend=NAME, topic=topic, hint=instead
    )


def _never_confirmed(messages: Sequence[BusMessage], sending: _Sending) -> set[str]:
    return {message.id for message in messages} - sending.confirmed


# What is open.


@define(eq=False, kw_only=True)
class _Space:
    """Both clients, and what is known of the account."""

    asking: Any
    reading: Any  # gives up at once, and waits for long polls
    stack: AsyncExitStack
    urls: dict[str, str] = field(factory=dict[str, str])
    names: dict[str, tuple[str, str] | None] = field(factory=dict[str, tuple[str, str] | None])
    rooms: dict[str, int] = field(factory=dict[str, int])
    listed: frozenset[str] = frozenset()
    listed_until: float = 0.0
    listing: asyncio.Lock = field(factory=asyncio.Lock)

    async def close(self) -> None:
        with anyio.move_on_after(10, shield=True):
            await self.stack.aclose()


@define(eq=False, kw_only=True)
class _Held:
    """One delivery, as long as it is ours."""

    raw: Received
    queue: str
    began: float
    until: float

    def finish(self) -> None:
        self.until = 0.0


@define(eq=False, kw_only=True)
class _Sending:
    """How far one publish_many has come in all its queues."""

    contents: Mapping[int, Content | None]  # by the identity of the message
    confirmed: set[str] = field(factory=set[str])  # in one queue at least
    failed: set[str] = field(factory=set[str])
    gone: set[str] = field(factory=set[str])
    counts: dict[str, int] = field(factory=dict[str, int])
    error: QueueError | None = None


@cache
def _loader() -> Any:
    """The descriptions of AWS, read once for all."""
    return require_library("botocore.loaders", extra=EXTRA).create_loader()


async def _session(options: Mapping[str, Any]) -> Any:
    """A session that has read its files, which blocks: a client is made in a thread, for nothing."""
    session = require_library("aiobotocore.session", extra=EXTRA).get_session()
    session.register_component("data_loader", _loader())
    unused = session.create_client("sqs", **options)
    await anyio.to_thread.run_sync(asyncio.run, unused.__aenter__())
    await anyio.to_thread.run_sync(asyncio.run, unused.__aexit__(None, None, None))
    return session


class SQSQueue(BusQueue):
    """The bus on SQS, usable without a container."""

    def __init__(
        self,
        region: str = "us-east-1",
        queue_url: str = "",
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_in_flight: int = 100,
        tracer: TracerProtocol | None = None,
        *,
        options: BusOptions | None = None,
        **settings: Any,
    ) -> None:
        """``queue_url``: where its queues are, and how their names begin.

        ``max_in_flight``: messages a consumer holds, unless ``options`` say it; ``settings``:
        those of the driver.
        """
        driver: QueueDriverProtocol = SQSDriver(
            region, visibility_timeout=visibility_timeout, **{**_of_url(queue_url), **settings}
        )
        super().__init__(driver, options=options or BusOptions(prefetch=max_in_flight))
        self.set_tracer(tracer)


def _of_url(queue_url: str | None) -> dict[str, Any]:
    """Endpoint and prefix in a URL such as https://sqs.eu-west-1.amazonaws.com/123456789012/shop."""
    if not queue_url:
        return {}
    parts = urlsplit(queue_url)
    if not parts.scheme or not parts.netloc:
        raise ValueError(
            f"queue_url must be a URL such as https://host/account/name, not {queue_url!r}"
        )
    found = {"endpoint_url": f"{parts.scheme}://{parts.netloc}"}
    prefix = parts.path.rsplit("/", 1)[-1]
    return {**found, "prefix": prefix} if prefix else found


def build(entry: NamedQueueConfig, services: Services) -> SQSDriver:
    """The driver a configuration asks for."""
    own = entry.sqs or SQSDriverConfig()
    return SQSDriver(
        own.region,
        access_key_id=own.access_key_id,
        secret_access_key=own.secret_access_key,
        fifo=own.fifo,
        groups_refresh=own.groups_refresh,
        inline_bytes=own.inline_bytes,
        timeout=own.timeout,
        visibility_timeout=own.visibility_timeout or entry.visibility_timeout,
        max_backlog=entry.max_backlog,
        dedup_window=entry.dedup_window,
        services=services,
        **_of_url(own.queue_url),
    )

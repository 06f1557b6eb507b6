"""The connection of a driver, its channels, and errors of the client as ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import anyio

from lexigram.contracts.queue import NotConnectedError, QueueError
from lexigram.leasing import Backoff
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.rabbitmq._frames import Transport
from lexigram.queue.backends.rabbitmq._names import Names
from lexigram.queue.backends.rabbitmq._wire import NAME
from lexigram.queue.errors import RabbitMQQueueError

TURNS: Final = Backoff(first=0.01, cap=0.1)  # between looks whether the registry is free
# A channel holds back what it has for a quorum queue while 32 commands are on the way, and a channel
# that is closed forgets it: 3 of 36 acknowledgements were lost.
ACKS_ON_THE_WAY: Final = 16
MEBIBYTE: Final = 1024 * 1024

_log = logging.getLogger(__name__)


class Connection:
    """One connection with a channel for publishing and one that hears of pauses."""

    def __init__(
        self,
        url: str,
        names: Names,
        *,
        timeout: float,
        heartbeat: int,
        hear: Callable[[Any], Awaitable[None]],
        lost: Callable[[], None],
    ) -> None:
        """``hear``: gets what is sent to the control exchange. ``lost``: all channels are gone."""
        self.timeout = timeout
        self.max_message_bytes: int | None = None
        self.client: Any = None  # the library
        self.changing = asyncio.Lock()
        self._locks: dict[str, asyncio.Lock] = {}  # by the queue that a task reads
        self._url, self._names, self._heartbeat = url, names, heartbeat
        self._hear, self._lost = hear, lost
        self._connection: Any = None
        self._publishing: Any = None  # the channel with confirms
        self._control: Any = None  # the channel that hears of pauses

    @property
    def is_open(self) -> bool:
        """False once it is closed, by either side."""
        return self._connection is not None and bool(self._connection.is_opened)

    async def answers(self) -> bool:
        """Whether it is open and the broker answers; opens channels that are closed."""
        if not self.is_open:
            return False
        try:
            await self._open_channels()
        except QueueError:
            _log.debug("the connection is of no use any more", exc_info=True)
            return False
        return True

    async def open(self) -> None:
        """Connect, and open the channels."""
        with self.translate_errors(f"connect to {self}"):
            self.client = self.client or require_library("aiormq", extra=NAME)
            async with asyncio.timeout(self.timeout):
                url = self._address()
                self._connection = await self.client.connect(
                    url, transport_factory=Transport(tls=url.scheme == "amqps")
                )
        await self._open_channels()

    async def _open_channels(self) -> None:
        connection = self._connection
        with self.translate_errors(f"open channels on {self}"):
            async with asyncio.timeout(self.timeout):
                if self._publishing is None or self._publishing.is_closed:
                    self._publishing = await connection.channel(on_return_raises=True)
                await self._publishing.exchange_declare(
                    self._names.exchange, exchange_type="topic", durable=True
                )
                await self._publishing.queue_declare(self._names.registry, durable=True)
                if self._control is None or self._control.is_closed:
                    self._control = await connection.channel(publisher_confirms=False)
                    await self._listen(self._control)
        version = str(connection.server_properties.get("version", ""))
        self.max_message_bytes = (16 if major(version) >= 4 else 128) * MEBIBYTE

    async def _listen(self, channel: Any) -> None:
        """Hear of groups that are paused or go on."""
        control = self._names.control
        await channel.exchange_declare(control, exchange_type="fanout", durable=True)
        mailbox = await channel.queue_declare("", exclusive=True, auto_delete=True)
        await channel.queue_bind(mailbox.queue, control)
        await channel.basic_consume(mailbox.queue, self._hear, no_ack=True)

    async def close(self) -> None:
        """Leave; a second call does nothing."""
        connection, self._connection = self._connection, None
        self._publishing = self._control = None
        self._lost()
        if connection is not None and not connection.is_closed:
            gone = self.client.exceptions.ConnectionClosed(320, "closed by the driver")
            # In a task of its own: while the broker hangs, aiormq answers the end of a time limit
            # with a cancellation of its own making, which would end the next connect().
            closing = asyncio.create_task(connection.close(gone))
            with anyio.CancelScope(shield=True):
                await asyncio.wait([closing], timeout=self.timeout)
                closing.cancel()  # nothing where it is closed; else the heartbeat ends it
                await asyncio.wait([closing])
            if not closing.cancelled() and (error := closing.exception()) is not None:
                _log.debug("closing the connection to %s: %r", self, error)

    def __str__(self) -> str:
        """Where it connects to, without user and password."""
        return mask_url(self._url)

    async def open_channel(self) -> Any:
        """A channel without confirms."""
        return await self._connection.channel(publisher_confirms=False)

    def _address(self) -> Any:
        """The URL with our heartbeat, unless it names its own."""
        yarl = require_library("yarl", extra=NAME)
        try:
            url = yarl.URL(self._url)
            known = url.scheme in ("amqp", "amqps") and url.host and url.port
        except ValueError:
            url = known = None
        if url is None or not known:
            raise RabbitMQQueueError(
                "the URL of RabbitMQ is not of the form amqp://user:password@host:port/vhost",
                hint="set rabbitmq.url; amqps:// for TLS; percent-encode special characters",
            )
        named = {"heartbeat": str(self._heartbeat), "name": "lexigram"}
        return url.update_query({**named, **url.query})

    def check(self) -> Any:
        """The channel for publishing, if there is one."""
        channel = self._publishing
        if self._connection is None:
            raise NotConnectedError(
                f"the driver is not connected to {self}",
                backend=NAME,
                hint="await connect() before use; after close() nothing is accepted",
            )
        if channel is None or channel.is_closed or not self._connection.is_opened:
            raise RabbitMQQueueError(f"lost the connection to {self}")
        return channel

    @asynccontextmanager
    async def scratch(self, what: str, topic: str = "") -> AsyncGenerator[Any]:
        """A channel for one purpose: an error of the broker closes it."""
        self.check()
        with self.translate_errors(what, topic):
            async with asyncio.timeout(self.timeout):
                channel = await self.open_channel()
                try:
                    yield channel
                finally:
                    await close_channel(channel)

    async def count(self, queue: str) -> int | None:
        """Messages that are ready in a queue; None when there is no such queue."""
        try:
            async with self.scratch(f"ask for {queue}") as channel:
                count: int = (await channel.queue_declare(queue, passive=True)).message_count
                return count
        except RabbitMQQueueError as error:
            if self.is_missing(error):
                return None
            raise

    @asynccontextmanager
    async def contents(
        self, queue: str, topic: str = "", prefetch: int = 0
    ) -> AsyncGenerator[Contents]:
        """A queue for us alone; what is not acknowledged goes back to its place at the end."""
        self.check()
        is_quorum = self._names.is_quorum and queue != self._names.registry
        contents = Contents(queue, is_quorum, prefetch)
        async with AsyncExitStack() as stack:
            if is_quorum:
                await stack.enter_async_context(self._lock(queue, topic))
            await stack.enter_async_context(self._channel_alone(queue, topic, contents.open))
            try:
                yield contents
            finally:
                await contents.give_back()

    @asynccontextmanager
    async def _lock(self, queue: str, topic: str) -> AsyncGenerator[None]:
        """One reader at a time, where the broker lets several consumers be exclusive.

        An exclusive queue belongs to a connection, whose tasks wait for each other here. Its
        consumer goes with the channel, and the queue with the consumer.
        """
        name = self._names.lock(queue)

        async def take(channel: Any) -> None:
            kind = {"x-queue-type": "classic"}
            await channel.queue_declare(name, exclusive=True, auto_delete=True, arguments=kind)
            await channel.basic_consume(name, _ignore, no_ack=True)

        own = self._locks.setdefault(queue, asyncio.Lock())
        with self.translate_errors(f"read {queue}", topic):
            async with asyncio.timeout(self.timeout):
                await own.acquire()
        try:
            async with self._channel_alone(queue, topic, take):
                yield
        finally:
            own.release()

    @asynccontextmanager
    async def _channel_alone(
        self, queue: str, topic: str, take: Callable[[Any], Awaitable[None]]
    ) -> AsyncGenerator[Any]:
        """A channel on which ``take`` succeeded; it is called until no other reader is in its way."""
        kinds, attempt = self.client.exceptions, 0
        with self.translate_errors(f"read {queue}", topic):
            async with asyncio.timeout(self.timeout):
                while True:
                    channel = await self.open_channel()
                    try:
                        await take(channel)
                        break
                    except (kinds.ChannelAccessRefused, kinds.ChannelLockedResource) as error:
                        if "exclusive" not in str(error):
                            raise
                        attempt += 1
                        await asyncio.sleep(TURNS.delay(attempt))  # another one reads it
                    except BaseException:
                        await close_channel(channel)
                        raise
        try:
            with self.translate_errors(f"read {queue}", topic):
                yield channel
        finally:
            await close_channel(channel)

    @contextmanager
    def translate_errors(self, what: str, topic: str = "") -> Generator[None]:
        """The one place where errors of the client become ours."""
        try:
            yield
        except QueueError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not we were cancelled: the connection went, and its futures with it.
            raise self.error(what, error, topic) from error
        except Exception as error:
            raise self.error(what, error, topic) from error

    def error(self, what: str, cause: BaseException | None, topic: str = "") -> RabbitMQQueueError:
        text, hint = self._diagnosis(cause)
        error = RabbitMQQueueError(f"could not {what}: {text}", topic=topic, hint=hint)
        error.__cause__ = cause
        return error

    def _diagnosis(self, cause: BaseException | None) -> tuple[str, str]:
        """What happened, and what to do about it."""
        kinds = self.client.exceptions
        text = str(cause) or type(cause).__name__
        if isinstance(cause, kinds.AuthenticationError | kinds.ProbableAuthenticationError):
            return "the user or the password is wrong", "look at rabbitmq.url"
        if isinstance(cause, kinds.ConnectionNotAllowed | kinds.InvalidFrameError):
            return (
                "the broker refused the vhost at the end of the URL",
                "it must exist and be open to the user: rabbitmqctl add_vhost, set_permissions",
            )
        if isinstance(cause, kinds.ChannelAccessRefused):
            own = self._names.exchange
            return text, (
                f"allow it: rabbitmqctl set_permissions <user> '^({own}|amq\\.gen).*' "
                f"'^({own}|amq\\.default|amq\\.gen).*' '^({own}|amq\\.gen).*'"
            )
        if isinstance(cause, kinds.ChannelPreconditionFailed):
            return text, (
                "it was declared with other settings: delete it when it is empty, or use another "
                "exchange; a delivery may also have been held longer than consumer_timeout"
            )
        if isinstance(cause, kinds.PublishError):
            return "no queue is bound any more", "declare the group again"
        if isinstance(cause, kinds.DeliveryError):
            return "the broker refused the message", "its log says why"
        if isinstance(cause, TimeoutError):
            return (
                f"no answer within {self.timeout:g} s",
                "is the broker overloaded, or out of memory or disk space (it then accepts nothing)?",
            )
        return text, f"does RabbitMQ listen at {self}?"

    def is_missing(self, error: QueueError) -> bool:
        """Whether the broker said that there is no such queue."""
        return isinstance(error.__cause__, self.client.exceptions.ChannelNotFoundEntity)


def make_undeclared_error(topic: str, group: str) -> QueueError:
    """The error for a group that does not exist."""
    return RabbitMQQueueError(
        f"group {group!r} of topic {topic!r} was never declared",
        topic=topic,
        hint="await driver.declare(topic, group) first",
    )


class Contents:
    """The messages of a queue that is ours alone for a moment."""

    def __init__(self, queue: str, is_quorum: bool, prefetch: int) -> None:
        self._queue, self._is_quorum, self._prefetch = queue, is_quorum, prefetch
        self._channel: Any = None
        self._tag: str | None = None
        self.inbox: list[Any] = []

    async def open(self, channel: Any) -> None:
        """Begin to consume; refused while another reader does, unless it is a quorum queue."""
        self._channel = channel
        await channel.basic_qos(prefetch_count=self._prefetch)
        consumer = await channel.basic_consume(self._queue, self._came, exclusive=True)
        self._tag = consumer.consumer_tag

    async def _came(self, raw: Any) -> None:
        self.inbox.append(raw)

    async def read(self, limit: int | None = None) -> list[Any]:
        """All of them, or about ``limit``."""
        while limit is None or len(self.inbox) < limit:
            seen = len(self.inbox)
            answer = await self._channel.queue_declare(self._queue, passive=True, timeout=10)
            if not answer.message_count:
                # What the queue gave the channel while it asked comes behind that answer, and
                # before the next one: 44 of 250 messages, on a loaded broker. Those of a quorum
                # queue may be further behind.
                await self._channel.queue_declare(self._queue, passive=True, timeout=10)
                if not self._is_quorum or seen == len(self.inbox):
                    break
            await asyncio.sleep(0.02)
        if self._is_quorum:
            await self._read_rest(limit)
        return list(self.inbox)

    async def _read_rest(self, limit: int | None) -> None:
        """Take what is left one by one: a quorum queue under load says that it has none."""
        if self._tag is not None:
            tag, self._tag = self._tag, None
            await self._channel.basic_cancel(tag)
        while limit is None or len(self.inbox) < limit:
            if not await self._get():
                break

    async def _get(self) -> bool:
        raw = await self._channel.basic_get(self._queue, timeout=10)
        found: bool = raw.delivery.name != "Basic.GetEmpty"
        if found:
            self.inbox.append(raw)
        return found

    async def remove(self, raws: Sequence[Any]) -> None:
        """Remove these permanently."""
        for at, raw in enumerate(raws, 1):
            is_last = at == len(raws)
            await self._channel.basic_ack(raw.delivery.delivery_tag, wait=is_last)
            if self._is_quorum and (is_last or not at % ACKS_ON_THE_WAY):
                await self._get()  # answered when all that were sent before are in effect

    async def give_back(self) -> None:
        """Have the broker put back what is not removed before the next reader comes.

        A quorum queue learns of a closed channel some time later.
        """
        if self._is_quorum and not self._channel.is_closed:
            with anyio.move_on_after(5, shield=True):
                await self._channel.basic_nack(0, multiple=True, wait=False)


async def _ignore(_: Any) -> None:
    """Nothing is sent to the queue that is a lock."""


async def close_channel(channel: Any) -> None:
    """Close a channel also when we are cancelled: it may hold a queue for itself."""
    with anyio.move_on_after(5, shield=True):
        await channel.close()


def major(version: str) -> int:
    first = version.split(".", maxsplit=1)[0]
    return int(first) if first.isdigit() else 0


def mask_url(url: str) -> str:
    """The URL without user, password and settings."""
    head, _, rest = url.partition("://")
    return f"{head}://{rest.rpartition('@')[2].partition('?')[0]}" if rest else "rabbitmq"

"""One connection to a server: sends, and brings answers to who asked."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

from lexigram.contracts.queue.headers import UNREADABLE
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.nats._errors import (
    NOT_FOUND,
    ApiError,
    ClosedError,
    Failure,
    Json,
    api_error,
    refusal,
    status_of,
)
from lexigram.queue.backends.nats._questions import Confirms, One, Pull, Question
from lexigram.queue.backends.nats._wire import OutboundMessage

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
DEAD_ROOM: Final = 32 * 1024  # bytes kept free in a message for what a dead letter adds
LATE: Final = 2.0  # seconds an answer may come after its time
NANOSECONDS: Final = 1_000_000_000
NAK: Final = b"-NAK"

_log = logging.getLogger(__name__)
Listener: TypeAlias = Callable[["Connection", "Msg"], None]


class Connection:
    """One connection: sends, and brings answers to who asked.

    Answers come to subjects below one inbox, ``<inbox>.<number of the question>``. There is no
    reconnecting below the runtime: a connection that breaks fails all that wait, at once.
    """

    def __init__(self, client: Client, timeout: float) -> None:
        self.client = client
        self._timeout = timeout
        self.broken: ClosedError | None = None
        self.declared: set[str] = set()  # consumers known to exist
        self.drained: set[str] = set()  # consumers that had nothing new behind the last message
        self.covered: dict[str, float] = {}  # topics with a group, and until when that is believed
        self.paused: dict[str, bool] = {}
        self._resumed: dict[str, asyncio.Event] = {}
        self._inbox = ""
        self._number = 0
        self._asked: dict[str, Question] = {}
        self.readers: list[_Reader] = []  # those without a pull

    @classmethod
    async def open(cls, url: str, connect_timeout: float, timeout: float) -> Connection:
        """Connect to the first server that answers."""
        library = require_library("nats.aio.client", extra="nats")
        failed: list[BaseException] = []
        connection: Connection | None = None

        async def on_error(error: Exception) -> None:
            failed.append(error)
            if connection is not None:
                connection.on_refused(error)

        async def on_close() -> None:
            if connection is not None:
                connection.fail(ClosedError("the connection was lost"))

        client: Client = patient(library.Client)()
        try:
            async with asyncio.timeout(connect_timeout):
                await client.connect(
                    _servers(url),
                    name="lexigram",
                    error_cb=on_error,
                    closed_cb=on_close,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=cast("int", 0.05),
                    connect_timeout=cast("int", connect_timeout),
                    # No buffer for bad times: what cannot be sent now is an error now.
                    pending_size=0,
                )
        except (library.errors.Error, OSError, TimeoutError, ValueError) as error:
            cause = next((one for one in reversed(failed) if str(one)), error)
            await _shut(client)
            raise ClosedError(_mask_secrets(str(cause) or "no answer in time", url)) from error
        connection = cls(client, timeout)
        connection._inbox = client.new_inbox()
        await connection.subscribe_raw(f"{connection._inbox}.>", connection._on_answer)
        return connection

    @property
    def version_text(self) -> str:
        """Of the server."""
        found = self.client.connected_server_version
        return f"{found.major}.{found.minor}.{found.patch}"

    @property
    def version(self) -> tuple[int, int]:
        """Of the server, as far as it matters."""
        found = self.client.connected_server_version
        return found.major, found.minor

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body together."""
        return self.client.max_payload

    @property
    def dead_room(self) -> int:
        """Bytes a message leaves free."""
        return min(DEAD_ROOM, self.max_payload // 4)

    async def answers(self) -> bool:
        """Whether it still works."""
        if self.broken is not None or not self.client.is_connected:
            return False
        try:
            await self.find("INFO")
        except (ApiError, ClosedError, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        self.fail(ClosedError("the connection was closed"))
        await _shut(self.client)

    async def subscribe(self, subject: str, listener: Listener) -> None:
        """Call the listener for each message of a subject."""

        async def call_listener(message: Msg) -> None:
            listener(self, message)

        await self.subscribe_raw(subject, call_listener)

    async def subscribe_raw(self, subject: str, listener: Callable[[Msg], Awaitable[None]]) -> None:
        """Subscribe, without the limits above which the client drops what has come."""
        client: Any = self.client
        await client.subscribe(subject, cb=listener, pending_msgs_limit=0, pending_bytes_limit=0)

    def fail(self, error: ClosedError) -> None:
        """Mark the connection as broken and fail every pending request."""
        self.broken = self.broken or error
        asked, self._asked = self._asked, {}
        for question in asked.values():
            question.fail(error)
        for event in self._resumed.values():
            event.set()

    def on_refused(self, error: Exception) -> None:
        """Fail the request that the server forbids, so that its caller does not wait."""
        text = str(error)
        if "permissions violation" not in text.lower():
            return
        found = re.search(r'"([^"]+)"', text)
        for number, question in list(self._asked.items()):
            if found is None or question.subject == found[1]:
                del self._asked[number]
                question.fail(ClosedError(text.removeprefix("nats: ")))

    # Questions.

    async def send(self, subject: str, body: bytes, reply: str = "") -> None:
        """Write without waiting for anything."""
        await self._publish(subject, body, reply, None)

    async def request(self, subject: str, body: bytes = b"") -> Msg:
        """Write and wait for the answer."""
        question = One(subject)
        with self._asking(question) as reply:
            await self._publish(subject, body, reply, None)
            async with asyncio.timeout(self._timeout):
                return cast("Msg", await question.done)

    async def ask(self, api: str, body: Json | None = None) -> Json:
        """Ask JetStream; raises ApiError."""
        text = b"" if body is None else json.dumps(body).encode()
        answer = await self.request(f"$JS.API.{api}", text)
        if status_of(answer):
            raise ApiError(status_of(answer), 0, "nobody answers for JetStream")
        found = cast("Json", json.loads(answer.data))
        if "error" in found:
            raise api_error(found["error"])
        return found

    async def find(self, api: str, body: Json | None = None) -> Json | None:
        """Ask JetStream for something that may not exist."""
        try:
            return await self.ask(api, body)
        except ApiError as error:
            if error.code == NOT_FOUND or error.number == _NO_MESSAGE:
                return None
            raise

    async def publish(self, batch: Sequence[OutboundMessage]) -> dict[int, Failure]:
        """Write all, then wait for all confirms; what failed, by place."""
        question = Confirms(batch[0].subject, len(batch))
        with self._asking(question) as reply:
            try:
                for at, outbound in enumerate(batch):
                    await self._publish(
                        outbound.subject, outbound.body, f"{reply}.{at}", outbound.headers
                    )
                async with asyncio.timeout(self._timeout + len(batch) / 1000):
                    await question.done
            except (ClosedError, TimeoutError) as error:
                failure: Failure = error
                if isinstance(error, TimeoutError):
                    failure = TimeoutError("no confirm in time")
                return question.failures | dict.fromkeys(question.open, failure)
        return question.failures

    async def publish_one(self, outbound: OutboundMessage) -> int:
        """Write and wait for the confirm; the sequence."""
        question = One(outbound.subject)
        with self._asking(question) as reply:
            await self._publish(outbound.subject, outbound.body, reply, outbound.headers)
            async with asyncio.timeout(self._timeout):
                answer = await question.done
        failure = refusal(answer)
        if failure is not None:
            raise failure
        return int(json.loads(answer.data)["seq"])

    async def pull(
        self, stream: str, consumer: str, batch: int, *, wait: float | None = None
    ) -> list[Msg]:
        """Up to ``batch`` messages that are there; with ``wait``, those that come in time."""
        ask: Json = {"batch": batch}
        if wait is None:
            ask["no_wait"] = True
        else:
            ask["expires"] = max(1, int(wait * NANOSECONDS))
        patience = self._timeout if wait is None else wait + LATE
        question = Pull(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", consumer, batch)
        with self._asking(question):
            reader = self.readers.pop() if self.readers else await self._new_reader()
            reader.pull = question
            try:
                await self._publish(question.subject, json.dumps(ask).encode(), reader.inbox, None)
                async with asyncio.timeout(patience):
                    await question.done
            except BaseException:
                # What came is given back at once; what still comes is given back by the reader.
                for message in question.messages:
                    await self.hand_back(message)
                question.stop()
                raise
        return question.messages

    async def _new_reader(self) -> _Reader:
        reader = _Reader(self, self.client.new_inbox())
        await self.subscribe_raw(reader.inbox, reader.on_message)
        return reader

    async def _publish(
        self, subject: str, body: bytes, reply: str, headers: dict[str, str] | None
    ) -> None:
        if self.broken is not None:
            raise self.broken
        try:
            await self.client.publish(subject, body, reply, headers)
        except Exception as error:  # of the client, which has no base but Exception
            raise ClosedError(f"{type(error).__name__}: {error}") from error

    @contextmanager
    def _asking(self, question: Question) -> Generator[str]:
        self._number += 1
        number = str(self._number)
        self._asked[number] = question
        try:
            yield f"{self._inbox}.{number}"
        finally:
            self._asked.pop(number, None)

    async def _on_answer(self, message: Msg) -> None:
        number, _, rest = message.subject[len(self._inbox) + 1 :].partition(".")
        question = self._asked.get(number)
        if question is not None:
            question.answer(message, rest)

    async def hand_back(self, message: Msg) -> None:
        """Give back what nobody waits for any more."""
        if self.broken is None:
            await self.send(message.reply, NAK)

    # Pauses.

    def set_paused(self, consumer: str, paused: bool) -> None:
        self.paused[consumer] = paused
        if paused:
            for question in self._asked.values():
                if isinstance(question, Pull) and question.consumer == consumer:
                    question.stop()
        elif consumer in self._resumed:
            self._resumed.pop(consumer).set()

    async def wait_resumed(self, consumer: str, wait: float) -> None:
        event = self._resumed.setdefault(consumer, asyncio.Event())
        try:
            async with asyncio.timeout(wait):
                await event.wait()
        except TimeoutError:
            return


class _Reader:
    """An inbox for the messages of one pull after the other.

    Messages come under their own subject, so that only the inbox tells whose they are. It takes
    the next pull when the server has ended the one before.
    """

    def __init__(self, connection: Connection, inbox: str) -> None:
        self._connection, self.inbox = connection, inbox
        self.pull: Pull | None = None

    async def on_message(self, message: Msg) -> None:
        pull = self.pull
        if pull is None:
            return
        ended = pull.is_end(message)
        if not pull.done.done():
            pull.take(message)
        elif message.reply:
            await self._connection.hand_back(message)
        if ended:
            self.pull = None
            self._connection.readers.append(self)


async def _shut(client: Client) -> None:
    """Close the client; one that never was open, or that hangs, has nothing worth waiting for."""
    try:
        async with asyncio.timeout(LATE):
            await client.close()
    except (OSError, AssertionError, TimeoutError) as error:
        _log.debug("closing a connection: %r", error)


def patient(kind: type[Client]) -> type[Client]:
    """The client, with headers as data.

    Its own reader ends at a block of headers that is none, without a word: nothing comes any more,
    and after the next connect the message is there again. Any producer can send such a block.
    """
    read: Callable[..., Awaitable[dict[str, Any] | None]] = vars(kind)["_process_headers"]

    class Patient(kind):  # type: ignore[misc, valid-type]  # loaded late
        async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
            try:
                found = await read(self, headers)
            except Exception as error:  # noqa: BLE001 - whatever it stumbled over
                problem = {UNREADABLE: f"the block of headers: {error!r:.100}"}
                return dict(_LINE.findall(headers.decode("ascii", "replace"))) | problem
            # Versions before 2.13 have a class of their own for values that are not ASCII.
            return {name: str(value) for name, value in found.items()} if found else None

    return Patient


def _servers(url: str) -> list[str]:
    servers = [one.strip() for one in url.split(",") if one.strip()]
    for server in servers:
        parts = urlsplit(server)
        if parts.scheme not in ("nats", "tls", "ws", "wss") or not parts.hostname:
            raise ClosedError("the URL is not of the form nats://user:password@host:port")
        try:
            _ = parts.port
        except ValueError as error:
            raise ClosedError("the port in the URL is not a number") from error
    if not servers:
        raise ClosedError("the URL is empty")
    return servers


def address_of(url: str) -> str:
    """Where it is, without who asks."""
    return ",".join(one.strip().rpartition("@")[2].rpartition("//")[2] for one in url.split(","))


def _mask_secrets(text: str, url: str) -> str:
    for one in url.split(","):
        secret = one.rpartition("@")[0].rpartition("//")[2]
        for part in filter(None, [secret, *secret.split(":")[1:]]):
            text = text.replace(part, "***")
    return text


_NO_MESSAGE: Final = 10057  # deleting what is not there
_LINE: Final = re.compile(r"^(Nats-[A-Za-z-]+): (.*)\r$", re.MULTILINE)

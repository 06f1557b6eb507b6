"""The bus on Redis Streams: consumer groups, leases by idle time, delays in sorted sets.

One stream per topic, which all its groups read; a group's retries and redrives go to a stream of
its own, so that no other group sees them. An entry is the bare body in the field ``body`` and the
rest of the message in fields of their own: whoever can XADD and XREADGROUP can take part. Needs
Redis 7.0 or later. What happens inside Redis is in ``redis_scripts``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha1
from importlib import import_module
from typing import Any, Final
from uuid import uuid4
from zlib import crc32

import anyio

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
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
from lexigram.contracts.queue.headers import FAIRNESS_KEY, ORDERING_KEY
from lexigram.queue.backends import redis_scripts as scripts
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig, RedisDriverConfig
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.drivers.libraries import require_library
from lexigram.queue.drivers.services import Services
from lexigram.queue.envelope import (
    dead_headers,
    delay_of,
    from_dead_headers,
    from_headers,
    redriven,
    to_headers,
)
from lexigram.queue.errors import RedisQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.topics import is_pattern
from lexigram.resilience.redis import connect

NAME: Final = "redis"
URL: Final = "redis://localhost:6379/0"
PREFIX: Final = "lexigram"
BODY: Final = b"body"  # the first field of this name; a header called body comes after it
LANES: Final = 16  # keys of one lane share it
HIGHEST_LEVEL: Final = 9
MAX_BYTES: Final = 500 * 1024 * 1024  # Redis takes 512 MB in one string
BATCH_BYTES: Final = 16 * 1024 * 1024  # of one call of the publish script
LOOK_AGAIN: Final = 0.5  # seconds between looks at what is due, lost or paused
TIDY_EVERY: Final = 60.0  # seconds
FORGET_MEMBERS: Final = 3600.0  # seconds a member without messages is remembered
DEAD_PAGE: Final = 200  # dead letters redriven in one call
OLDEST: Final = (7, 0)

CAPABILITIES: Final = frozenset(Capability) - {
    Capability.TTL,  # the runtime sets expired messages aside, by policy
}

_log = logging.getLogger(__name__)


class RedisDriver:
    """One member of the process on a Redis.

    ``max_connections`` bounds the connections for commands; every consumer that waits has one
    more. What Redis confirmed is as safe as its own persistence (``appendfsync``).
    """

    name = NAME
    capabilities = CAPABILITIES
    max_message_bytes: int | None = MAX_BYTES

    def __init__(
        self,
        url: str = URL,
        *,
        prefix: str = PREFIX,
        max_connections: int = 10,
        socket_timeout: float = 5.0,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
    ) -> None:
        self.prefix = prefix
        self.visibility_timeout: float | None = visibility_timeout
        self._url = url
        self._max_connections = max_connections
        self._timeout = socket_timeout
        self._lease = _milliseconds(visibility_timeout)
        self._look_again = min(LOOK_AGAIN, visibility_timeout / 2)
        self._max_backlog = max_backlog
        self._window = _milliseconds(dedup_window) if dedup_window else 0
        self._me = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:12]}"
        self._lines: _Lines | None = None
        self._members: dict[tuple[str, str], _Member] = {}
        self._address = "redis"

    def __repr__(self) -> str:
        return f"RedisDriver({self._address!r}, prefix={self.prefix!r})"  # never the password

    # Life.

    async def connect(self) -> None:
        """Reach Redis and bring the scripts there; on a healthy connection only a question."""
        if self._lines is None:
            self._lines = self._new_lines()
        facts = await self._command("INFO", "server")
        for script in _SCRIPTS:
            await self._command("SCRIPT", "LOAD", script)
        # One look at our own keys: without the right to them nothing else would work.
        await self._command("HLEN", f"{self.prefix}:groups")
        version = _version(facts)
        if version < OLDEST:
            await self.close()
            raise RedisQueueError(
                f"Redis {'.'.join(map(str, version))} at {self._address} is too old",
                hint="the driver needs Redis 7.0 or later",
            )

    def _new_lines(self) -> _Lines:
        require_library("redis.asyncio", extra="redis")
        try:
            client = connect(
                self._url,
                self._timeout,
                purpose="a queue on redis",
                setting="url of the redis driver",
            )
        except ConfigurationError:
            # Without its cause: the text of that may quote a part of the password.
            raise RedisQueueError(
                "the URL of the redis driver is not usable",
                hint="it looks like redis://user:password@host:6379/0; special characters of a "
                "password are percent-encoded",
            ) from None
        place = client.connection_pool.connection_kwargs
        self._address = place.get("path") or (
            f"{place.get('host', 'localhost')}:{place.get('port', 6379)}/{place.get('db', 0) or 0}"
        )
        return _Lines(client.connection_pool, self._max_connections, self._timeout)

    async def close(self) -> None:
        """Hand back what this member has and disconnect."""
        lines = self._lines
        if lines is None:
            return
        members, self._members = self._members, {}
        for member in members.values():
            try:
                arguments = self._of(member, self._me, int(member.is_pattern))
                await self._ask(scripts.LEAVE, arguments, topic=member.topic)
            except QueueError as error:
                # Its leases run out by themselves.
                _log.info("redis was not there for a goodbye: %s", error.message)
                break
        if self._lines is lines:
            self._lines = None
        await lines.close()

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make the streams and their groups exist."""
        member = self._member(topic, group)
        sort = "t" if temporary else "1"
        await self._ask(
            scripts.DECLARE, self._of(member, int(member.is_pattern), sort), topic=topic
        )
        member.look_at = 0.0

    async def drop(self, topic: str, group: str) -> None:
        """Remove the group; with the last one its streams go too."""
        member = self._member(topic, group)
        await self._ask(scripts.DROP, self._of(member, int(member.is_pattern)), topic=topic)
        self._members.pop((topic, group), None)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All groups below the prefix."""
        return [_pair(field) for field in await self._command("HKEYS", f"{self.prefix}:groups")]

    # Out.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Add the messages, as many at once as fit into one call."""
        self._connected()
        pages = list(self._pages(messages))  # all are checked before any is sent
        for number, (page, arguments) in enumerate(pages):
            left = [one.id for later, _ in pages[number:] for one in later]
            try:
                answer: list[int] = await self._ask(scripts.PUBLISH, arguments, topic=page[0].topic)
            except QueueError as error:
                error.details["unconfirmed"] = left
                raise
            if answer[0]:
                self._look_at_all()
            if len(answer) > 1:
                refused = [page[position - 1] for position in answer[1:]]
                rest = [one.id for later, _ in pages[number + 1 :] for one in later]
                raise self._full(refused, rest)

    def _pages(
        self, messages: Sequence[BusMessage]
    ) -> Iterable[tuple[list[BusMessage], list[Any]]]:
        page: list[BusMessage] = []
        arguments: list[Any] = []
        size = 0
        for message in messages:
            if page and size + len(message.payload) > BATCH_BYTES:
                yield page, self._page(page, arguments)
                page, arguments, size = [], [], 0
            fields = _fields(to_headers(message), message.payload)
            delay = delay_of(message) if message.headers else 0.0
            arguments += (
                message.topic,
                self._checked_kind(message),
                message.id,
                _milliseconds(delay) if delay else 0,
                len(fields),
            )
            arguments += fields
            page.append(message)
            size += len(message.payload)
        if page:
            yield page, self._page(page, arguments)

    def _page(self, page: Sequence[BusMessage], arguments: list[Any]) -> list[Any]:
        return [self.prefix, self._max_backlog, self._window, len(page), *arguments]

    def _checked_kind(self, message: BusMessage) -> str:
        if len(message.payload) > MAX_BYTES:
            raise MessageTooLargeError(
                f"{len(message.payload)} bytes are more than the {MAX_BYTES} Redis takes",
                backend=NAME,
                topic=message.topic,
                hint="store large content elsewhere (lexigram.blobs) and send a reference",
            )
        kind = _kind(message)
        if message.priority and kind.startswith("lane"):
            raise CapabilityError(
                "on redis a message has a priority or a fairness or ordering key, not both",
                backend=NAME,
                topic=message.topic,
                hint="leave priority at 0, or leave the key out",
            )
        return kind

    # In.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Hand out what is there, or what comes in time."""
        lines, member = self._connected(), self._member(topic, group)
        with self._translated(topic):
            async with lines.one() as line:
                return await self._receive(line, member, limit, wait)

    async def _receive(
        self, line: _Line, member: _Member, limit: int, wait: float
    ) -> Sequence[Delivery]:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            now = loop.time()
            is_due = now >= member.look_at
            if is_due or not member.is_plain:
                found = await self._take(line, member, limit, is_due)
                if found:
                    return found
            left = until - loop.time()
            if member.is_paused:
                if left <= 0:
                    return ()
                await asyncio.sleep(min(left, self._look_again / 2))
                continue
            found = await self._read(line, member, limit, min(left, member.look_at - loop.time()))
            if found or loop.time() >= until:
                return found

    async def _take(
        self, line: _Line, member: _Member, limit: int, upkeep: bool
    ) -> Sequence[Delivery]:
        """Look everywhere: what is due, what others lost, every level and lane."""
        now = asyncio.get_running_loop().time()
        if upkeep and now >= member.tidy_at:
            member.tidy_at = now + TIDY_EVERY
            await self._tidy(member)
        arguments = self._of(
            member,
            self._me,
            limit,
            int(upkeep),
            self._lease,
            member.turn,
            int(member.is_pattern),
        )
        answer = await _run(line, scripts.TAKE, arguments)
        if upkeep:
            member.look_at = now + self._look_again
        member.is_paused = bool(answer[0])
        if member.is_paused:
            member.look_at = 0.0
            return ()
        due, member.turn, member.is_plain, taken = answer[1], answer[2], bool(answer[3]), answer[4]
        if due >= 0:
            member.look_at = min(member.look_at, now + due / 1000)
        return [self._delivery(member, *entry) for entry in taken]

    async def _read(
        self, line: _Line, member: _Member, limit: int, block: float
    ) -> Sequence[Delivery]:
        """Read the plain streams, or wait for something to come there."""
        count = limit if member.is_plain else 1  # the most urgent is elsewhere: look there next
        command = ["XREADGROUP", "GROUP", member.group, self._me, "COUNT", count]
        if block > 0:
            command += ["BLOCK", max(1, int(block * 1000))]
        command += ["STREAMS", *member.streams, *member.news]
        answer = await line.ask(command, max(0.0, block))
        found: list[Delivery] = []
        for stream, entries in answer or ():
            if stream == member.bell:
                member.look_at = 0.0
                continue
            if stream == member.own:
                member.look_at = 0.0  # a look shares out fairly between both streams
            found += [self._delivery(member, stream, one, 1, fields) for one, fields in entries]
        if len(found) > limit:
            # The limit of a read is one for each stream.
            await self.release_many(found[limit:])
            del found[limit:]
        return found

    def _delivery(
        self, member: _Member, stream: bytes, entry: bytes, count: int, fields: Sequence[bytes]
    ) -> Delivery:
        headers, body = _parted(fields or ())
        message = from_headers(
            headers, body, topic=member.topic, fallback_id=f"{member.topic}/{entry.decode()}"
        )
        key = message.headers.get(ORDERING_KEY) if message.headers else None
        lane = str(lane_of(key)) if key else ""
        return Delivery(message, member.topic, member.group, (stream, entry, count, lane), count)

    # Settled.

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge, and remove what no other group needs."""
        for member, receipts in self._by_member(deliveries):
            await self._ask(scripts.ACK, self._of(member, self._me, *receipts), topic=member.topic)

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Acknowledge and add to the group's own stream, or to what is due later, in one step."""
        again = message or delivery.message
        fields = _fields(to_headers(again), again.payload)
        member = self._member(delivery.topic, delivery.group)
        await self._ask(
            scripts.NACK,
            self._of(
                member,
                self._me,
                *delivery.receipt,
                _kind(again),
                _milliseconds(delay) if delay > 0 else 0,
                *fields,
            ),
            topic=delivery.topic,
        )
        member.look_at = 0.0

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Leave them to whoever looks next."""
        for member, receipts in self._by_member(deliveries):
            arguments = self._of(member, self._me, *receipts)
            await self._ask(scripts.RELEASE, arguments, topic=member.topic)
            member.look_at = 0.0

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Begin the idle time anew. More than the visibility time-out at once is not possible."""
        idle = max(0, self._lease - _milliseconds(seconds))
        lost: list[Delivery] = []
        for member, receipts in self._by_member(deliveries):
            arguments = self._of(member, self._me, idle, *receipts)
            answer = await self._ask(scripts.EXTEND, arguments, topic=member.topic)
            mine = [one for one in deliveries if (one.topic, one.group) == member.name]
            lost += [mine[position] for position in answer]
        return lost

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Keep the entry and acknowledge the message, in one step."""
        fields = _fields(dead_headers(entry), entry.message.payload)
        member = self._member(delivery.topic, delivery.group)
        await self._ask(
            scripts.DEAD,
            self._of(member, self._me, *delivery.receipt, entry.message.id, *fields),
            topic=delivery.topic,
        )

    # Dead letters.

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Entries of the group, oldest first."""
        if limit < 1:
            return []
        arguments = self._of(self._member(topic, group), offset, limit)
        page = await self._ask(scripts.DEAD_PAGE, arguments, topic=topic)
        return [_dead(topic, number, fields) for number, fields in page]

    async def count_dead(self, topic: str, group: str) -> int:
        """The size of their index."""
        arguments = self._of(self._member(topic, group))
        return int(await self._ask(scripts.COUNT_DEAD, arguments, topic=topic))

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Bring entries back to the group's own stream, each in one step."""
        member = self._member(topic, group)
        if ids is not None:
            wanted = list(dict.fromkeys(ids))
            if not wanted:
                return 0
            page = await self._ask(scripts.DEAD_BY_ID, self._of(member, *wanted), topic=topic)
            return await self._bring_back(member, page)
        total, last = 0, None
        while True:
            arguments = self._of(member, 0, DEAD_PAGE)
            page = await self._ask(scripts.DEAD_PAGE, arguments, topic=topic)
            if last is None:
                last = await self._last_number()
            # What failed again meanwhile has a higher number: it stays for another time.
            page = [entry for entry in page if int(entry[0]) <= last]
            if not page:
                return total
            total += await self._bring_back(member, page)

    async def _last_number(self) -> int:
        return int(await self._command("GET", f"{self.prefix}:number") or 0)

    async def _bring_back(self, member: _Member, page: Sequence[Any]) -> int:
        arguments = self._of(member)
        for number, fields in page:
            old = _dead(member.topic, number, fields).message
            message = redriven(old)
            again = _fields(to_headers(message), message.payload)
            arguments += (old.id, number, _kind(message), len(again), *again)
        member.look_at = 0.0
        return int(await self._ask(scripts.REDRIVE, arguments, topic=member.topic)) if page else 0

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Forget entries."""
        if ids is not None and not ids:
            return 0
        arguments = self._of(self._member(topic, group), *(ids or ()))
        return int(await self._ask(scripts.PURGE_DEAD, arguments, topic=topic))

    # Watched and steered.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """What no member has had yet, without taking it."""
        member = self._member(topic, group)
        found = await self._ask(
            scripts.PEEK, self._of(member, int(member.is_pattern), limit), topic=topic
        )
        return [
            self._delivery(member, b"", entry, 0, fields).message for entry, fields in found[:limit]
        ]

    async def purge(self, topic: str, group: str) -> int:
        """Forget what waits, delayed messages included."""
        member = self._member(topic, group)
        arguments = self._of(member, int(member.is_pattern))
        return int(await self._ask(scripts.PURGE, arguments, topic=topic))

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Hold the group back or let it go on; members look twice a second."""
        key, field = f"{self.prefix}:paused", f"{topic}\n{group}"
        await self._command(*(("HSET", key, field, 1) if paused else ("HDEL", key, field)))
        self._look_at_all()

    async def is_paused(self, topic: str, group: str) -> bool:
        """Whether the group is held back."""
        return bool(await self._command("HEXISTS", f"{self.prefix}:paused", f"{topic}\n{group}"))

    async def depth(self, topic: str, group: str) -> int:
        """Waiting, in flight and delayed."""
        return (await self._figures(topic, group))[0]

    async def lag(self, topic: str, group: str) -> int:
        """Waiting, due, or held by nobody any more; paused or not."""
        return (await self._figures(topic, group))[1]

    async def _figures(self, topic: str, group: str) -> tuple[int, int]:
        member = self._member(topic, group)
        arguments = self._of(member, int(member.is_pattern), self._lease)
        depth, lag = await self._ask(scripts.FIGURES, arguments, topic=topic)
        return int(depth), int(lag)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Whether Redis answers a question about our own keys."""
        facts = {"address": self._address}
        try:
            with anyio.fail_after(timeout):
                await self._command("HLEN", f"{self.prefix}:groups")
        except (QueueError, TimeoutError) as error:
            text = error.message if isinstance(error, QueueError) else "no answer in time"
            return HealthCheckResult(
                component=NAME, status=HealthStatus.UNHEALTHY, error=text, details=facts
            )
        return HealthCheckResult(component=NAME, message="Redis answers", details=facts)

    # Plumbing.

    def _member(self, topic: str, group: str) -> _Member:
        found = self._members.get((topic, group))
        if found is None:
            found = self._members[topic, group] = _Member(self.prefix, topic, group)
        return found

    def _of(self, member: _Member, *more: Any) -> list[Any]:
        return [self.prefix, member.topic, member.group, *more]

    def _look_at_all(self) -> None:
        for member in self._members.values():
            member.look_at = 0.0

    def _by_member(self, deliveries: Sequence[Delivery]) -> Iterable[tuple[_Member, list[Any]]]:
        found: dict[tuple[str, str], list[Any]] = {}
        for one in deliveries:
            receipts = found.get((one.topic, one.group))
            if receipts is None:
                receipts = found[one.topic, one.group] = []
            receipts += one.receipt
        return [(self._member(*name), receipts) for name, receipts in found.items()]

    async def _tidy(self, member: _Member) -> None:
        patience = max(FORGET_MEMBERS, 10 * (self.visibility_timeout or 0))
        stale = await self._ask(
            scripts.TIDY, self._of(member, _milliseconds(patience)), topic=member.topic
        )
        for field in stale:
            topic, group = _pair(field)
            if (topic, group) not in self._members:
                await self.drop(topic, group)

    def _connected(self) -> _Lines:
        if self._lines is None:
            raise NotConnectedError(
                "the redis queue is not connected",
                backend=NAME,
                hint="await connect() before use; after close() nothing is accepted",
            )
        return self._lines

    async def _command(self, *command: Any) -> Any:
        with self._translated():
            async with self._connected().one_of_few() as line:
                return await line.ask(command)

    async def _ask(self, script: str, arguments: list[Any], *, topic: str) -> Any:
        """The answer of a script."""
        with self._translated(topic):
            async with self._connected().one_of_few() as line:
                return await _run(line, script, arguments)

    def _full(self, refused: Sequence[BusMessage], rest: Sequence[str]) -> QueueFullError:
        topic = refused[0].topic
        return QueueFullError(
            f"topic {topic!r} holds {self._max_backlog} messages for no group",
            backend=NAME,
            topic=topic,
            details={
                "max_backlog": self._max_backlog,
                "unconfirmed": [*(one.id for one in refused), *rest],
            },
            hint="start a consumer, or raise max_backlog",
        )

    @contextmanager
    def _translated(self, topic: str = "unknown") -> Generator[None, None, None]:
        """The one place where errors of the client become ours."""
        from redis.exceptions import RedisError

        try:
            yield
        except (RedisError, OSError, TimeoutError) as error:
            raise self._our(error, topic) from error
        except UnicodeEncodeError as error:
            raise RedisQueueError(
                "a name or header is not valid text", topic=topic, hint="remove lone surrogates"
            ) from error

    def _our(self, error: Exception, topic: str) -> QueueError:
        from redis import exceptions as theirs

        where, text = f"Redis at {self._address}", str(error)
        forbidden = isinstance(error, theirs.NoPermissionError) or "NOPERM" in text
        if forbidden or "user executing the script can't" in text:
            what = f"{where} does not permit it: {text}"
            fix = (
                f"give the user of the URL its rights: ACL SETUSER <user> ~{self.prefix}:* "
                "+@connection +@read +@write +@scripting +info +time"
            )
        elif isinstance(error, theirs.AuthenticationError) or "NOAUTH" in text:
            what, fix = f"{where} refused the user or password", "check both in the URL"
        elif isinstance(error, theirs.OutOfMemoryError) or text.startswith("OOM"):
            return QueueFullError(
                f"{where} has no memory left",
                backend=NAME,
                topic=topic,
                hint="raise maxmemory, or let consumers catch up",
            )
        elif isinstance(error, theirs.ReadOnlyError) or "READONLY" in text:
            what, fix = f"{where} is a read-only replica", "use the URL of the primary"
        elif "NOGROUP" in text:
            what = f"a group of topic {topic!r} was never declared, or Redis lost it"
            fix = "await driver.declare(topic, group) first"
        elif isinstance(error, theirs.ResponseError):
            what, fix = f"{where} answered: {text}", "see docs/how-to/brokers.md for what it needs"
        elif isinstance(error, theirs.BusyLoadingError):
            what, fix = f"{where} is still loading its data", "wait, the driver tries again"
        else:
            reason = text or "no answer in time"
            what = f"{where} does not answer: {reason}"
            fix = "check that the server runs and that host and port of the URL are right"
        return RedisQueueError(what, topic=topic, hint=fix)


class _Member:
    """What this process knows of one group it receives for."""

    __slots__ = (
        "bell",
        "group",
        "is_pattern",
        "is_paused",
        "is_plain",
        "look_at",
        "name",
        "news",
        "own",
        "streams",
        "tidy_at",
        "topic",
        "turn",
    )

    def __init__(self, prefix: str, topic: str, group: str) -> None:
        self.name = (topic, group)
        self.topic, self.group = topic, group
        self.is_pattern = is_pattern(topic)
        place = f"group:{len(topic.encode())}:{topic}:{group}"
        self.own = f"{prefix}:{place}".encode()
        self.bell = f"{prefix}:bell:{place}".encode()
        main = () if self.is_pattern else (f"{prefix}:topic:{topic}".encode(),)
        self.streams = (*main, self.own, self.bell)
        self.news = (">",) * len(self.streams)
        # Only the plain streams need to be read; until a look says so, everything is looked at.
        self.is_plain = False
        self.is_paused = False
        self.look_at = self.tidy_at = 0.0  # by the clock of the event loop
        self.turn = 0  # which lane comes first


class _Line:
    """One connection, used by one task at a time.

    The client library is asked to connect, to send and to read, no more: its own pool costs
    three times as much per command, most of it for time-outs in tasks of their own.
    """

    __slots__ = ("_connection", "_pack", "_timeout")

    def __init__(self, connection: Any, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout
        self._pack = _packer() or connection.pack_command

    async def open(self) -> None:
        async with asyncio.timeout(self._timeout):
            await self._connection.connect()

    async def ask(self, command: Sequence[Any], block: float = 0.0) -> Any:
        """The answer; ``block`` is what Redis itself may wait, in seconds."""
        async with asyncio.timeout(self._timeout + block):
            packed = self._pack(*command)
            await self._connection.send_packed_command(packed, check_health=False)
            return await self._connection.read_response()

    async def is_usable(self) -> bool:
        """False when the server closed it while nobody looked."""
        look = getattr(self._connection, "can_read", None) or self._connection.can_read_destructive
        return self._connection.is_connected and not await look()

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)


class _Lines:
    """The connections of one driver: those that are free are used again, the last one first."""

    def __init__(self, pool: Any, limit: int, timeout: float) -> None:
        # Answers in the form of protocol 2 whatever the server speaks; time-outs are ours.
        self._settings = {**pool.connection_kwargs, "socket_timeout": None, "protocol": 2}
        self._kind, self._timeout = pool.connection_class, timeout
        self._few = asyncio.Semaphore(limit)
        self._free: list[_Line] = []
        self._is_closed = False

    @asynccontextmanager
    async def one_of_few(self) -> AsyncGenerator[_Line, None]:
        """A connection for a command; at most ``limit`` are in use at a time."""
        async with self._few, self.one() as line:
            yield line

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[_Line, None]:
        """A connection for somebody who waits; whoever fails or is cancelled breaks it."""
        from redis.exceptions import ResponseError

        line = await self._take()
        try:
            yield line
        except ResponseError:
            await self._give_back(line)  # an answer, if not a pleasant one
            raise
        except BaseException:
            await line.close()
            raise
        await self._give_back(line)

    async def _take(self) -> _Line:
        while self._free:
            line = self._free.pop()
            if await line.is_usable():
                return line
            await line.close()
        line = _Line(self._kind(**self._settings), self._timeout)
        try:
            await line.open()
        except BaseException:
            await line.close()
            raise
        return line

    async def _give_back(self, line: _Line) -> None:
        if self._is_closed:
            await line.close()
        else:
            self._free.append(line)

    async def close(self) -> None:
        self._is_closed = True
        free, self._free = self._free, []
        for line in free:
            await line.close()


# Scripts by their text, with the name under which Redis knows them.
_SCRIPTS: Final = {
    text: sha1(text.encode()).hexdigest()  # noqa: S324 - Redis names scripts so
    for text in (
        scripts.PUBLISH,
        scripts.DECLARE,
        scripts.DROP,
        scripts.TAKE,
        scripts.ACK,
        scripts.NACK,
        scripts.DEAD,
        scripts.RELEASE,
        scripts.EXTEND,
        scripts.LEAVE,
        scripts.TIDY,
        scripts.DEAD_PAGE,
        scripts.COUNT_DEAD,
        scripts.DEAD_BY_ID,
        scripts.REDRIVE,
        scripts.PURGE_DEAD,
        scripts.FIGURES,
        scripts.PEEK,
        scripts.PURGE,
    )
}


async def _run(line: _Line, script: str, arguments: list[Any]) -> Any:
    from redis.exceptions import NoScriptError

    try:
        return await line.ask(("EVALSHA", _SCRIPTS[script], 0, *arguments))
    except NoScriptError:  # Redis was restarted
        return await line.ask(("EVAL", script, 0, *arguments))


def _packer() -> Callable[..., Any] | None:
    """Packing in C, where it is installed: in Python it took 40 % of the time of a publish."""
    try:
        hiredis: Any = import_module("hiredis")
    except ImportError:
        return None

    def pack(*command: Any) -> Any:
        return hiredis.pack_command(command)

    return pack


def _version(facts: bytes) -> tuple[int, ...]:
    found = re.search(rb"redis_version:(\d+)\.(\d+)", facts)
    return (int(found[1]), int(found[2])) if found else OLDEST


def _kind(message: BusMessage) -> str:
    """The kind of stream a message belongs to."""
    if message.headers:
        key = message.headers.get(ORDERING_KEY) or message.headers.get(FAIRNESS_KEY)
        if key:
            return f"lane{lane_of(key)}"
    return f"level{min(message.priority, HIGHEST_LEVEL)}" if message.priority > 0 else ""


def lane_of(key: str) -> int:
    """The lane of an ordering or fairness key, 0 to 15; keys of one lane wait for each other."""
    return crc32(key.encode("utf-8", "surrogatepass")) % LANES


def _fields(headers: dict[str, str], body: bytes) -> list[Any]:
    fields: list[Any] = [BODY, body]
    for item in headers.items():
        fields += item
    return fields


def _parted(fields: Sequence[bytes]) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of an entry; one without the field ``body`` is a foreign one."""
    if fields and fields[0] == BODY:
        return dict(zip(fields[2::2], fields[3::2], strict=False)), fields[1]
    pairs = list(zip(fields[::2], fields[1::2], strict=False))
    for at, (name, value) in enumerate(pairs):
        if name == BODY:
            return dict(pairs[:at] + pairs[at + 1 :]), value
    if len(pairs) == 1:
        return {}, pairs[0][1]
    flat = {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in pairs
    }
    return {}, json.dumps(flat).encode()


def _dead(topic: str, number: bytes, fields: Sequence[bytes]) -> DeadLetterEntry:
    headers, body = _parted(fields)
    return from_dead_headers(headers, body, topic=topic, fallback_id=number.decode())


def _pair(field: bytes) -> tuple[str, str]:
    topic, _, group = field.decode().partition("\n")
    return topic, group


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


class RedisQueue(BusQueue):
    """The bus on Redis, usable without a container: ``await RedisQueue(url=…).connect()``."""

    def __init__(
        self,
        url: str = URL,
        max_connections: int = 10,
        *,
        prefix: str = PREFIX,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        options: BusOptions | None = None,
    ) -> None:
        driver = RedisDriver(
            url,
            prefix=prefix,
            max_connections=max_connections,
            visibility_timeout=visibility_timeout,
        )
        super().__init__(driver, options=options)


def build(entry: NamedQueueConfig, services: Services) -> RedisDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    chosen = entry.redis or RedisDriverConfig()
    return RedisDriver(
        chosen.url or URL,
        prefix=chosen.prefix,
        max_connections=chosen.max_connections,
        socket_timeout=chosen.socket_timeout,
        visibility_timeout=entry.visibility_timeout,
        max_backlog=entry.max_backlog,
        dedup_window=entry.dedup_window,
    )

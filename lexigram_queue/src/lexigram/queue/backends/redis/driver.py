"""The bus on Redis Streams: consumer groups, leases by idle time, delays in sorted sets.

One stream per topic, which all its groups read; a group's retries and redrives go to a stream of
its own, so that no other group sees them. An entry is the bare body in the field ``body`` and the
rest of the message in fields of their own: any client with XADD and XREADGROUP can take part. Needs
Redis 7.0 or later. What happens inside Redis is in ``_scripts``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import anyio

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    DeadLetterEntry,
    Delivery,
    NotConnectedError,
    QueueError,
    QueueFullError,
)
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.redis import _scripts as scripts
from lexigram.queue.backends.redis._connections import SCRIPTS, Connection, Connections, run_script
from lexigram.queue.backends.redis._errors import explain
from lexigram.queue.backends.redis._member import Member
from lexigram.queue.backends.redis._wire import (
    MAX_BYTES,
    NAME,
    from_fields,
    kind_of,
    lane_of,
    milliseconds,
    pages_of,
    read_dead_letter,
    read_pair,
    to_fields,
)
from lexigram.queue.backends.services import Services
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig, RedisDriverConfig, override
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.errors import RedisQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.envelope import dead_headers, from_headers, redriven, to_headers
from lexigram.resilience.redis import connect

URL: Final = "redis://localhost:6379/0"
PREFIX: Final = "lexigram"
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
        url: str | None = None,
        *,
        config: RedisDriverConfig | None = None,
        prefix: str | None = None,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
    ) -> None:
        """``url`` and ``prefix`` come before those of ``config``, which has all other settings."""
        self._config = override(config or RedisDriverConfig(), url=url, prefix=prefix)
        self.prefix = self._config.prefix
        self.visibility_timeout: float | None = visibility_timeout
        self._lease = milliseconds(visibility_timeout)
        self._look_again = min(LOOK_AGAIN, visibility_timeout / 2)
        self._max_backlog = max_backlog
        self._window = milliseconds(dedup_window) if dedup_window else 0
        self._me = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:12]}"
        self._connections: Connections | None = None
        self._members: dict[tuple[str, str], Member] = {}
        self._address = "redis"

    def __repr__(self) -> str:
        return f"RedisDriver({self._address!r}, prefix={self.prefix!r})"  # never the password

    # Life.

    async def connect(self) -> None:
        """Reach Redis and bring the scripts there; on a healthy connection only a question."""
        if self._connections is None:
            self._connections = self._open_connections()
        facts = await self._command("INFO", "server")
        for script in SCRIPTS:
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

    def _open_connections(self) -> Connections:
        require_library("redis.asyncio", extra="redis")
        try:
            client = connect(
                self._config.url or URL,
                self._config.socket_timeout,
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
        return Connections(
            client.connection_pool, self._config.max_connections, self._config.socket_timeout
        )

    async def close(self) -> None:
        """Hand back what this member has and disconnect."""
        connections = self._connections
        if connections is None:
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
        if self._connections is connections:
            self._connections = None
        await connections.close()

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
        return [read_pair(field) for field in await self._command("HKEYS", f"{self.prefix}:groups")]

    # Out.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Add the messages, as many at once as fit into one call."""
        self._require_connections()
        pages = list(
            pages_of(messages, (self.prefix, self._max_backlog, self._window))
        )  # all are checked before any is sent
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

    # In.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Hand out what is there, or what comes in time."""
        connections, member = self._require_connections(), self._member(topic, group)
        with self._translate_errors(topic):
            async with connections.one() as connection:
                return await self._receive(connection, member, limit, wait)

    async def _receive(
        self, connection: Connection, member: Member, limit: int, wait: float
    ) -> Sequence[Delivery]:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            now = loop.time()
            is_due = now >= member.look_at
            if is_due or not member.is_plain:
                found = await self._take(connection, member, limit, is_due)
                if found:
                    return found
            left = until - loop.time()
            if member.is_paused:
                if left <= 0:
                    return ()
                await asyncio.sleep(min(left, self._look_again / 2))
                continue
            found = await self._read(
                connection, member, limit, min(left, member.look_at - loop.time())
            )
            if found or loop.time() >= until:
                return found

    async def _take(
        self, connection: Connection, member: Member, limit: int, upkeep: bool
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
        answer = await run_script(connection, scripts.TAKE, arguments)
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
        self, connection: Connection, member: Member, limit: int, block: float
    ) -> Sequence[Delivery]:
        """Read the plain streams, or wait for something to come there."""
        count = limit if member.is_plain else 1  # the most urgent is elsewhere: look there next
        command = ["XREADGROUP", "GROUP", member.group, self._me, "COUNT", count]
        if block > 0:
            command += ["BLOCK", max(1, int(block * 1000))]
        command += ["STREAMS", *member.streams, *member.news]
        answer = await connection.ask(command, max(0.0, block))
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
        self, member: Member, stream: bytes, entry: bytes, count: int, fields: Sequence[bytes]
    ) -> Delivery:
        headers, body = from_fields(fields or ())
        message = from_headers(
            headers, body, topic=member.topic, fallback_id=f"{member.topic}/{entry.decode()}"
        )
        key = message.headers.get(ORDERING_KEY) if message.headers else None
        lane = str(lane_of(key)) if key else ""
        receipt = (stream, entry, count, lane)
        return Delivery(message, member.topic, member.group, receipt, count % scripts.RELEASED)

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
        fields = to_fields(to_headers(again), again.payload)
        member = self._member(delivery.topic, delivery.group)
        await self._ask(
            scripts.NACK,
            self._of(
                member,
                self._me,
                *delivery.receipt,
                kind_of(again),
                milliseconds(delay) if delay > 0 else 0,
                *fields,
            ),
            topic=delivery.topic,
        )
        member.look_at = 0.0

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Release them to the next receiver."""
        for member, receipts in self._by_member(deliveries):
            arguments = self._of(member, self._me, *receipts)
            await self._ask(scripts.RELEASE, arguments, topic=member.topic)
            member.look_at = 0.0

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Begin the idle time anew. More than the visibility time-out at once is not possible."""
        idle = max(0, self._lease - milliseconds(seconds))
        lost: list[Delivery] = []
        for member, receipts in self._by_member(deliveries):
            arguments = self._of(member, self._me, idle, *receipts)
            answer = await self._ask(scripts.EXTEND, arguments, topic=member.topic)
            mine = [one for one in deliveries if (one.topic, one.group) == member.name]
            lost += [mine[position] for position in answer]
        return lost

    async def mark_begun(self, delivery: Delivery) -> int:
        """Count in a hash beside the streams; what settles the message removes it."""
        member = self._member(delivery.topic, delivery.group)
        arguments = self._of(member, self._me, *delivery.receipt)
        return int(await self._ask(scripts.MARK_BEGUN, arguments, topic=delivery.topic))

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Keep the entry and acknowledge the message, in one step."""
        fields = to_fields(dead_headers(entry), entry.message.payload)
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
        return [read_dead_letter(topic, number, fields) for number, fields in page]

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

    async def _bring_back(self, member: Member, page: Sequence[Any]) -> int:
        arguments = self._of(member)
        for number, fields in page:
            old = read_dead_letter(member.topic, number, fields).message
            message = redriven(old)
            again = to_fields(to_headers(message), message.payload)
            arguments += (old.id, number, kind_of(message), len(again), *again)
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
        """What no member has, without taking it."""
        member = self._member(topic, group)
        arguments = self._of(member, int(member.is_pattern), limit, self._lease)
        found = await self._ask(scripts.PEEK, arguments, topic=topic)
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
        return (await self._read_statistics(topic, group))[0]

    async def lag(self, topic: str, group: str) -> int:
        """Waiting, due, or without an owner; paused or not."""
        return (await self._read_statistics(topic, group))[1]

    async def _read_statistics(self, topic: str, group: str) -> tuple[int, int]:
        member = self._member(topic, group)
        arguments = self._of(member, int(member.is_pattern), self._lease)
        depth, lag = await self._ask(scripts.STATISTICS, arguments, topic=topic)
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

    def _member(self, topic: str, group: str) -> Member:
        found = self._members.get((topic, group))
        if found is None:
            found = self._members[topic, group] = Member(self.prefix, topic, group)
        return found

    def _of(self, member: Member, *more: Any) -> list[Any]:
        return [self.prefix, member.topic, member.group, *more]

    def _look_at_all(self) -> None:
        for member in self._members.values():
            member.look_at = 0.0

    def _by_member(self, deliveries: Sequence[Delivery]) -> Iterable[tuple[Member, list[Any]]]:
        found: dict[tuple[str, str], list[Any]] = {}
        for one in deliveries:
            receipts = found.get((one.topic, one.group))
            if receipts is None:
                receipts = found[one.topic, one.group] = []
            receipts += one.receipt
        return [(self._member(*name), receipts) for name, receipts in found.items()]

    async def _tidy(self, member: Member) -> None:
        patience = max(FORGET_MEMBERS, 10 * (self.visibility_timeout or 0))
        stale = await self._ask(
            scripts.TIDY, self._of(member, milliseconds(patience)), topic=member.topic
        )
        for field in stale:
            topic, group = read_pair(field)
            if (topic, group) not in self._members:
                await self.drop(topic, group)

    def _require_connections(self) -> Connections:
        if self._connections is None:
            raise NotConnectedError(
                "the redis queue is not connected",
                backend=NAME,
                hint="await connect() before use; after close() nothing is accepted",
            )
        return self._connections

    async def _command(self, *command: Any) -> Any:
        with self._translate_errors():
            async with self._require_connections().one_of_few() as connection:
                return await connection.ask(command)

    async def _ask(self, script: str, arguments: list[Any], *, topic: str) -> Any:
        """The answer of a script."""
        with self._translate_errors(topic):
            async with self._require_connections().one_of_few() as connection:
                return await run_script(connection, script, arguments)

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
    def _translate_errors(self, topic: str = "unknown") -> Generator[None, None, None]:
        """The one place where errors of the client become ours."""
        from redis.exceptions import RedisError

        try:
            yield
        except (RedisError, OSError, TimeoutError) as error:
            raise explain(error, topic, self._address, self.prefix) from error
        except UnicodeEncodeError as error:
            raise RedisQueueError(
                "a name or header is not valid text", topic=topic, hint="remove lone surrogates"
            ) from error


def _version(facts: bytes) -> tuple[int, ...]:
    found = re.search(rb"redis_version:(\d+)\.(\d+)", facts)
    return (int(found[1]), int(found[2])) if found else OLDEST


class RedisQueue(BusQueue):
    """The bus on Redis, usable without a container: ``await RedisQueue(url=…).connect()``."""

    def __init__(
        self,
        url: str | None = None,
        max_connections: int | None = None,
        *,
        config: RedisDriverConfig | None = None,
        prefix: str | None = None,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        options: BusOptions | None = None,
    ) -> None:
        """``config``: all settings; those that are given by name come before them."""
        driver = RedisDriver(
            url,
            config=override(config or RedisDriverConfig(), max_connections=max_connections),
            prefix=prefix,
            visibility_timeout=visibility_timeout,
        )
        super().__init__(driver, options=options)


def build(entry: NamedQueueConfig, services: Services) -> RedisDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    return RedisDriver(
        config=entry.redis,
        visibility_timeout=entry.visibility_timeout,
        max_backlog=entry.max_backlog,
        dedup_window=entry.dedup_window,
    )

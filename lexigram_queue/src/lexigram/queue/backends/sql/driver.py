"""The bus in the database of the application: durable, transactional, nothing else to run.

SQLite or PostgreSQL. While ``async with db.transaction()`` of the same database is open in a
task, what that task publishes becomes part of the transaction: sent when it commits, never when
it rolls back.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import anyio
import orjson
from attrs import define, field

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.sql.database import DatabaseError
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
from lexigram.queue.backends.services import Services
from lexigram.queue.backends.sql.store import Row, channel, json_headers, message_of
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.errors import SqlQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.envelope import from_dead_headers, redriven
from lexigram.sql import Database
from lexigram.sql.errors import TransactionScopeError
from lexigram.sql.leasing import WakeUp
from lexigram.sql.migrate import upgrade

if TYPE_CHECKING:
    from lexigram.leasing.subscriptions import Waiter
    from lexigram.queue.backends.sql.store import BusStore, Receipt

    Bell: TypeAlias = tuple[AbstractAsyncContextManager[Waiter], Waiter]

T = TypeVar("T")

NAME: Final = "sql"
POSTGRES_POLL: Final = 1.0  # poll interval beside notifications, in seconds
SQLITE_POLL: Final = 0.1  # other processes cannot notify: this finds their messages
LEAST_PAUSE: Final = 0.01  # shortest poll interval for what is due, in seconds
TIDY_SECONDS: Final = 60.0  # between two sweeps of what is over

CAPABILITIES: Final = frozenset(Capability) - {
    Capability.TTL,  # the runtime sets expired messages aside, by policy
}


class SqlDriver:
    """One member on a database. Gives leases back when it is closed."""

    name = NAME
    capabilities = CAPABILITIES
    max_message_bytes: int | None = None

    def __init__(
        self,
        database: Database | str | None = None,
        *,
        services: Services | None = None,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
        poll_interval: float | None = None,
    ) -> None:
        """``database``: an open one, a URL to open one of its own, or None: the application's."""
        self.visibility_timeout: float | None = visibility_timeout
        self._lease = visibility_timeout
        self._max_backlog = max_backlog
        self._dedup_window = dedup_window
        self._poll = poll_interval
        self._services = services or Services()
        self._given = database if isinstance(database, Database) else None
        self._url = database if isinstance(database, str) else None
        self._own: Database | None = None
        self._opened: BusStore | None = None
        self._places: dict[tuple[str, str], _Place] = {}
        self._tidy_at = 0.0

    # Life.

    async def connect(self) -> None:
        """Find or open the database, and see that the tables are there."""
        if self._opened is not None:
            await self._translate_errors("connect", self._opened.check())
            return
        database = await self._database()
        store = _store(database)
        if self._poll is None:
            self._poll = SQLITE_POLL if database.dialect == "sqlite" else POSTGRES_POLL
        try:
            await store.check()
        except DatabaseError as error:
            await self._close_own()
            raise SqlQueueError(
                f"the tables of the bus cannot be read: {error.message}",
                details=error.details,
                hint=error.hint or "run `lexigram db upgrade`",
            ) from error
        self._opened = store

    async def _database(self) -> Database:
        if self._given is not None:
            return self._given
        if self._url is None:
            return await self._services.require(
                Database, fix="add SqlModule to the application, or use another driver"
            )
        own = Database(self._url)
        try:
            await own.connect()
            self._own = own
            if own.dialect == "sqlite":  # a file of our own; a server is upgraded by its people
                await upgrade(own)
        except DatabaseError as error:
            await self._close_own()
            raise SqlQueueError(error.message, details=error.details, hint=error.hint) from error
        return own

    async def close(self) -> None:
        """Give back what this member holds, and stop listening."""
        store, self._opened = self._opened, None
        if store is None:
            return
        with anyio.CancelScope(shield=True):
            for place in self._places.values():
                await self._leave(store, place)
            self._places.clear()
            await self._close_own()

    async def _leave(self, store: BusStore, place: _Place) -> None:
        held = list(place.held)
        for waiting, _ in place.bells:
            await waiting.__aexit__(None, None, None)
        try:
            with anyio.move_on_after(5):
                if held:
                    await store.release(place.id, held)
        except DatabaseError:
            place.held.clear()  # their leases run out

    async def _close_own(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Add the group, or find it."""
        made = self._store.declare(topic, group, temporary=temporary)
        identity = await self._translate_errors("declare", made, topic)
        known = self._places.get((topic, group))
        if known is None or known.id != identity:
            self._places[topic, group] = _Place(id=identity)

    async def drop(self, topic: str, group: str) -> None:
        """Forget the group and all it holds."""
        store = self._store
        found = await self._translate_errors("drop", store.find_group(topic, group), topic)
        place = self._places.pop((topic, group), None)
        if place is not None:
            for waiting, _ in place.bells:
                await waiting.__aexit__(None, None, None)
        if found is not None:
            await self._translate_errors("drop", store.drop(found["id"]), topic)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All groups of the database."""
        return await self._translate_errors("list groups", self._store.groups())

    # Out.

    @property
    def joins_transaction(self) -> bool:
        """True when what this task publishes now belongs to a transaction it has open."""
        return self._opened is not None and self._opened.database.in_transaction

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Write the messages: all of them or none."""
        store = self._store
        if not messages:
            return
        full = await self._translate_errors(
            "publish",
            store.publish(messages, self._max_backlog, self._dedup_window),
            messages[0].topic,
        )
        if full:
            raise QueueFullError(
                f"topic {full[0]!r} has no group and keeps {self._max_backlog} messages for one",
                backend=NAME,
                topic=full[0],
                details={
                    "max_backlog": self._max_backlog,
                    "unconfirmed": [message.id for message in messages],
                },
                hint="start a consumer, or raise max_backlog",
            )

    # In.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Lease what is ready, or what becomes ready in time."""
        store, loop = self._store, asyncio.get_running_loop()
        until = loop.time() + wait
        place = await self._place(topic, group)
        while True:
            if loop.time() >= place.look_at:
                await self._look(store, place, topic, group)
            if place.has_news:
                rows = await self._translate_errors(
                    "receive", _whole(store.claim(place.id, limit, self._lease)), topic
                )
                place.has_news = bool(rows)
                if rows:
                    return [self._delivery(place, topic, group, row) for row in rows]
            left = until - loop.time()
            if left <= 0:
                return []
            await self._wait(store, place, left)

    async def _look(self, store: BusStore, place: _Place, topic: str, group: str) -> None:
        """Now and then: what is due becomes ready, and whether the group is still there."""
        now = asyncio.get_running_loop().time()
        found = await self._translate_errors("receive", store.look(place.id), topic)
        if found is None:
            self._places.pop((topic, group), None)
            raise self._unknown(topic, group)
        assert self._poll is not None
        soon = self._poll if found.next_due is None else min(self._poll, found.next_due)
        place.look_at = now + max(soon, LEAST_PAUSE)
        place.has_news = place.has_news or found.has_ready
        if now >= place.note_at:
            place.note_at = now + TIDY_SECONDS
            await self._translate_errors("receive", store.note_use(place.id), topic)
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_SECONDS
            await self._translate_errors("tidy up", store.tidy(self._dedup_window), topic)

    async def _wait(self, store: BusStore, place: _Place, left: float) -> None:
        """Until news, or until it is time to look."""
        left = min(left, max(place.look_at - asyncio.get_running_loop().time(), 0.0))
        with anyio.move_on_after(left):
            is_new = not place.bells  # what came before it hung there, nobody heard
            async with self._bell(store, place) as bell:
                if is_new or await bell.wait(left):
                    place.has_news = True

    @asynccontextmanager
    async def _bell(self, store: BusStore, place: _Place) -> AsyncGenerator[Waiter]:
        """One for each task that waits, kept for the next time: LISTEN costs a round trip."""
        if place.bells:
            waiting, bell = place.bells.pop()
        else:
            waiting = WakeUp(store.database, channel(place.id)).waiting()
            bell = await waiting.__aenter__()
        try:
            yield bell
        finally:
            if self._opened is store:
                place.bells.append((waiting, bell))
            else:
                await waiting.__aexit__(None, None, None)

    def _delivery(self, place: _Place, topic: str, group: str, row: Row) -> Delivery:
        receipt = (place.id, row["message"], row["fence"])
        place.held[receipt] = None
        return Delivery(message_of(row), topic, group, receipt, row["delivery_count"])

    # Settled.

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Delete what is done."""
        store = self._store
        for group, receipts in _by_group(deliveries).items():
            await self._translate_errors("acknowledge", store.settle(group, receipts))
        self._forget(deliveries)
        await self._let_next(deliveries)

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Give it back for later, by one statement."""
        await self._translate_errors(
            "retry", self._store.retry(delivery.receipt, delay, message), delivery.topic
        )
        self._forget((delivery,))
        place = self._places.get((delivery.topic, delivery.group))
        if place is not None:
            due = asyncio.get_running_loop().time() + delay
            place.look_at = min(place.look_at, due)

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Give them back as if they had not been delivered."""
        store = self._store
        for group, receipts in _by_group(deliveries).items():
            await self._translate_errors("release", store.release(group, receipts))
        self._forget(deliveries)

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Move the end of the leases that still hold."""
        store, kept = self._store, set[tuple[int, int, int]]()
        for group, receipts in _by_group(deliveries).items():
            kept.update(
                await self._translate_errors("extend", store.extend(group, receipts, seconds))
            )
        lost = [one for one in deliveries if one.receipt not in kept]
        self._forget(lost)
        return lost

    async def mark_begun(self, delivery: Delivery) -> int:
        """Count in the row of the delivery."""
        marked = self._store.mark_begun(delivery.receipt)
        return await self._translate_errors("mark", marked, delivery.topic)

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """The delivery itself becomes the entry, in one transaction."""
        message = entry.message
        body = None if message.payload == delivery.message.payload else message.payload
        buried = self._store.bury(
            delivery.receipt, entry.failed_at.timestamp(), message, _facts(entry), body
        )
        await self._translate_errors("dead letter", buried, delivery.topic)
        self._forget((delivery,))
        await self._let_next((delivery,))

    async def _let_next(self, settled: Sequence[Delivery]) -> None:
        """What was behind these in their keys may come now: tell those who wait for it."""
        groups = {one.receipt[0] for one in settled if ORDERING_KEY in one.message.headers}
        if groups:
            await self._translate_errors("wake consumers", self._store.ring(sorted(groups)))

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Entries, oldest first."""
        place = await self._place(topic, group)
        rows = await self._translate_errors(
            "list dead letters", self._store.list_dead(place.id, limit, offset), topic
        )
        return [_entry(row) for row in rows]

    async def count_dead(self, topic: str, group: str) -> int:
        """Count in the index of dead letters."""
        place = await self._place(topic, group)
        return await self._translate_errors("count", self._store.count_dead(place.id), topic)

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Entries become deliveries again."""
        place = await self._place(topic, group)
        return await self._translate_errors(
            "redrive", self._store.redrive(place.id, ids, redriven), topic
        )

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Delete entries."""
        place = await self._place(topic, group)
        return await self._translate_errors(
            "purge dead letters", self._store.purge_dead(place.id, ids), topic
        )

    # Operators.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """What is claimed next."""
        place = await self._place(topic, group)
        return await self._translate_errors("peek", self._store.peek(place.id, limit), topic)

    async def purge(self, topic: str, group: str) -> int:
        """Delete what waits."""
        place = await self._place(topic, group)
        return await self._translate_errors("purge", self._store.purge(place.id), topic)

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Hold back or let go, at the next claim of any member."""
        place = await self._place(topic, group)
        await self._translate_errors("pause", self._store.set_paused(topic, group, paused), topic)
        if not paused:
            await self._translate_errors("resume", self._store.ring([place.id]), topic)

    async def is_paused(self, topic: str, group: str) -> bool:
        """Whether the group is held back."""
        found = await self._translate_errors("pause", self._store.find_group(topic, group), topic)
        if found is None:
            raise self._unknown(topic, group)
        return bool(found["paused"])

    async def depth(self, topic: str, group: str) -> int:
        """All but dead letters."""
        place = await self._place(topic, group)
        return await self._translate_errors("count", self._store.depth(place.id), topic)

    async def lag(self, topic: str, group: str) -> int:
        """What could be claimed now, if the group were not paused."""
        place = await self._place(topic, group)
        return await self._translate_errors("count", self._store.lag(place.id), topic)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when the database answers a query on the tables in time."""
        started, problem = perf_counter(), f"no answer within {timeout:g} s"
        with anyio.move_on_after(timeout):
            try:
                await self._store.check()
            except (DatabaseError, QueueError) as error:
                problem = error.message
            else:
                problem = ""
        return HealthCheckResult(
            component="queue",
            status=HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY,
            message=problem or "the database answers",
            error=problem or None,
            duration_ms=(perf_counter() - started) * 1000,
        )

    # Parts.

    @property
    def _store(self) -> BusStore:
        if self._opened is None:
            raise NotConnectedError(
                "the sql queue is not connected",
                backend=NAME,
                hint="await connect() before use; after close() nothing is accepted",
            )
        return self._opened

    async def _place(self, topic: str, group: str) -> _Place:
        store = self._store
        known = self._places.get((topic, group))
        if known is not None:
            return known
        found = await self._translate_errors(
            "find the group", store.find_group(topic, group), topic
        )
        if found is None:
            raise self._unknown(topic, group)
        return self._places.setdefault((topic, group), _Place(id=found["id"]))

    def _unknown(self, topic: str, group: str) -> SqlQueueError:
        return SqlQueueError(
            f"group {group!r} of topic {topic!r} was never declared, or was dropped",
            topic=topic,
            hint="await driver.declare(topic, group) first",
        )

    def _forget(self, deliveries: Iterable[Delivery]) -> None:
        for one in deliveries:
            place = self._places.get((one.topic, one.group))
            if place is not None:
                place.held.pop(one.receipt, None)

    async def _translate_errors(self, what: str, work: Awaitable[T], topic: str = "unknown") -> T:
        """The one place where errors of the database become errors of the bus."""
        try:
            return await work
        except TransactionScopeError:
            raise  # a mistake in the caller's code, not a failure of the broker
        except DatabaseError as error:
            raise SqlQueueError(
                f"could not {what}: {error.message}",
                topic=topic,
                details=dict(error.details),
                hint=error.hint,
            ) from error


@define(kw_only=True)
class _Place:
    """What a driver remembers of a group."""

    id: int
    # Whether a claim may find something; else the next look tells.
    has_news: bool = True
    # Time of the loop: when to look for what is due, and to note that the group is used.
    look_at: float = 0.0
    note_at: float = 0.0
    # What this member holds, to give it back when it closes.
    held: dict[Receipt, None] = field(factory=dict["Receipt", None])
    bells: list[Bell] = field(factory=list["Bell"])


class SqlQueue(BusQueue):
    """The bus in a database, usable without a container.

    ``SqlQueue("sqlite:///bus.db")`` opens the file and makes its tables;
    ``SqlQueue(database)`` uses one that is open, and takes part in its transactions.
    """

    def __init__(
        self,
        database: Database | str = "sqlite:///lexigram.db",
        *,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
        poll_interval: float | None = None,
        options: BusOptions | None = None,
    ) -> None:
        driver = SqlDriver(
            database,
            visibility_timeout=visibility_timeout,
            max_backlog=max_backlog,
            dedup_window=dedup_window,
            poll_interval=poll_interval,
        )
        super().__init__(driver, options=options)


def build(entry: NamedQueueConfig, services: Services) -> SqlDriver:
    """The driver a configuration asks for."""
    return SqlDriver(
        entry.sql.url,
        services=services,
        visibility_timeout=entry.visibility_timeout,
        max_backlog=entry.max_backlog,
        dedup_window=entry.dedup_window,
        poll_interval=entry.sql.poll_interval,
    )


async def _whole(claim: Awaitable[T]) -> T:
    """Not cancelled half-way: it may be committed by then, and nobody would know the leases.

    Who stops gets the rows and gives them back.
    """
    with anyio.CancelScope(shield=True):
        return await claim
    raise AssertionError("unreachable")


def _store(database: Database) -> BusStore:
    if database.dialect == "sqlite":
        from lexigram.queue.backends.sql.store_sqlite import SqliteBusStore

        return SqliteBusStore(database)
    from lexigram.queue.backends.sql.store_postgres import PostgresBusStore

    return PostgresBusStore(database)


def _by_group(deliveries: Sequence[Delivery]) -> Mapping[int, list[Receipt]]:
    groups: dict[int, list[Receipt]] = defaultdict(list)
    for delivery in deliveries:
        groups[delivery.receipt[0]].append(delivery.receipt)
    return groups


def _facts(entry: DeadLetterEntry) -> str:
    return orjson.dumps(
        {
            "error": entry.error,
            "failed_at": entry.failed_at.isoformat(),
            "retry_count": entry.retry_count,
            "reason": entry.reason.value,
            "traceback": entry.traceback,
            "attempts": entry.attempts,
            "group": entry.group,
        }
    ).decode()


def _entry(row: Row) -> DeadLetterEntry:
    """A dead letter; what of its facts cannot be read takes its default."""
    facts, message = json_headers(row["dead"]), message_of(row)
    known = {header: facts[name] for name, header in _FACTS.items() if facts.get(name) is not None}
    found = from_dead_headers(known, message.payload, topic=message.topic, fallback_id=message.id)
    return replace(found, message=message)


# As ``_facts`` writes them, and as headers.
_FACTS: Final = {
    "error": "dead-error",
    "failed_at": "dead-at",
    "retry_count": "dead-retries",
    "reason": "dead-reason",
    "traceback": "dead-traceback",
    "attempts": "dead-attempts",
    "group": "dead-group",
}

"""The bus in a database: rows, and the statements that are the same on SQLite and PostgreSQL.

``store_postgres`` and ``store_sqlite`` have what differs: publishing, claiming and settling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import orjson
from attrs import frozen

from lexigram.contracts.data.sql.database import UniqueViolationError
from lexigram.contracts.queue import BusMessage, CapabilityError, DeliveryGuarantee
from lexigram.contracts.queue.headers import FAIRNESS_KEY, ORDERING_KEY, UNREADABLE
from lexigram.queue.runtime.envelope import SHOWN, as_text, delay_of, from_headers, to_headers
from lexigram.queue.runtime.topics import is_pattern

if TYPE_CHECKING:
    from lexigram.sql import Database
    from lexigram.sql.steps import Steps

LEVEL: Final = 1 << 40  # turns of one priority; the next one begins below
MAX_PRIORITY: Final = 1000  # beyond it priorities are equal: a rank has 63 bits
UNUSED_SECONDS: Final = 600.0  # then a temporary group is dropped
USED_STEP: Final = 60.0  # seconds between two notes that a group is in use
SWEPT: Final = 1000  # rows a sweep removes at a time
BURIED_AT_ONCE: Final = 5  # attempts to be the only dead letter of an id

Receipt: TypeAlias = tuple[int, int, int]  # group, message, fence
Row: TypeAlias = dict[str, Any]

# {now} takes one parameter: None on PostgreSQL, which reads its own clock; the time on SQLite. As a
# subquery it is evaluated once: a volatile function in a condition keeps PostgreSQL off the index.
POSTGRES_NOW: Final = (
    "(SELECT coalesce(CAST(? AS double precision),"
    " CAST(extract(epoch FROM clock_timestamp()) AS double precision)))"
)

FIND_GROUP: Final = "SELECT id, paused FROM lexigram_bus_groups WHERE topic = ? AND name = ?"
ALL_GROUPS: Final = "SELECT topic, name FROM lexigram_bus_groups ORDER BY id"
# Two processes may declare at once: the second one finds the row of the first.
ADD_GROUP: Final = """
INSERT INTO lexigram_bus_groups (topic, name, matches, temporary, used_at)
VALUES (?, ?, ?, ?, {now}) ON CONFLICT (topic, name) DO NOTHING RETURNING id"""
PAUSE_GROUP: Final = "UPDATE lexigram_bus_groups SET paused = ? WHERE topic = ? AND name = ?"
NOTE_USE: Final = """
UPDATE lexigram_bus_groups SET used_at = {now} WHERE id = ? AND used_at < {now} - ?"""
UNUSED_GROUPS: Final = """
SELECT id FROM lexigram_bus_groups WHERE temporary AND used_at < {now} - ?"""
FORGET_GROUP: Final = "DELETE FROM lexigram_bus_groups WHERE id = ?"

# By the primary key; some thousands of groups' rows at a time are not rare, a sweep not either.
HELD_BY_GROUP: Final = """
SELECT message FROM lexigram_bus_deliveries WHERE group_id = ? ORDER BY message LIMIT ?"""
# Not leased, not dead: what purge drops. By the indexes of ready and due rows.
WAITING: Final = """
SELECT message FROM lexigram_bus_deliveries
WHERE group_id = ? AND state IN ('ready', 'delayed') ORDER BY message LIMIT ?"""

DEPTH: Final = """
SELECT count(*) AS n FROM lexigram_bus_deliveries WHERE group_id = ? AND state <> 'dead'"""
LAG: Final = """
SELECT (SELECT count(*) FROM lexigram_bus_deliveries WHERE group_id = ? AND state = 'ready')
     + (SELECT count(*) FROM lexigram_bus_deliveries
        WHERE group_id = ? AND state IN ('delayed', 'leased') AND due_at <= {now}) AS n"""

# What a message is made of again; ``d`` is the delivery, ``m`` the message.
SEEN: Final = """
d.message, d.fence, d.delivery_count, d.rank, d.queued_at, d.envelope,
coalesce(d.body, m.body) AS body, m.id, m.topic, m.headers, m.sent_at, m.ttl, m.priority,
m.guarantee, m.retry_count, m.max_retries"""

# The same rows as LAG counts, for a claim makes both kinds ready: each kind by its own index.
PEEK: Final = f"""
SELECT {SEEN} FROM (
    SELECT * FROM (SELECT * FROM lexigram_bus_deliveries
        WHERE group_id = ? AND state = 'ready' ORDER BY rank, queued_at, message LIMIT ?) ready
    UNION ALL
    SELECT * FROM (SELECT * FROM lexigram_bus_deliveries
        WHERE group_id = ? AND state IN ('delayed', 'leased') AND due_at <= {{now}}
        ORDER BY due_at LIMIT ?) lapsed) d
JOIN lexigram_bus_messages m ON m.seq = d.message
ORDER BY d.rank, d.queued_at, d.message LIMIT ?"""  # noqa: S608 - constants
# One page of dead letters by ix_..._died.
LIST_DEAD: Final = f"""
SELECT {SEEN}, d.dead FROM lexigram_bus_deliveries d
JOIN lexigram_bus_messages m ON m.seq = d.message
WHERE d.group_id = ? AND d.state = 'dead' ORDER BY d.due_at, d.message LIMIT ? OFFSET ?"""  # noqa: S608 - constants
# By the index alone: ix_..._died has no other rows.
COUNT_DEAD: Final = """
SELECT count(*) AS n FROM lexigram_bus_deliveries WHERE group_id = ? AND state = 'dead'"""
DEAD_ONES: Final = """
SELECT message, id FROM lexigram_bus_deliveries
WHERE group_id = ? AND state = 'dead' AND due_at <= ? ORDER BY due_at, message LIMIT ?"""
DEAD_BY_ID: Final = """
SELECT message, id FROM lexigram_bus_deliveries
WHERE group_id = ? AND state = 'dead' AND id {listed}"""
NEWEST_DEAD: Final = """
SELECT max(due_at) AS newest FROM lexigram_bus_deliveries WHERE group_id = ? AND state = 'dead'"""
DEAD_ROW: Final = f"""
SELECT {SEEN}, d.dead FROM lexigram_bus_deliveries d
JOIN lexigram_bus_messages m ON m.seq = d.message
WHERE d.group_id = ? AND d.message = ? AND d.state = 'dead'"""  # noqa: S608 - constants

# Settling one delivery: only while its lease is the one we were given (fence).
RETRY: Final = """
UPDATE lexigram_bus_deliveries SET state = ?, due_at = {now} + ?, queued_at = {now} + ?,
    envelope = coalesce(?, envelope), body = coalesce(?, body), delivery_count = 0, begun = 0
WHERE group_id = ? AND message = ? AND fence = ? AND state = 'leased'"""
# By the primary key; locks the one row.
MARK_BEGUN: Final = """
UPDATE lexigram_bus_deliveries SET begun = begun + 1
WHERE group_id = ? AND message = ? AND fence = ? AND state = 'leased' RETURNING begun"""
BURY: Final = """
UPDATE lexigram_bus_deliveries SET state = 'dead', id = ?, due_at = ?, envelope = ?, dead = ?,
    body = coalesce(?, body)
WHERE group_id = ? AND message = ? AND fence = ? AND state = 'leased'"""
STILL_LEASED: Final = """
SELECT 1 FROM lexigram_bus_deliveries
WHERE group_id = ? AND message = ? AND fence = ? AND state = 'leased'"""
# One entry per message id and group: the younger one stays.
OLDER_DEAD: Final = """
SELECT message FROM lexigram_bus_deliveries WHERE group_id = ? AND id = ? AND state = 'dead'"""
REVIVE: Final = """
UPDATE lexigram_bus_deliveries SET state = 'ready', queued_at = {now}, envelope = ?, dead = NULL,
    delivery_count = 0, begun = 0
WHERE group_id = ? AND message = ? AND state = 'dead'"""

# A minute's worth at a time, by ix_..._seen_at.
FORGET_SEEN: Final = "DELETE FROM lexigram_bus_seen WHERE seen_at < {now} - ?"
FORGET_DONE: Final = """
DELETE FROM lexigram_bus_messages WHERE seq IN (
    SELECT seq FROM lexigram_bus_messages WHERE remaining <= 0 AND copies > 0 LIMIT ?)"""

ANYTHING: Final = "SELECT 1 FROM lexigram_bus_groups LIMIT 1"


@frozen(kw_only=True)
class Look:
    """What there is for a group."""

    # Seconds until the next delay or lease is over; None: there is none.
    next_due: float | None
    # Whether it is worth to claim.
    has_ready: bool


class BusStore(ABC):
    """The statements of the driver. Their parameters are written ``?``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # What differs by database.

    @abstractmethod
    async def publish(
        self, messages: Sequence[BusMessage], max_backlog: int, dedup_window: float
    ) -> Sequence[str]:
        """Store all messages and notify waiters; or none, and return the topics that are full."""

    @abstractmethod
    async def claim(self, group: int, limit: int, lease: float) -> Sequence[Row]:
        """Lease what comes next, and count the delivery."""

    @abstractmethod
    async def look(self, group: int) -> Look | None:
        """Make what is due ready, and say what there is; None when the group is gone."""

    @abstractmethod
    async def settle(self, group: int, receipts: Sequence[Receipt]) -> None:
        """Delete leased deliveries, and messages no group needs any more."""

    @abstractmethod
    async def release(self, group: int, receipts: Sequence[Receipt]) -> None:
        """Make leased deliveries ready again; the delivery did not count."""

    @abstractmethod
    async def extend(
        self, group: int, receipts: Sequence[Receipt], seconds: float
    ) -> Sequence[Receipt]:
        """Move the end of leases; returns those that were still held."""

    @abstractmethod
    def adopt(self, topic: str) -> Steps[None]:
        """Give the backlog of a topic to its groups, the first of which was just made."""

    @abstractmethod
    def remove(self, group: int, messages: Sequence[int]) -> Steps[int]:
        """Delete deliveries, whatever their state, and messages no group needs any more."""

    @abstractmethod
    def render_statement(self, statement: str) -> str:
        """A statement of this module for this database."""

    @abstractmethod
    def now(self) -> float | None:
        """The parameter of {now}."""

    @abstractmethod
    def list_parameter(self, values: Sequence[str]) -> Any:
        """The parameter of {listed}."""

    @abstractmethod
    def like(self, pattern: str) -> str:
        """A pattern of topics as this database compares it."""

    @abstractmethod
    async def ring(self, groups: Sequence[int]) -> None:
        """Wake who waits for these groups, where the statement itself did not."""

    # What is the same.

    async def check(self) -> None:
        """Raise when the tables are not there."""
        await self.database.execute_query(ANYTHING)

    async def find_group(self, topic: str, name: str) -> Row | None:
        """The id of a group, and whether it is paused."""
        return (await self.database.execute_query(FIND_GROUP, (topic, name))).first()

    async def groups(self) -> list[tuple[str, str]]:
        """All of them, in the order they were made."""
        found = await self.database.execute_query(ALL_GROUPS)
        return [(row["topic"], row["name"]) for row in found.rows]

    async def declare(self, topic: str, name: str, *, temporary: bool) -> int:
        """The id of the group, which exists from now on."""
        return await self.database.run_steps(lambda: self._declare(topic, name, temporary))

    def _declare(self, topic: str, name: str, temporary: bool) -> Steps[int]:
        known = (yield FIND_GROUP, (topic, name)).first()
        if known is not None:
            return int(known["id"])
        matches = self.like(topic) if is_pattern(topic) else None
        added = yield (
            self.render_statement(ADD_GROUP),
            (topic, name, matches, temporary, self.now()),
        )
        if not added.rows:  # another process was quicker
            found = (yield FIND_GROUP, (topic, name)).first()
            assert found is not None
            return int(found["id"])
        if matches is None:
            yield from self.adopt(topic)
        return int(added.rows[0]["id"])

    async def drop(self, group: int) -> None:
        """Remove the group, then what it held; publishers stop adding with the first step."""
        await self.database.execute(FORGET_GROUP, (group,))
        await self._remove_all(HELD_BY_GROUP, group)

    async def purge(self, group: int) -> int:
        """Remove what waits."""
        return await self._remove_all(WAITING, group)

    async def _remove_all(self, which: str, group: int) -> int:
        """In portions: a transaction over a million rows would hold up everybody."""
        gone, last = 0, SWEPT
        while last == SWEPT:
            last = await self.database.run_steps(lambda: self._remove_some(which, group))
            gone += last
        return gone

    def _remove_some(self, which: str, group: int) -> Steps[int]:
        found = yield which, (group, SWEPT)
        if not found.rows:
            return 0
        return (yield from self.remove(group, [row["message"] for row in found.rows]))

    async def set_paused(self, topic: str, name: str, paused: bool) -> bool:
        """Hold back or let go; False when there is no such group."""
        done = await self.database.execute(PAUSE_GROUP, (paused, topic, name))
        return done.row_count > 0

    async def depth(self, group: int) -> int:
        """All but dead letters."""
        found = await self.database.execute_query(DEPTH, (group,))
        return int(found.rows[0]["n"])

    async def lag(self, group: int) -> int:
        """What could be claimed now, once what is due has been made ready."""
        found = await self.database.execute_query(
            self.render_statement(LAG), (group, group, self.now())
        )
        return int(found.rows[0]["n"])

    async def peek(self, group: int, limit: int) -> list[BusMessage]:
        """What is claimed next."""
        found = await self.database.execute_query(
            self.render_statement(PEEK), (group, limit, group, self.now(), limit, limit)
        )
        return [message_of(row) for row in found.rows]

    async def retry(self, receipt: Receipt, delay: float, new: BusMessage | None) -> None:
        """Give a delivery back for later, changed or as it was."""
        state = "delayed" if delay > 0 else "ready"
        envelope = None if new is None else envelope_of(new)
        body = None if new is None else new.payload
        await self.database.execute(
            self.render_statement(RETRY),
            (state, self.now(), delay, self.now(), delay, envelope, body, *receipt),
        )
        if delay <= 0:
            await self.ring([receipt[0]])

    async def mark_begun(self, receipt: Receipt) -> int:
        """Count that a handler begins; 0 when the lease is over."""
        row = (await self.database.execute(MARK_BEGUN, receipt)).first()
        return 0 if row is None else int(row["begun"])

    async def bury(
        self, receipt: Receipt, died: float, message: BusMessage, facts: str, body: bytes | None
    ) -> None:
        """Make a delivery a dead letter, the only one of its id in the group."""
        for attempt in range(BURIED_AT_ONCE):
            try:
                await self.database.run_steps(
                    lambda: self._bury(receipt, died, message, facts, body)
                )
            except UniqueViolationError:
                # Another worker set aside a message of the same id since we looked.
                if attempt + 1 == BURIED_AT_ONCE:
                    raise
            else:
                return

    def _bury(
        self, receipt: Receipt, died: float, message: BusMessage, facts: str, body: bytes | None
    ) -> Steps[None]:
        if not (yield STILL_LEASED, receipt).rows:
            return
        older = yield OLDER_DEAD, (receipt[0], message.id)
        if older.rows:
            yield from self.remove(receipt[0], [row["message"] for row in older.rows])
        yield BURY, (message.id, died, envelope_of(message), facts, body, *receipt)

    async def list_dead(self, group: int, limit: int, offset: int) -> list[Row]:
        """One page, oldest first."""
        found = await self.database.execute_query(LIST_DEAD, (group, limit, offset))
        return found.rows

    async def count_dead(self, group: int) -> int:
        """How many dead letters there are."""
        found = await self.database.execute_query(COUNT_DEAD, (group,))
        return int(found.rows[0]["n"])

    async def redrive(self, group: int, ids: Sequence[str] | None, renew: Renew) -> int:
        """Bring dead letters back, changed by ``renew``."""

        def revive(messages: Sequence[int]) -> Steps[int]:
            revived = 0
            for message in messages:
                row = (yield DEAD_ROW, (group, message)).first()
                if row is None:
                    continue
                new = envelope_of(renew(message_of(row)))
                done = yield self.render_statement(REVIVE), (self.now(), new, group, message)
                revived += done.row_count
            return revived

        done = await self._each_dead(group, ids, revive)
        await self.ring([group])
        return done

    async def purge_dead(self, group: int, ids: Sequence[str] | None) -> int:
        """Remove dead letters."""
        return await self._each_dead(group, ids, lambda found: self.remove(group, found))

    async def _each_dead(self, group: int, ids: Sequence[str] | None, work: Work) -> int:
        """In portions; later dead letters are skipped."""
        newest = (await self.database.execute_query(NEWEST_DEAD, (group,))).rows[0]["newest"]
        done, last = 0, SWEPT

        def some() -> Steps[int]:
            if ids is None:
                found = yield DEAD_ONES, (group, newest, SWEPT)
            else:
                found = yield self.render_statement(DEAD_BY_ID), (group, self.list_parameter(ids))
            return (yield from work([row["message"] for row in found.rows]))

        while last == SWEPT and newest is not None:
            last = await self.database.run_steps(some)
            done += last
            if ids is not None:
                break
        return done

    async def tidy(self, dedup_window: float) -> None:
        """Forget what is over: unused temporary groups, old ids, messages nobody needs."""
        unused = await self.database.execute_query(
            self.render_statement(UNUSED_GROUPS), (self.now(), UNUSED_SECONDS)
        )
        for row in unused.rows:
            await self.drop(row["id"])
        await self.database.execute(self.render_statement(FORGET_SEEN), (self.now(), dedup_window))
        await self.database.execute(FORGET_DONE, (SWEPT,))

    async def note_use(self, group: int) -> None:
        """Record a receive, so that a temporary group is not dropped."""
        await self.database.execute(
            self.render_statement(NOTE_USE), (self.now(), group, self.now(), USED_STEP)
        )


def channel(group: int) -> str:
    """The NOTIFY channel of a group."""
    return f"lexigram_bus_{group}"


def columns(messages: Sequence[BusMessage], now: float) -> list[tuple[Any, ...]]:
    """Messages as rows: id, topic, body, headers, sent_at, ttl, priority, guarantee, retry_count,
    max_retries, delay, ordering_key, lane.
    """
    rows: list[tuple[Any, ...]] = []
    for message in messages:
        headers = message.headers
        if headers:
            key, lane = headers.get(ORDERING_KEY), headers.get(FAIRNESS_KEY)
            text, delay = _json_of(message), delay_of(message, now)
        else:
            key, lane, text, delay = None, None, "{}", 0.0
        check_text(message, key, lane)
        rows.append(
            (
                message.id,
                message.topic,
                bytes(message.payload),
                text,
                message.timestamp,
                message.ttl,
                message.priority,
                message.delivery_guarantee.value,
                message.retry_count,
                message.max_retries,
                delay,
                key,
                key if lane is None else lane,
            )
        )
    return rows


def _json_of(message: BusMessage) -> str:
    try:
        return orjson.dumps(message.headers).decode()
    except TypeError as error:
        raise _unstorable(message, "a header") from error


def check_text(message: BusMessage, *keys: str | None) -> None:
    """Raise for an id, topic or key that is no text to PostgreSQL or SQLite."""
    for text in (message.id, message.topic, *keys):
        if text and not text.isprintable() and not _is_text(text):
            raise _unstorable(message, repr(text))


def _is_text(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _unstorable(message: BusMessage, what: str) -> CapabilityError:
    # This class, because it says that nothing is wrong with the other messages of the batch.
    return CapabilityError(
        f"message {message.id!r}: {what} is no text a database stores",
        backend="sql",
        topic=message.topic,
        hint="leave out NUL characters and lone surrogates in id, topic, keys and headers",
    )


def message_of(row: Row) -> BusMessage:
    """A row as a message; ``envelope`` wins where the group's message differs by now.

    A row of another program may hold anything, on SQLite in any column.
    """
    if row["envelope"] is not None:
        headers, is_ours = json_headers(row["envelope"]), False
    else:
        text = row["headers"]
        headers = {} if text == "{}" else json_headers(text)
        is_ours = UNREADABLE not in headers and _is_ordinary(row)
    if is_ours:
        return BusMessage(
            row["id"],
            row["topic"],
            row["body"],
            headers,
            row["sent_at"],
            row["ttl"],
            row["priority"],
            _GUARANTEES[row["guarantee"]],
            row["retry_count"],
            row["max_retries"],
        )
    if row["envelope"] is None:
        headers |= {name: row[column] for name, column in _COLUMNS.items()}
        if row["ttl"] is None:
            del headers["ce-lexttl"]
    body = row["body"]
    return from_headers(
        headers,
        body if body.__class__ is bytes else as_text(body).encode(),
        topic=as_text(row["topic"]),
        fallback_id=f"sql:{row['message']}",
    )


def json_headers(text: Any) -> dict[str, Any]:
    """Headers that were stored as a JSON object; UNREADABLE alone where it is none."""
    try:
        found: Any = orjson.loads(text)
    except (ValueError, TypeError):
        found = None
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    return {UNREADABLE: f"the headers {as_text(text)[:SHOWN]!a}"}


def _is_ordinary(row: Row) -> bool:
    """Whether every column holds what a message has there."""
    ttl = row["ttl"]
    return (
        row["guarantee"] in _GUARANTEES
        and row["priority"].__class__ is int
        and row["retry_count"].__class__ is int
        and row["max_retries"].__class__ is int
        and row["sent_at"].__class__ is float
        and (ttl is None or ttl.__class__ is float)
        and row["body"].__class__ is bytes
        and row["id"].__class__ is str
        and row["topic"].__class__ is str
    )


def envelope_of(message: BusMessage) -> str:
    """Everything but the body, as native headers."""
    try:
        return orjson.dumps(to_headers(message)).decode()
    except TypeError as error:
        raise _unstorable(message, "a header") from error


def base_rank(priority: int) -> int:
    """Where the turns of a priority begin."""
    return -max(-MAX_PRIORITY, min(MAX_PRIORITY, priority)) * LEVEL


# The names under which columns are read like the headers of another broker.
_COLUMNS: Final = {
    "ce-id": "id",
    "ce-lextopic": "topic",
    "ce-lextimestamp": "sent_at",
    "ce-lexttl": "ttl",
    "ce-lexpriority": "priority",
    "ce-lexguarantee": "guarantee",
    "ce-lexretries": "retry_count",
    "ce-lexmaxretries": "max_retries",
}
_GUARANTEES: Final = {guarantee.value: guarantee for guarantee in DeliveryGuarantee}

if TYPE_CHECKING:
    from collections.abc import Callable

    Renew: TypeAlias = Callable[[BusMessage], BusMessage]
    Work: TypeAlias = Callable[[Sequence[int]], Steps[int]]

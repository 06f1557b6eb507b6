"""Messages that wait in the database for the broker: the statements of the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import orjson
from attrs import frozen

from lexigram import clock
from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.contracts.queue.limits import check_message, check_topic
from lexigram.leasing import Backoff
from lexigram.queue.backends.sql.store import POSTGRES_NOW, check_text, envelope_of, json_headers
from lexigram.queue.runtime.envelope import from_headers

if TYPE_CHECKING:
    from lexigram.sql import Database
    from lexigram.sql.steps import Steps

ROW_BACKOFF: Final = Backoff(first=1.0, cap=300.0)  # of a message the broker refuses
CLAIMING: Final = 0x6C6578_6F7574  # "lexout": the advisory lock of PostgreSQL for claims

STAGE: Final = """
INSERT INTO lexigram_bus_outbox (queue, owner, id, topic, body, envelope, ordering_key, due_at)
VALUES {rows}"""
# Relays are notified at the commit.
NOTIFY: Final = "SELECT pg_notify(?, '')"

# Claims of a queue are made one after the other (the lock lasts for this short transaction), so
# that the second one sees which keys the first one took.
ONE_AT_A_TIME: Final = "SELECT pg_advisory_xact_lock(?, hashtext(?))"
# The oldest rows by ix_..._queue that nobody has. A message of a key waits while an earlier one
# is with a relay or pauses after a failure (ix_..._key). With the second parameter true pauses
# do not count.
CLAIM: Final = """
UPDATE lexigram_bus_outbox SET holder = ?, due_at = {now} + ?
WHERE seq {picked}SELECT o.seq FROM lexigram_bus_outbox o
    WHERE o.queue = ? AND (o.due_at <= {now} OR (o.holder IS NULL AND CAST(? AS boolean)))
      AND (o.ordering_key IS NULL OR NOT EXISTS (
        SELECT 1 FROM lexigram_bus_outbox e
        WHERE e.queue = o.queue AND e.ordering_key = o.ordering_key AND e.seq < o.seq
          AND e.due_at > {now} AND NOT (e.holder IS NULL AND CAST(? AS boolean))))
    ORDER BY o.seq LIMIT ?{unpicked}
RETURNING seq, id, topic, body, envelope, ordering_key, attempts"""
ANY_WAITING: Final = """
SELECT 1 FROM lexigram_bus_outbox WHERE queue = ? AND due_at <= {now} ORDER BY seq LIMIT 1"""
# Only what this relay still has: after its lease ran out another one may have it.
DELETE: Final = "DELETE FROM lexigram_bus_outbox WHERE seq {listed} AND holder = ?"
FAIL: Final = """
UPDATE lexigram_bus_outbox SET holder = NULL, due_at = {now} + ?, attempts = attempts + ?, error = ?
WHERE seq {listed} AND holder = ?"""

PENDING: Final = """
SELECT seq, id, topic, body, envelope, ordering_key, attempts, error FROM lexigram_bus_outbox
WHERE queue = ? ORDER BY seq LIMIT ?"""
FORGET: Final = "DELETE FROM lexigram_bus_outbox WHERE queue = ? AND seq = ?"
FAIL_ONE: Final = """
UPDATE lexigram_bus_outbox SET holder = NULL, due_at = {now} + ?, attempts = attempts + 1, error = ?
WHERE queue = ? AND seq = ?"""
CLEAR: Final = "DELETE FROM lexigram_bus_outbox WHERE queue = ? AND owner = ?"
NEWEST: Final = "SELECT max(seq) AS seq FROM lexigram_bus_outbox WHERE queue = ?"
UNSENT: Final = (
    "SELECT id FROM lexigram_bus_outbox WHERE queue = ? AND seq <= ? ORDER BY seq LIMIT ?"
)
COUNT: Final = "SELECT count(*) AS n FROM lexigram_bus_outbox WHERE queue = ?"


@frozen(kw_only=True)
class Staged:
    """A row a relay has."""

    seq: int
    message: BusMessage
    key: str | None
    attempts: int


class SqlOutboxStore:
    """Rows of ``lexigram_bus_outbox`` for one queue; implements OutboxStoreProtocol."""

    def __init__(self, database: Database, queue: str) -> None:
        self.database = database
        self.queue = queue
        self._is_postgres = database.dialect == "postgresql"

    # In the caller's transaction.

    async def append_batch(self, events: Sequence[BusMessage]) -> None:
        """Add messages of no owner; payloads are bytes. Refuses what publishing would refuse."""
        for event in events:
            check_topic(event.topic)
            check_message(event)
        await self.stage(events, owner=str(uuid4()))

    async def stage(self, messages: Sequence[BusMessage], *, owner: str) -> None:
        """Add messages by one statement, and notify the relays."""
        if not messages:
            return
        rows: list[Any] = []
        for one in messages:
            key = one.headers.get(ORDERING_KEY)
            check_text(one, key)
            rows += (self.queue, owner, one.id, one.topic, one.payload, envelope_of(one), key, 0.0)
        marks = f"({', '.join('?' * 8)})"
        statement = STAGE.replace("{rows}", ", ".join([marks] * len(messages)))

        def steps() -> Steps[None]:
            yield statement, rows
            if self._is_postgres:
                yield NOTIFY, (self.channel,)

        await self.database.run_steps(steps)
        if not self._is_postgres:
            # Early inside a transaction: the relay claims through the writer, after the commit.
            await self.database.notify(self.channel)

    @property
    def channel(self) -> str:
        """The channel on which relays are notified."""
        return f"lexigram_outbox_{self.queue}"[:63]  # of PostgreSQL

    # For the relay.

    async def claim(
        self, holder: str, *, limit: int, lease: float, at_once: bool = False
    ) -> list[Staged]:
        """The oldest rows that may be published; ``at_once``: also those that pause."""

        def steps() -> Steps[list[Staged]]:
            if self._is_postgres:
                yield ONE_AT_A_TIME, (CLAIMING & 0x7FFFFFFF, self.queue)
            now = self._now()
            found = yield (
                self._render_statement(CLAIM),
                (holder, now, lease, self.queue, now, at_once, now, at_once, limit),
            )
            return sorted((_to_staged(row) for row in found.rows), key=lambda row: row.seq)

        return await self.database.run_steps(steps)

    async def has_waiting(self) -> bool:
        """Whether a claim may find something; does not wait for the writer."""
        found = await self.database.execute_query(
            self._render_statement(ANY_WAITING), (self.queue, self._now())
        )
        return bool(found.rows)

    async def delete(self, holder: str, rows: Sequence[Staged]) -> None:
        """The broker confirmed these."""
        if rows:
            listed = self._list([row.seq for row in rows])
            await self.database.execute(self._render_statement(DELETE), (listed, holder))

    async def give_back(
        self, holder: str, rows: Sequence[Staged], *, error: str | None, pause: float
    ) -> None:
        """Not confirmed: for a later attempt, of which ``error`` counts one."""
        if rows:
            listed = self._list([row.seq for row in rows])
            counted = 0 if error is None else 1
            params = (self._now(), pause, counted, error, listed, holder)
            await self.database.execute(self._render_statement(FAIL), params)

    # For people, and relays of others.

    async def fetch_pending(self, limit: int = 100) -> list[dict[str, Any]]:
        """Rows that wait, oldest first."""
        found = await self.database.execute_query(PENDING, (self.queue, limit))
        return [
            {
                "event_id": str(row["seq"]),
                "message": _to_staged(row).message,
                "attempts": row["attempts"],
                "error": row["error"],
            }
            for row in found.rows
        ]

    async def mark_delivered(self, event_id: str) -> None:
        """Forget the row."""
        await self.database.execute(FORGET, (self.queue, _number(event_id)))

    async def mark_failed(self, event_id: str, error: str) -> None:
        """Count the attempt; the next one is made after a pause."""
        params = (self._now(), ROW_BACKOFF.first, error, self.queue, _number(event_id))
        await self.database.execute(self._render_statement(FAIL_ONE), params)

    async def clear(self, owner: str) -> int:
        """Drop what one outbox staged."""
        return (await self.database.execute(CLEAR, (self.queue, owner))).row_count

    async def newest(self) -> int | None:
        """The number of the youngest committed row."""
        row = (await self.database.execute_query(NEWEST, (self.queue,))).rows[0]
        return None if row["seq"] is None else int(row["seq"])

    async def list_unsent(self, newest: int, limit: int = 100) -> list[str]:
        """Ids of rows up to this one that are still there."""
        found = await self.database.execute_query(UNSENT, (self.queue, newest, limit))
        return [row["id"] for row in found.rows]

    async def count(self) -> int:
        """How many wait."""
        return int((await self.database.execute_query(COUNT, (self.queue,))).rows[0]["n"])

    def _now(self) -> float | None:
        return None if self._is_postgres else clock.timestamp()

    def _list(self, numbers: Sequence[int]) -> Any:
        return list(numbers) if self._is_postgres else orjson.dumps(numbers).decode()

    def _render_statement(self, statement: str) -> str:
        pieces = _POSTGRES if self._is_postgres else _SQLITE
        for name, piece in pieces.items():
            statement = statement.replace(name, piece)
        return statement


# What differs by database; an array runs the subquery once.
_POSTGRES: Final = {
    "{now}": POSTGRES_NOW,
    "{picked}": "= ANY(ARRAY(",
    "{unpicked}": " FOR UPDATE SKIP LOCKED))",
    "{listed}": "= ANY(CAST(? AS bigint[]))",
}
_SQLITE: Final = {
    "{now}": "?",
    "{picked}": "IN (",
    "{unpicked}": ")",
    "{listed}": "IN (SELECT value FROM json_each(?))",
}


def _to_staged(row: dict[str, Any]) -> Staged:
    return Staged(
        seq=row["seq"],
        message=from_headers(
            json_headers(row["envelope"]), row["body"], topic=row["topic"], fallback_id=row["id"]
        ),
        key=row["ordering_key"],
        attempts=row["attempts"],
    )


def _number(event_id: str) -> int:
    return int(event_id) if event_id.isdigit() else -1  # an unknown id is fine

"""The bus on SQLite: each call is one transaction of the writer (BEGIN IMMEDIATE).

The file has one writer at a time among all processes, so nothing here needs row locks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from lexigram import clock
from lexigram.contracts.queue import BusMessage
from lexigram.queue.backends.sql.store import (
    LEVEL,
    SEEN,
    BusStore,
    Look,
    Receipt,
    Row,
    channel,
    columns,
)

if TYPE_CHECKING:
    from lexigram.sql.steps import Steps

ROWS_AT_ONCE: Final = 100  # of one INSERT: 16 parameters each, and SQLite takes 32,766

_COLUMNS: Final = """seq, id, topic, body, headers, sent_at, ttl, priority, guarantee, retry_count,
    max_retries, due_at, ordering_key, lane, copies, remaining"""

# The highest number ever given out, also when its row is gone.
LAST_SEQ: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'lexigram_bus_messages'"

# Each new id is taken; one whose window is over is taken again. What comes back is new.
REMEMBER: Final = """
INSERT INTO lexigram_bus_seen (topic, id, seen_at)
SELECT value ->> 0, value ->> 1, ? FROM json_each(?) WHERE true
ON CONFLICT (topic, id) DO UPDATE SET seen_at = excluded.seen_at
    WHERE lexigram_bus_seen.seen_at < excluded.seen_at - ?
RETURNING topic, id"""

# Topics of the batch: how many groups get their messages, and how much they keep for the first
# group (ix_..._backlog).
TOPICS: Final = """
SELECT t.value AS topic,
    (SELECT count(*) FROM lexigram_bus_groups g WHERE g.topic = t.value AND g.matches IS NULL)
    + (SELECT count(*) FROM lexigram_bus_groups g
       WHERE g.matches IS NOT NULL AND t.value GLOB g.matches) AS copies,
    (SELECT count(*) FROM lexigram_bus_messages m
     WHERE m.topic = t.value AND m.copies = 0) AS kept
FROM json_each(?) t"""

# One delivery for each group of each message of the batch. The rank puts a message at the turn
# of its lane: after the last one that waits there (ix_..._lane), and never before the turn that
# is served now, which is the lowest that waits (ix_..._ready).
_DISPATCH: Final = f"""
INSERT INTO lexigram_bus_deliveries
    (group_id, message, id, state, due_at, queued_at, rank, ordering_key, lane)
SELECT group_id, message, id, CASE WHEN due_at > ? THEN 'delayed' ELSE 'ready' END, due_at,
    due_at, CASE WHEN lane IS NULL THEN turn ELSE max(turn, coalesce(
        (SELECT max(d.rank) + 1 FROM lexigram_bus_deliveries d
         WHERE d.group_id = fresh.group_id AND d.lane = fresh.lane AND d.state = 'ready'
           AND d.rank >= fresh.base AND d.rank < fresh.base + {LEVEL}), turn))
      + row_number() OVER (PARTITION BY group_id, lane, base ORDER BY message) - 1 END,
    ordering_key, lane
FROM (
    SELECT homes.group_id, homes.message, m.id, m.due_at, m.ordering_key, m.lane,
        -min(max(m.priority, -1000), 1000) * {LEVEL} AS base,
        coalesce((SELECT min(d.rank) FROM lexigram_bus_deliveries d
                  WHERE d.group_id = homes.group_id AND d.state = 'ready'
                    AND d.rank >= -min(max(m.priority, -1000), 1000) * {LEVEL}
                    AND d.rank < (1 - min(max(m.priority, -1000), 1000)) * {LEVEL}),
                 -min(max(m.priority, -1000), 1000) * {LEVEL}) AS turn
    FROM ({{homes}}) homes JOIN lexigram_bus_messages m ON m.seq = homes.message) fresh
ORDER BY message
RETURNING group_id, message"""  # noqa: S608 - constants
_NEW_HOMES: Final = """
SELECT g.id AS group_id, m.seq AS message FROM lexigram_bus_messages m
JOIN lexigram_bus_groups g ON g.topic = m.topic AND g.matches IS NULL
WHERE m.seq > ?
UNION ALL
SELECT g.id, m.seq FROM lexigram_bus_messages m
JOIN lexigram_bus_groups g ON g.matches IS NOT NULL AND m.topic GLOB g.matches
WHERE m.seq > ?"""
# A pattern takes over no backlog.
_OLD_HOMES: Final = """
SELECT g.id AS group_id, m.seq AS message FROM lexigram_bus_messages m
JOIN lexigram_bus_groups g ON g.topic = m.topic AND g.matches IS NULL
WHERE m.topic = ? AND m.copies = 0"""
DISPATCH: Final = _DISPATCH.format(homes=_NEW_HOMES)
DISPATCH_BACKLOG: Final = _DISPATCH.format(homes=_OLD_HOMES)
COUNT_COPIES: Final = """
UPDATE lexigram_bus_messages SET copies = n, remaining = n FROM (
    SELECT value ->> 0 AS message, value ->> 1 AS n FROM json_each(?)) found
WHERE seq = found.message"""

# What is due, by ix_..._due.
WAKE_DUE: Final = """
UPDATE lexigram_bus_deliveries SET state = 'ready'
WHERE group_id = ? AND state IN ('delayed', 'leased') AND due_at <= ?"""

# The next rows by ix_..._ready. Of one ordering key only the first that is not done, and none
# while one is being handled. Blocked rows are stepped over in a window: lanes keep those of one
# key apart, so that the others are near its beginning. CROSS JOIN keeps the order of the window,
# so that the search ends with the last row wanted; a second ORDER BY would read all of it.
CANDIDATES: Final = f"""
SELECT {SEEN} FROM (
    SELECT * FROM lexigram_bus_deliveries
    WHERE group_id = ? AND state = 'ready' ORDER BY rank, queued_at, message LIMIT ?) d
CROSS JOIN lexigram_bus_messages m
WHERE m.seq = d.message AND (SELECT NOT paused FROM lexigram_bus_groups WHERE id = d.group_id)
  AND (d.ordering_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_bus_deliveries e WHERE e.group_id = d.group_id
        AND e.ordering_key = d.ordering_key AND e.state <> 'dead' AND e.message < d.message)
    AND NOT EXISTS (SELECT 1 FROM lexigram_bus_deliveries e WHERE e.group_id = d.group_id
        AND e.ordering_key = d.ordering_key AND e.state = 'leased')))
LIMIT ?"""  # noqa: S608 - constants
LEASE: Final = """
UPDATE lexigram_bus_deliveries
SET state = 'leased', due_at = ?, fence = fence + 1, delivery_count = delivery_count + 1
WHERE group_id = ? AND message IN (SELECT value FROM json_each(?))"""

LOOK: Final = """
SELECT id,
    (SELECT min(due_at) FROM lexigram_bus_deliveries
     WHERE group_id = g.id AND state IN ('delayed', 'leased')) AS next_due,
    EXISTS (SELECT 1 FROM lexigram_bus_deliveries
            WHERE group_id = g.id AND state = 'ready') AND NOT paused AS has_ready
FROM lexigram_bus_groups g WHERE id = ?"""

# A JSON list of [message, fence]; by the primary key.
SETTLE: Final = """
DELETE FROM lexigram_bus_deliveries WHERE group_id = ? AND state = 'leased'
  AND (message, fence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?)) RETURNING message"""
RELEASE: Final = """
UPDATE lexigram_bus_deliveries
SET state = 'ready', delivery_count = delivery_count - 1
WHERE group_id = ? AND state = 'leased'
  AND (message, fence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))"""
EXTEND: Final = """
UPDATE lexigram_bus_deliveries SET due_at = ?
WHERE group_id = ? AND state = 'leased'
  AND (message, fence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
RETURNING message, fence"""
REMOVE: Final = """
DELETE FROM lexigram_bus_deliveries
WHERE group_id = ? AND message IN (SELECT value FROM json_each(?)) RETURNING message"""

# Alone, or the last of several groups.
FORGET_MESSAGES: Final = """
DELETE FROM lexigram_bus_messages
WHERE seq IN (SELECT value FROM json_each(?)) AND remaining <= 1"""
COUNT_DOWN: Final = """
UPDATE lexigram_bus_messages SET remaining = remaining - 1
WHERE seq IN (SELECT value FROM json_each(?))"""


class SqliteBusStore(BusStore):
    """All processes that use the file share the bus."""

    async def publish(
        self, messages: Sequence[BusMessage], max_backlog: int, dedup_window: float
    ) -> Sequence[str]:
        now = clock.timestamp()
        rows = columns(messages, now)
        full, groups = await self.database.run_steps(
            lambda: self._publish(rows, now, max_backlog, dedup_window)
        )
        if groups:
            await self.ring(groups)
        return full

    def _publish(
        self, rows: list[tuple[Any, ...]], now: float, max_backlog: int, dedup_window: float
    ) -> Steps[tuple[list[str], list[int]]]:
        wanted = Counter(row[1] for row in rows)
        found = (yield TOPICS, (_json(list(wanted)),)).rows
        full = [
            row["topic"]
            for row in found
            if not row["copies"] and row["kept"] + wanted[row["topic"]] > max_backlog
        ]
        if full:
            return full, []
        copies = {row["topic"]: row["copies"] for row in found}
        if dedup_window:
            rows = yield from self._fresh(rows, now, dedup_window)
        last = (yield LAST_SEQ, ()).first()
        before = int(last["seq"]) if last else 0
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            values: list[Any] = []
            for number, row in enumerate(part, before + start + 1):
                groups = copies[row[1]]
                values += (number, *row[:10], now + row[10], *row[11:], groups, groups)
            yield _insert(len(part)), values
        made = yield DISPATCH, (now, before, before)
        return [], list({row["group_id"] for row in made.rows})

    def _fresh(
        self, rows: list[tuple[Any, ...]], now: float, window: float
    ) -> Steps[list[tuple[Any, ...]]]:
        by_key = {(row[1], row[0]): row for row in reversed(rows)}  # the first of one id stays
        found = yield REMEMBER, (now, _json(list(by_key)), window)
        new = {(row["topic"], row["id"]) for row in found.rows}
        return [row for row in rows if (row[1], row[0]) in new and by_key[row[1], row[0]] is row]

    def adopt(self, topic: str) -> Steps[None]:
        made = yield DISPATCH_BACKLOG, (clock.timestamp(), topic)
        copies = Counter(row["message"] for row in made.rows)
        yield COUNT_COPIES, (_json(list(copies.items())),)

    async def claim(self, group: int, limit: int, lease: float) -> Sequence[Row]:
        return await self.database.run_steps(lambda: self._claim(group, limit, lease))

    def _claim(self, group: int, limit: int, lease: float) -> Steps[Sequence[Row]]:
        now = clock.timestamp()
        yield WAKE_DUE, (group, now)
        found = yield CANDIDATES, (group, window(limit), limit)
        if not found.rows:
            return []
        taken = _json([row["message"] for row in found.rows])
        yield LEASE, (now + lease, group, taken)
        for row in found.rows:
            row["fence"] += 1
            row["delivery_count"] += 1
        return found.rows

    async def look(self, group: int) -> Look | None:
        row = (await self.database.execute_query(LOOK, (group,))).first()
        if row is None:
            return None
        due = None if row["next_due"] is None else row["next_due"] - clock.timestamp()
        is_due = due is not None and due <= 0  # the claim makes it ready
        return Look(next_due=due, has_ready=bool(row["has_ready"]) or is_due)

    async def settle(self, group: int, receipts: Sequence[Receipt]) -> None:
        def steps() -> Steps[None]:
            gone = yield SETTLE, (group, _pairs(receipts))
            yield from self._forget([row["message"] for row in gone.rows])

        await self.database.run_steps(steps)

    def _forget(self, messages: Sequence[int]) -> Steps[None]:
        if messages:
            gone = _json(messages)
            if (yield FORGET_MESSAGES, (gone,)).row_count < len(messages):
                yield COUNT_DOWN, (gone,)

    async def release(self, group: int, receipts: Sequence[Receipt]) -> None:
        await self.database.execute(RELEASE, (group, _pairs(receipts)))
        await self.ring([group])

    async def extend(
        self, group: int, receipts: Sequence[Receipt], seconds: float
    ) -> Sequence[Receipt]:
        until = clock.timestamp() + seconds
        kept = await self.database.execute(EXTEND, (until, group, _pairs(receipts)))
        return [(group, row["message"], row["fence"]) for row in kept.rows]

    def remove(self, group: int, messages: Sequence[int]) -> Steps[int]:
        gone = yield REMOVE, (group, _json(messages))
        yield from self._forget([row["message"] for row in gone.rows])
        return len(gone.rows)

    def render_statement(self, statement: str) -> str:
        return statement.replace("{now}", "?").replace(
            "{listed}", "IN (SELECT value FROM json_each(?))"
        )

    def now(self) -> float:
        return clock.timestamp()

    def list_parameter(self, values: Sequence[str]) -> str:
        return _json(list(values))

    def like(self, pattern: str) -> str:
        """For GLOB, where ``*`` is ours already; LIKE would not tell upper from lower case."""
        return pattern.replace("[", "[[]").replace("?", "[?]")

    async def ring(self, groups: Sequence[int]) -> None:
        """In this process. Inside a transaction it rings early: who hears it claims through the
        writer, and so comes to his turn after the commit.
        """
        for group in groups:
            await self.database.notify(channel(group))


def window(limit: int) -> int:
    """How many rows a claim of ``limit`` looks at."""
    return 1000 + 20 * limit


@lru_cache(maxsize=ROWS_AT_ONCE)
def _insert(rows: int) -> str:
    marks = f"({', '.join('?' * 16)})"
    return f"INSERT INTO lexigram_bus_messages ({_COLUMNS}) VALUES {', '.join([marks] * rows)}"  # noqa: S608 - constants


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _pairs(receipts: Sequence[Receipt]) -> str:
    return _json([(message, fence) for _, message, fence in receipts])

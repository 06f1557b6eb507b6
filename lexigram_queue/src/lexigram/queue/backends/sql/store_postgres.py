"""The bus on PostgreSQL: one statement for a batch, arrays in, rows out.

Claimers skip what others have locked. Statements that touch several known rows lock them in the
order of their numbers, so that two of them never wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lexigram import clock
from lexigram.contracts.queue import BusMessage
from lexigram.queue.backends.sql.store import (
    LEVEL,
    POSTGRES_NOW,
    SEEN,
    BusStore,
    Look,
    Receipt,
    Row,
    columns,
)
from lexigram.queue.backends.sql.store_sqlite import window

if TYPE_CHECKING:
    from lexigram.sql.steps import Steps

_CLOCK: Final = """clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now)"""

# 1. Topics of the batch and their groups. 2. Topics that would keep too much: then nothing is
# written. 3. With a window, ids that are new. 4. The messages, numbered beforehand, because an
# INSERT does not say which row became which number. 5. A delivery for each group, its rank at
# the turn of its lane: after the last one that waits there (ix_..._lane), and never before the
# turn that is served now, which is the lowest that waits (ix_..._ready). 6. Waiters are notified,
# at the commit. Takes no lock but those of new rows.
_PUBLISH: Final = f"""
WITH {_CLOCK},
batch AS MATERIALIZED (
    SELECT v.*, -least(greatest(v.priority, -1000), 1000) * {LEVEL} AS base
    FROM unnest(CAST(? AS text[]), CAST(? AS text[]), CAST(? AS bytea[]), CAST(? AS text[]),
        CAST(? AS float8[]), CAST(? AS float8[]), CAST(? AS int[]), CAST(? AS text[]),
        CAST(? AS int[]), CAST(? AS int[]), CAST(? AS float8[]), CAST(? AS text[]),
        CAST(? AS text[])) WITH ORDINALITY AS v(id, topic, body, headers, sent_at, ttl, priority,
        guarantee, retry_count, max_retries, delay, ordering_key, lane, n)),
topics AS MATERIALIZED (SELECT topic, count(*) AS wanted FROM batch GROUP BY topic),
homes AS MATERIALIZED (
    SELECT t.topic, g.id AS group_id FROM topics t
    JOIN lexigram_bus_groups g ON g.topic = t.topic AND g.matches IS NULL
    UNION ALL
    SELECT t.topic, g.id FROM topics t
    JOIN lexigram_bus_groups g ON g.matches IS NOT NULL AND t.topic LIKE g.matches),
copies AS MATERIALIZED (SELECT topic, count(*) AS n FROM homes GROUP BY topic),
crowded AS MATERIALIZED (
    SELECT t.topic FROM topics t WHERE t.topic NOT IN (SELECT topic FROM homes)
    AND t.wanted + (SELECT count(*) FROM lexigram_bus_messages m
                    WHERE m.topic = t.topic AND m.copies = 0) > ?),
{{fresh}},
numbered AS MATERIALIZED (
    SELECT fresh.*, nextval('lexigram_bus_messages_seq_seq') AS seq,
        (SELECT now FROM clock) + delay AS due_at
    FROM (SELECT * FROM fresh ORDER BY n) fresh WHERE NOT EXISTS (SELECT 1 FROM crowded)),
stored AS (
    INSERT INTO lexigram_bus_messages (seq, id, topic, body, headers, sent_at, ttl, priority,
        guarantee, retry_count, max_retries, due_at, ordering_key, lane, copies, remaining)
    SELECT b.seq, b.id, b.topic, b.body, b.headers, b.sent_at, b.ttl, b.priority, b.guarantee,
        b.retry_count, b.max_retries, b.due_at, b.ordering_key, b.lane,
        coalesce(c.n, 0), coalesce(c.n, 0)
    FROM numbered b LEFT JOIN copies c ON c.topic = b.topic),
served AS MATERIALIZED (
    SELECT l.group_id, l.base, coalesce(
        (SELECT d.rank FROM lexigram_bus_deliveries d
         WHERE d.group_id = l.group_id AND d.state = 'ready'
           AND d.rank >= l.base AND d.rank < l.base + {LEVEL}
         ORDER BY d.rank LIMIT 1), l.base) AS turn
    FROM (SELECT DISTINCT h.group_id, b.base FROM numbered b JOIN homes h ON h.topic = b.topic) l),
lanes AS MATERIALIZED (
    SELECT l.group_id, l.base, l.lane, (
        SELECT d.rank + 1 FROM lexigram_bus_deliveries d
        WHERE d.group_id = l.group_id AND d.lane = l.lane AND d.state = 'ready'
          AND d.rank >= l.base AND d.rank < l.base + {LEVEL}
        ORDER BY d.rank DESC LIMIT 1) AS turn
    FROM (SELECT DISTINCT h.group_id, b.base, b.lane
          FROM numbered b JOIN homes h ON h.topic = b.topic WHERE b.lane IS NOT NULL) l),
sent AS (
    INSERT INTO lexigram_bus_deliveries
        (group_id, message, id, state, due_at, queued_at, rank, ordering_key, lane)
    SELECT h.group_id, b.seq, b.id, CASE WHEN b.delay > 0 THEN 'delayed' ELSE 'ready' END,
        b.due_at, b.due_at,
        CASE WHEN b.lane IS NULL THEN s.turn ELSE greatest(s.turn, l.turn)
          + row_number() OVER (PARTITION BY h.group_id, b.base, b.lane ORDER BY b.seq) - 1 END,
        b.ordering_key, b.lane
    FROM numbered b JOIN homes h ON h.topic = b.topic
    JOIN served s ON s.group_id = h.group_id AND s.base = b.base
    LEFT JOIN lanes l ON l.group_id = h.group_id AND l.base = b.base AND l.lane = b.lane),
notified AS MATERIALIZED (
    SELECT pg_notify('lexigram_bus_' || g.group_id, '')
    FROM (SELECT DISTINCT group_id FROM homes) g WHERE NOT EXISTS (SELECT 1 FROM crowded))
SELECT topic, (SELECT count(*) FROM notified) AS notified FROM crowded
UNION ALL SELECT NULL, (SELECT count(*) FROM notified)"""  # noqa: S608 - constants

PUBLISH: Final = _PUBLISH.replace("{fresh}", "fresh AS (SELECT * FROM batch)")
# Each new id is taken; one whose window is over is taken again. Two publishers of one id wait
# for each other at the primary key.
PUBLISH_ONCE: Final = _PUBLISH.replace(
    "{fresh}",
    """taken AS (
    INSERT INTO lexigram_bus_seen AS s (topic, id, seen_at)
    SELECT DISTINCT topic, id, (SELECT now FROM clock) FROM batch
    WHERE NOT EXISTS (SELECT 1 FROM crowded) ORDER BY topic, id
    ON CONFLICT (topic, id) DO UPDATE SET seen_at = excluded.seen_at
        WHERE s.seen_at < excluded.seen_at - CAST(? AS float8)
    RETURNING topic, id),
fresh AS (
    SELECT DISTINCT ON (topic, id) batch.* FROM batch JOIN taken USING (topic, id)
    ORDER BY topic, id, n)""",
)

# What a topic without a group kept, for the groups it has now. Also called now and then for
# what a transaction published that began before the group was there.
ADOPT: Final = f"""
WITH {_CLOCK},
homes AS MATERIALIZED (
    SELECT id AS group_id FROM lexigram_bus_groups WHERE topic = ? AND matches IS NULL),
adopted AS (
    UPDATE lexigram_bus_messages SET copies = (SELECT count(*) FROM homes),
        remaining = (SELECT count(*) FROM homes)
    WHERE topic = ? AND copies = 0 AND EXISTS (SELECT 1 FROM homes) RETURNING *)
INSERT INTO lexigram_bus_deliveries
    (group_id, message, id, state, due_at, queued_at, rank, ordering_key, lane)
SELECT h.group_id, m.seq, m.id,
    CASE WHEN m.due_at > (SELECT now FROM clock) THEN 'delayed' ELSE 'ready' END, m.due_at, m.due_at,
    -least(greatest(m.priority, -1000), 1000) * {LEVEL}
        + CASE WHEN m.lane IS NULL THEN 0
          ELSE row_number() OVER (PARTITION BY h.group_id, m.priority, m.lane ORDER BY m.seq) - 1
          END,
    m.ordering_key, m.lane
FROM adopted m CROSS JOIN homes h"""  # noqa: S608 - constants

# The next rows by ix_..._ready, locked; those that others have locked are theirs. Of one
# ordering key only the first that is not done, and none while one is being handled. Blocked rows
# are stepped over in a window: lanes keep those of one key apart, so that the others are near
# its beginning. As an array the subquery runs once, and the rest goes by primary keys.
CLAIM: Final = f"""
WITH edge AS MATERIALIZED (
    SELECT coalesce(max(rank), 9223372036854775807) AS rank, coalesce(max(queued_at), 0) AS at
    FROM (
        SELECT rank, queued_at FROM lexigram_bus_deliveries WHERE group_id = ? AND state = 'ready'
        ORDER BY rank, queued_at, message OFFSET ? LIMIT 1) w)
UPDATE lexigram_bus_deliveries d
SET state = 'leased', fence = fence + 1, delivery_count = delivery_count + 1,
    due_at = CAST(extract(epoch FROM clock_timestamp()) AS double precision) + ?
FROM lexigram_bus_messages m
WHERE m.seq = d.message AND d.group_id = ? AND d.message = ANY(ARRAY(
    SELECT c.message FROM lexigram_bus_deliveries c
    WHERE c.group_id = ? AND c.state = 'ready'
      AND (SELECT NOT paused FROM lexigram_bus_groups WHERE id = ?)
      AND (c.ordering_key IS NULL OR (
        (c.rank, c.queued_at) <= (SELECT w.rank, w.at FROM edge w)
        AND NOT EXISTS (SELECT 1 FROM lexigram_bus_deliveries e WHERE e.group_id = c.group_id
            AND e.ordering_key = c.ordering_key AND e.state <> 'dead' AND e.message < c.message)
        AND NOT EXISTS (SELECT 1 FROM lexigram_bus_deliveries e WHERE e.group_id = c.group_id
            AND e.ordering_key = c.ordering_key AND e.state = 'leased')))
    ORDER BY c.rank, c.queued_at, c.message LIMIT ? FOR UPDATE OF c SKIP LOCKED))
RETURNING {SEEN}"""  # noqa: S608 - constants

# What is due, by ix_..._due; rows that are being settled at this moment are left to that.
LOOK: Final = f"""
WITH {_CLOCK},
woken AS (
    UPDATE lexigram_bus_deliveries d SET state = 'ready'
    WHERE d.group_id = ? AND d.message = ANY(ARRAY(
        SELECT message FROM lexigram_bus_deliveries
        WHERE group_id = ? AND state IN ('delayed', 'leased')
          AND due_at <= (SELECT now FROM clock) FOR UPDATE SKIP LOCKED)))
SELECT topic, matches IS NULL AS is_plain,
    (SELECT min(due_at) FROM lexigram_bus_deliveries
     WHERE group_id = g.id AND state IN ('delayed', 'leased')
       AND due_at > (SELECT now FROM clock)) - (SELECT now FROM clock) AS next_due,
    EXISTS (SELECT 1 FROM lexigram_bus_messages
            WHERE topic = g.topic AND copies = 0) AS has_backlog
FROM lexigram_bus_groups g WHERE id = ?"""  # noqa: S608 - constants

# Rows by primary key, locked in order.
_HELD: Final = """
held AS MATERIALIZED (
    SELECT d.message FROM lexigram_bus_deliveries d
    JOIN unnest(CAST(? AS bigint[]), CAST(? AS int[])) AS v(message, fence)
      ON d.message = v.message AND d.fence = v.fence
    WHERE d.group_id = ? AND d.state = 'leased' ORDER BY d.message FOR UPDATE OF d)"""
_ANY_STATE: Final = """
held AS MATERIALIZED (
    SELECT d.message FROM lexigram_bus_deliveries d
    WHERE d.message = ANY(CAST(? AS bigint[])) AND d.group_id = ?
    ORDER BY d.message FOR UPDATE OF d)"""
# A message of one group goes with its delivery. One of several groups is counted down; the last
# group deletes it by a second statement, because nobody else can see the count before.
_REMOVE: Final = """
WITH {held},
gone AS (
    DELETE FROM lexigram_bus_deliveries d USING held
    WHERE d.group_id = ? AND d.message = held.message RETURNING d.message),
alone AS (
    DELETE FROM lexigram_bus_messages m USING gone WHERE m.seq = gone.message AND m.copies = 1),
shared AS MATERIALIZED (
    SELECT m.seq FROM lexigram_bus_messages m JOIN gone ON gone.message = m.seq
    WHERE m.copies > 1 ORDER BY m.seq FOR UPDATE OF m),
counted AS (
    UPDATE lexigram_bus_messages m SET remaining = remaining - 1 FROM shared
    WHERE m.seq = shared.seq RETURNING m.seq, m.remaining)
SELECT (SELECT count(*) FROM gone) AS gone,
    ARRAY(SELECT seq FROM counted WHERE remaining <= 0 ORDER BY seq) AS done"""
SETTLE: Final = _REMOVE.replace("{held}", _HELD)
REMOVE: Final = _REMOVE.replace("{held}", _ANY_STATE)
FORGET_MESSAGES: Final = "DELETE FROM lexigram_bus_messages WHERE seq = ANY(CAST(? AS bigint[]))"

RELEASE: Final = f"""
WITH {_HELD},
freed AS (
    UPDATE lexigram_bus_deliveries d
    SET state = 'ready', delivery_count = delivery_count - 1
    FROM held WHERE d.group_id = ? AND d.message = held.message RETURNING d.message)
SELECT pg_notify('lexigram_bus_' || CAST(? AS text), '') FROM (SELECT count(*) FROM freed) f"""  # noqa: S608 - constants
EXTEND: Final = f"""
WITH {_HELD}
UPDATE lexigram_bus_deliveries d
SET due_at = CAST(extract(epoch FROM clock_timestamp()) AS double precision) + ?
FROM held WHERE d.group_id = ? AND d.message = held.message RETURNING d.message, d.fence"""  # noqa: S608 - constants
RING: Final = "SELECT pg_notify('lexigram_bus_' || g, '') FROM unnest(CAST(? AS text[])) g"


class PostgresBusStore(BusStore):
    """All clients of the database share the bus."""

    async def publish(
        self, messages: Sequence[BusMessage], max_backlog: int, dedup_window: float
    ) -> Sequence[str]:
        rows = columns(messages, clock.timestamp())
        params: list[Any] = [list(column) for column in zip(*rows, strict=True)]
        params.append(max_backlog)
        if dedup_window:
            params.append(dedup_window)
        done = await self.database.execute(PUBLISH_ONCE if dedup_window else PUBLISH, params)
        return [row["topic"] for row in done.rows if row["topic"] is not None]

    def adopt(self, topic: str) -> Steps[None]:
        yield ADOPT, (topic, topic)

    async def claim(self, group: int, limit: int, lease: float) -> Sequence[Row]:
        found = await self.database.execute(
            CLAIM, (group, window(limit), lease, group, group, group, limit)
        )
        return sorted(found.rows, key=lambda row: (row["rank"], row["queued_at"], row["message"]))

    async def look(self, group: int) -> Look | None:
        row = (await self.database.execute(LOOK, (group, group, group))).first()
        if row is None:
            return None
        if row["has_backlog"] and row["is_plain"]:
            await self.database.run_steps(lambda: self.adopt(row["topic"]))
        return Look(next_due=row["next_due"], has_ready=True)  # a claim that finds none is cheap

    async def settle(self, group: int, receipts: Sequence[Receipt]) -> None:
        done = await self.database.execute(SETTLE, (*_arrays(receipts), group, group))
        if done.rows[0]["done"]:
            await self.database.execute(FORGET_MESSAGES, (done.rows[0]["done"],))

    async def release(self, group: int, receipts: Sequence[Receipt]) -> None:
        await self.database.execute(RELEASE, (*_arrays(receipts), group, group, str(group)))

    async def extend(
        self, group: int, receipts: Sequence[Receipt], seconds: float
    ) -> Sequence[Receipt]:
        kept = await self.database.execute(EXTEND, (*_arrays(receipts), group, seconds, group))
        return [(group, row["message"], row["fence"]) for row in kept.rows]

    def remove(self, group: int, messages: Sequence[int]) -> Steps[int]:
        row = (yield REMOVE, (list(messages), group, group)).rows[0]
        if row["done"]:
            yield FORGET_MESSAGES, (row["done"],)
        return int(row["gone"])

    def render_statement(self, statement: str) -> str:
        return statement.replace("{now}", POSTGRES_NOW).replace(
            "{listed}", "= ANY(CAST(? AS text[]))"
        )

    def now(self) -> None:
        return None

    def list_parameter(self, values: Sequence[str]) -> list[str]:
        return list(values)

    def like(self, pattern: str) -> str:
        """For LIKE, whose own marks are escaped."""
        for mark in "\\%_":
            pattern = pattern.replace(mark, f"\\{mark}")
        return pattern.replace("*", "%")

    async def ring(self, groups: Sequence[int]) -> None:
        await self.database.execute(RING, ([str(group) for group in groups],))


def _arrays(receipts: Sequence[Receipt]) -> tuple[list[int], list[int]]:
    return [message for _, message, _ in receipts], [fence for _, _, fence in receipts]

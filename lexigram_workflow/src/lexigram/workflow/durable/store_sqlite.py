"""Durable runs in SQLite: a claim is one transaction, a finish is one transaction.

BEGIN IMMEDIATE makes all of them follow each other, so none of these statements has to lock. What
PostgreSQL does in one statement is a few here, each a few microseconds in the writer's thread.
"""

# ruff: noqa: S608 - statements are put together from pieces of these files only

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import orjson

from lexigram import clock
from lexigram.contracts.data.sql.database import QueryResult
from lexigram.sql.locks.statements import NEXT_FENCE, TAKE, WAITING
from lexigram.sql.steps import Many, Steps
from lexigram.workflow.durable import store_statements as shared
from lexigram.workflow.durable.plan import EVENT_BITS, LifeCycleEvent
from lexigram.workflow.durable.store import (
    CHANNEL,
    CHANNEL_WANTED,
    FINAL,
    Audience,
    Beat,
    Claimed,
    End,
    Ended,
    EndKind,
    GroupEvent,
    Reaped,
    Row,
    Selection,
    State,
    Tended,
    claim_from,
    ended_from,
    event_from,
    group_events,
)
from lexigram.workflow.durable.store_base import SqlDurableStore
from lexigram.workflow.durable.views import STEP_FACTOR

_BATCH = 500  # rows that one transaction of the reaper or of retention changes
_TOGETHER = 50  # runs that wait for a resource and are made ready at once when they may share it

# The parameters that several places of a statement need.
_P: Final = "p AS (SELECT ? AS now, ? AS seconds, ? AS ageing)"
_NOW: Final = "(SELECT now FROM p)"


def _made(text: str) -> str:
    return (
        text.replace("{now}", _NOW)
        .replace("{lease}", "(SELECT seconds FROM p)")
        .replace("{ageing}", "(SELECT ageing FROM p)")
    )


def _from_json(*columns: str) -> str:
    picked = ", ".join(f"value ->> '{name}' AS {name}" for name in columns)
    return f"(SELECT {picked} FROM json_each(?)) AS v"


def _from_array(*columns: str, more: str = "") -> str:
    picked = ", ".join(f"value ->> {number} AS {name}" for number, name in enumerate(columns))
    return f"(SELECT {picked}{more} FROM json_each(?)) AS v"


# --- in -----------------------------------------------------------------------------------------

_STEP = (
    *("step_no", "name", "step_type", "pool", "retries", "backoff", "backoff_cap"),
    *("resource_key", "resource_shared"),
)
ADD_STEPS = f"""
INSERT INTO lexigram_durable_plan_steps
    (plan_id, step_no, name, step_type, pool, retries, backoff, backoff_cap, resource_key,
    resource_shared)
SELECT ?, v.* FROM {_from_json(*_STEP)} WHERE true ON CONFLICT DO NOTHING"""

# The last turn of a tenant: ix_lexigram_durable_runs_tenant from its end.
_RUN = ("n", "doc_id", "batch_id", "priority", "tenant", "delay", "idempotency_key", "params")
ADD_RUNS = f"""
WITH p AS (SELECT ? AS now, ? AS group_id, ? AS plan_id, ? AS n_steps, ? AS ageing, ? AS gap,
    ? AS events, ? AS base, ? AS parent_id, ? AS parent_step, ? AS status),
v AS MATERIALIZED (SELECT * FROM {_from_json(*_RUN)}),
last AS (SELECT t.tenant, (SELECT max(r.turn) FROM lexigram_durable_runs r
        WHERE r.tenant = t.tenant AND r.completed_at IS NULL) AS turn
    FROM (SELECT DISTINCT tenant FROM v WHERE tenant IS NOT NULL) t),
turns AS (SELECT v.*, CASE WHEN v.tenant IS NULL THEN p.base ELSE
        max(p.base, coalesce(l.turn + p.gap, p.base))
        + p.gap * (row_number() OVER (PARTITION BY v.tenant ORDER BY v.n) - 1) END + v.delay AS turn
    FROM v CROSS JOIN p LEFT JOIN last l ON l.tenant = v.tenant)
INSERT INTO lexigram_durable_runs (group_id, plan_id, doc_id, batch_id, tenant, priority, turn,
    rank, status, step_no, n_steps, step_type, resource_key, available_at, created_at, status_at,
    completed_at, params, idempotency_key, events, parent_id, parent_step)
SELECT p.group_id, p.plan_id, t.doc_id, t.batch_id, t.tenant, t.priority, t.turn,
    t.turn - t.priority * p.ageing,
    CASE WHEN p.status = 'ready' AND t.delay > 0 THEN 'delayed' ELSE p.status END, 1, p.n_steps,
    coalesce(s.pool, s.step_type), s.resource_key, p.now + t.delay, p.now, p.now,
    CASE WHEN p.status = 'cancelled' THEN p.now END, t.params, t.idempotency_key, p.events,
    p.parent_id, p.parent_step
FROM turns t CROSS JOIN p
JOIN lexigram_durable_plan_steps s ON s.plan_id = p.plan_id AND s.step_no = 1
WHERE true ORDER BY t.n
ON CONFLICT DO NOTHING RETURNING id, idempotency_key"""

KNOWN_RUNS = """
SELECT id, group_id, idempotency_key FROM lexigram_durable_runs
WHERE idempotency_key IN (SELECT value FROM json_each(?))"""

# --- out ----------------------------------------------------------------------------------------


def _of_row(text: str) -> str:
    """A statement about a row ``h`` as one whose parameters are the values of that row."""
    text = text.replace("{now}", ":now").replace("{lease}", ":seconds")
    return re.sub(r"\bh\.(\w+)", r":\1", text.replace("{ageing}", ":ageing"))


# {which} decides the index: ix_lexigram_durable_runs_ready for a type, …_ready_all for all but
# some; both are read from their first entry. While somebody else waits for a lock, no run gets it:
# workers that follow each other at once would never let him in.
_CANDIDATES = """
SELECT r.id AS id, r.resource_key AS resource_key,
    CASE WHEN r.resource_key IS NOT NULL THEN (
        SELECT s.resource_shared FROM lexigram_durable_plan_steps s
        WHERE s.plan_id = r.plan_id AND s.step_no = r.step_no) END AS shares
FROM lexigram_durable_runs r {index}
WHERE r.status = 'ready' AND {which}
    AND (r.resource_key IS NULL OR (
        NOT EXISTS (SELECT 1 FROM lexigram_locks l
            WHERE l.resource_key IN (r.resource_key, '{waiting}' || r.resource_key)
                AND l.expires_at > ?)
        AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
            WHERE o.resource_key = r.resource_key AND o.status = 'running')))
ORDER BY r.rank, r.id LIMIT ?""".replace("{waiting}", WAITING)
_ALL = "INDEXED BY ix_lexigram_durable_runs_ready_all"
CANDIDATES_TYPE = _CANDIDATES.format(index="", which="r.step_type = ?")
CANDIDATES_TYPES = _CANDIDATES.format(
    index=_ALL, which="r.step_type IN (SELECT value FROM json_each(?))"
)
CANDIDATES_OTHERS = _CANDIDATES.format(
    index=_ALL, which="r.step_type NOT IN (SELECT value FROM json_each(?))"
)
# Of one batch: rows of other batches are passed over.
CANDIDATES_BATCH = _CANDIDATES.format(
    index=_ALL,
    which="(r.step_type IN (SELECT value FROM json_each(?))) <> ? AND r.batch_id = ?",
)
# Primary key.
CLAIM = _made(
    f"""
WITH {_P} UPDATE lexigram_durable_runs SET status = 'running', lease = ?, worker_id = ?,
    lease_until = {{now}} + {{lease}}, fence = fence + 1, step_started_at = {{now}},
    started_at = coalesce(started_at, {{now}}), status_at = {{now}}
WHERE id IN (SELECT value FROM json_each(?))
RETURNING id, group_id, plan_id, step_no, step_type, retry, fence, priority, rank, resource_key,
    lease, doc_id, batch_id, tenant, params, children_failed, answer, parent_id,
    events, NULL AS lock_fence"""
)
BEGIN_GROUPS = """
UPDATE lexigram_durable_groups SET status = 'running', started_at = ?
WHERE status = 'pending' AND id IN (SELECT value FROM json_each(?))
RETURNING id, events"""

_END = ("run_id", "step_no", "lease", "sticky", "kind", "jitter", "fatal", "next_no", "children")
# Primary keys of runs and plan steps. The lease in the join is the gate.
_HELD = "WITH p AS (SELECT ? AS now)" + _made(shared.HELD.replace("{texts}", ""))
HELD = _HELD.replace("{ends}", _from_array(*_END))
# For steps that are completed and nothing more: each value taken out of JSON costs half a
# microsecond.
HELD_COMPLETED = _HELD.replace(
    "{ends}",
    _from_array(
        *_END[:4],
        more=", 'completed' AS kind, 1 AS jitter, 0 AS fatal, NULL AS next_no, NULL AS children",
    ),
)
# Primary key; the values are those of a row of HELD, by their names.
FINISH = f"""
UPDATE lexigram_durable_runs AS r SET {_of_row(shared.ADVANCED)}
WHERE r.id = :id AND r.lease = :lease AND r.step_no = :step_no"""
# The same for a run whose lease is kept. It names no column of an index but those that change:
# SQLite writes every index anew that has a column in the SET. A run at work is not parked.
FINISH_KEPT = """
UPDATE lexigram_durable_runs SET step_no = :next_no, step_type = :next_type,
    resource_key = :next_key, retry = 0, lost = 0, fence = fence + 1, available_at = :now,
    lease_until = :now + :seconds, step_started_at = :now, status_at = :now, fan = NULL,
    children = 0, children_failed = 0, answer = NULL
WHERE id = :id AND lease = :lease AND step_no = :step_no"""
FINISH_HISTORY = _of_row(shared.ATTEMPT_VALUES)
# ix_lexigram_durable_runs_keyed. The best run in line, or as many as may share it.
UNBLOCK = f"""
UPDATE lexigram_durable_runs SET status = 'ready' WHERE id IN (
    SELECT id FROM lexigram_durable_runs WHERE resource_key = ? AND status = 'blocked'
    ORDER BY rank, id LIMIT coalesce((
        SELECT CASE WHEN s.resource_shared THEN {_TOGETHER} ELSE 1 END
        FROM (SELECT plan_id, step_no FROM lexigram_durable_runs
            WHERE resource_key = ? AND status = 'blocked' ORDER BY rank, id LIMIT 1) f
        JOIN lexigram_durable_plan_steps s USING (plan_id, step_no)), 1))"""
# Primary key.
COUNT_DOWN = _made(
    f"""
WITH p AS (SELECT ? AS now)
UPDATE lexigram_durable_groups AS g SET {shared.GROUP_COUNTED},
    started_at = CASE WHEN g.started_at IS NULL AND c.cancelled < c.n THEN {{now}}
                      ELSE g.started_at END
FROM (SELECT ? AS id, ? AS n, ? AS failed, ? AS cancelled) c WHERE g.id = c.id
RETURNING id, remaining, endings, status, started_at, events"""
)
# Primary key; the last of the runs that it waits for makes it ready.
GATHER = """
UPDATE lexigram_durable_runs SET children = children - ?, children_failed = children_failed + ?,
    status = CASE WHEN status = 'waiting' AND children <= ? THEN 'ready' ELSE status END
WHERE id = ? AND fan = ?"""

CHECK_IN = """
INSERT INTO lexigram_durable_checkins (worker_id, first_checkin, last_checkin, expires_at)
VALUES (?, ?, ?, ?) ON CONFLICT (worker_id) DO UPDATE
SET last_checkin = excluded.last_checkin, expires_at = excluded.expires_at"""
# Primary keys.
_HELD_LEASES = "(SELECT value ->> 0, value ->> 1 FROM json_each(?))"
KEEP = f"""
UPDATE lexigram_durable_runs SET lease_until = ?
WHERE (id, lease) IN {_HELD_LEASES} AND status = 'running'
RETURNING id, lease, wanted, resource_key"""
KEEP_LOCK = """
UPDATE lexigram_locks SET expires_at = ?
WHERE resource_key = ? AND holder_id = ? AND expires_at > ?"""

# ix_lexigram_durable_runs_leased from its first entry.
EXPIRED = f"""
SELECT r.id, r.group_id, r.step_no, r.retry, r.fence, r.worker_id, r.lease, r.resource_key,
    r.parent_id, r.parent_step, r.events, r.step_started_at, {shared.REAPED.replace("{max_lost}", "?")} AS outcome
FROM lexigram_durable_runs r
WHERE r.status = 'running' AND r.lease_until <= ?
    AND (r.worker_id NOT IN (SELECT value FROM json_each(?))
        OR r.lease NOT IN (SELECT value FROM json_each(?)))
ORDER BY r.lease_until LIMIT {_BATCH}"""
TAKE_BACK = """
UPDATE lexigram_durable_runs SET status = ?, lost = lost + 1, lease = NULL, lease_until = NULL,
    worker_id = NULL, wanted = NULL, step_started_at = NULL, status_at = ?, available_at = ?,
    completed_at = CASE WHEN ? IN ('failed', 'cancelled') THEN ? END,
    message = CASE WHEN ? = 'failed'
        THEN 'its workers died or were cut off ' || (lost + 1) || ' times' ELSE message END
WHERE id = ?"""
REAPED_ATTEMPT = """
INSERT INTO lexigram_durable_history
    (run_id, fence, step_no, retry, status, worker_id, started_at, finished_at, message)
VALUES (?, ?, ?, ?, 'PENDING', ?, ?, ?, 'reset by dead-worker reaper')"""
# Not while another run of the same claim is at work.
UNLOCK = """
DELETE FROM lexigram_locks AS l WHERE l.resource_key = ? AND l.holder_id = ?
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = l.resource_key AND o.lease = l.holder_id AND o.status = 'running')"""
CHECK_OUT_DEAD = """
DELETE FROM lexigram_durable_checkins
WHERE expires_at <= ? AND worker_id NOT IN (SELECT value FROM json_each(?)) RETURNING worker_id"""

# --- by time ------------------------------------------------------------------------------------

# ix_lexigram_durable_runs_delayed from its first entry.
PROMOTE = """
UPDATE lexigram_durable_runs SET status = 'ready' WHERE id IN (
    SELECT id FROM lexigram_durable_runs WHERE status = 'delayed' AND available_at <= ?
    ORDER BY available_at LIMIT 1000)"""
# The locks that are held, each with ix_lexigram_durable_runs_keyed.
PARK = """
UPDATE lexigram_durable_runs SET status = 'blocked' WHERE id IN (
    SELECT r.id FROM lexigram_locks l
    JOIN lexigram_durable_runs r ON r.resource_key = l.resource_key AND r.status = 'ready'
    WHERE l.expires_at > ? LIMIT 1000)"""
# From resource to resource along ix_lexigram_durable_runs_keyed, however long the lines.
FREE_KEYS = """
WITH RECURSIVE keys(k) AS (
    SELECT min(resource_key) FROM lexigram_durable_runs
    WHERE resource_key IS NOT NULL AND status = 'blocked'
    UNION ALL
    SELECT (SELECT min(resource_key) FROM lexigram_durable_runs
            WHERE resource_key > keys.k AND status = 'blocked')
    FROM keys WHERE keys.k IS NOT NULL)
SELECT k FROM keys WHERE k IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM lexigram_locks l WHERE l.resource_key = k AND l.expires_at > ?)
AND NOT EXISTS (
    SELECT 1 FROM lexigram_durable_runs o
    WHERE o.resource_key = k AND o.status IN ('ready', 'running'))"""
NEXT_DUE = """
SELECT min(available_at) - ? AS seconds FROM lexigram_durable_runs WHERE status = 'delayed'"""

# --- by hand ------------------------------------------------------------------------------------

# Index (group_id, status), or the primary key: one of the two is NULL, which equals nothing.
# A run means all that it made, too: ix_lexigram_durable_runs_children.
_WHOSE = """(group_id = ? OR id IN (
    WITH RECURSIVE tree(id) AS (SELECT ? UNION ALL
        SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree))"""
CANCEL_WAITING = f"""
UPDATE lexigram_durable_runs SET status = 'cancelled', completed_at = ?, status_at = ?,
    message = 'cancelled'
WHERE {_WHOSE} AND completed_at IS NULL AND status <> 'running'
RETURNING id, group_id, status, parent_id, parent_step"""
CANCEL_RUNNING = f"""
UPDATE lexigram_durable_runs SET wanted = 'cancel', status_at = ?
WHERE {_WHOSE} AND status = 'running' AND wanted IS NOT 'cancel'"""
PAUSE = f"""
UPDATE lexigram_durable_runs SET status_at = ?,
    wanted = CASE status WHEN 'running' THEN 'pause' END,
    status = CASE status WHEN 'running' THEN 'running' ELSE 'paused' END
WHERE {_WHOSE} AND completed_at IS NULL AND status <> 'paused' AND wanted IS NULL"""
RESUME = f"""
UPDATE lexigram_durable_runs SET status_at = ?, wanted = NULL,
    status = CASE WHEN status = 'running' THEN 'running'
                  WHEN children > 0 THEN 'waiting' WHEN parked IS NOT NULL THEN 'parked'
                  WHEN available_at > ? THEN 'delayed' ELSE 'ready' END
WHERE {_WHOSE} AND (status = 'paused' OR wanted = 'pause')"""
TO_RETRY = f"""
SELECT id, group_id, status, resource_key, lease, parent_id, fan FROM lexigram_durable_runs AS r
WHERE {_WHOSE} AND (status IN ('failed', 'cancelled') OR (? AND status <> 'completed'))
    AND (parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
        WHERE q.id = r.parent_id AND q.fan = r.parent_step))"""
RESET = """
UPDATE lexigram_durable_runs SET status = 'ready', retry = 0, lost = 0, lease = NULL,
    lease_until = NULL, worker_id = NULL, wanted = NULL, step_started_at = NULL,
    completed_at = NULL, available_at = ?, message = NULL, parked = NULL, status_at = ?
WHERE id IN (SELECT value FROM json_each(?))"""
REOPEN = """
UPDATE lexigram_durable_groups SET remaining = remaining + ?, failed = failed - ?,
    cancelled = cancelled - ?, completed_at = NULL,
    status = CASE WHEN started_at IS NULL THEN 'pending' ELSE 'running' END
WHERE id = ?"""

LOCK_GROUP = "SELECT * FROM lexigram_durable_groups WHERE id = ?"
LOCK_RUNS = "SELECT value AS id FROM json_each(?)"
RECOUNT = shared.RECOUNT.replace("{ids}", "IN (SELECT value FROM json_each(?))")

# Index (group_id, status); history by its primary key.
SOME_RUNS = f"""
SELECT r.id FROM lexigram_durable_runs r WHERE r.group_id = ? AND EXISTS (
    SELECT 1 FROM lexigram_durable_groups g WHERE g.id = r.group_id AND g.completed_at IS NOT NULL)
LIMIT {_BATCH}"""
FORGET_HISTORY = """
DELETE FROM lexigram_durable_history WHERE run_id IN (SELECT value FROM json_each(?))"""
FORGET_RUNS = "DELETE FROM lexigram_durable_runs WHERE id IN (SELECT value FROM json_each(?))"

# --- events -------------------------------------------------------------------------------------

# ix_lexigram_durable_events_due or …_handlers.
TAKE_EVENTS = """
UPDATE lexigram_durable_events SET lease = ?, lease_until = ?, tries = tries + 1
WHERE id IN (SELECT id FROM lexigram_durable_events
    WHERE delivered_at IS NULL AND audience = '{audience}' AND kind IN (SELECT value FROM json_each(?))
        AND (lease_until IS NULL OR lease_until <= ?)
    ORDER BY id LIMIT ?)
RETURNING *"""
# A literal each: a parameter would not be known to match the partial index of one of them.
TAKE_EVENTS_OF = {of: TAKE_EVENTS.replace("{audience}", of) for of in Audience}


class SqliteDurableStore(SqlDurableStore):
    """Implements ``DurableStore``; its clock is that of the machine all users of the file share."""

    ADD_STEPS = ADD_STEPS
    ADD_RUNS = ADD_RUNS
    KNOWN_RUNS = KNOWN_RUNS
    LOCK_GROUP = LOCK_GROUP
    LOCK_RUNS = LOCK_RUNS
    RECOUNT = RECOUNT
    SUSPECTS = shared.SUSPECTS.replace("{ids}", "IN (SELECT value FROM json_each(?))")

    # --- out ------------------------------------------------------------------------------------

    async def claim(self, worker_id: str, lease: str, selection: Selection, limit: int) -> Claimed:
        """One transaction."""
        return await self._steps(lambda: self._claim(worker_id, lease, selection, limit))

    def _claim(
        self, worker_id: str, lease: str, selection: Selection, limit: int
    ) -> Steps[Claimed]:
        now = clock.timestamp()
        candidates = yield _candidates(selection, now, limit)
        if not candidates.rows:
            return Claimed(claims=())
        ids, fences = yield from self._granted(candidates.rows, lease, now)
        params = (now, self._terms.lease, self._terms.ageing, lease, worker_id, _json(ids))
        claimed = (yield CLAIM, params).rows
        for row in claimed:
            row["lock_fence"] = fences.get(row["id"])
        groups = {row["group_id"] for row in claimed}
        begun = yield BEGIN_GROUPS, (now, _json(list(groups)))
        for row in begun.rows:
            for event in group_events(LifeCycleEvent.GROUP_START, row, 0, "running", now):
                yield shared.ADD_EVENT, event
        for row in claimed:
            if row["events"]:
                yield from _told(row, _begun(row), now)
        claimed.sort(key=lambda row: (row["rank"], row["id"]))  # RETURNING has no order
        return Claimed(claims=[claim_from(row) for row in claimed])

    def _granted(
        self, candidates: Sequence[Row], lease: str, now: float
    ) -> Steps[tuple[list[int], dict[int, int]]]:
        """Those that need no resource; of each resource the first, and who shares it with him."""
        ids: list[int] = []
        fences: dict[int, int] = {}
        # those that further ones can join, and the fence of each
        shared: dict[str, int | None] = {}
        for row in candidates:
            key = row["resource_key"]
            if key is not None:
                if key in shared:
                    fence = shared[key] if row["shares"] else None
                else:
                    fence = (yield NEXT_FENCE, ()).rows[0]["last"]
                    taken = (key, lease, "worker", "{}", fence, now, now + self._terms.lease)
                    fence = fence if (yield TAKE, taken).rows else None
                shared[key] = fence if row["shares"] else None
                if fence is None:
                    continue
                fences[row["id"]] = fence
            ids.append(row["id"])
        return ids, fences

    async def finish(self, ends: Sequence[End]) -> Sequence[Ended | None]:
        """One transaction."""
        if any(end.spawns for end in ends):
            return [await self._finish_alone(end) for end in ends]
        rows, news = await self._steps(lambda: self._finish(ends))
        if news:
            await self._tell(CHANNEL)
        done = {row["id"]: row for row in rows}
        return [ended_from(done[end.run_id]) if end.run_id in done else None for end in ends]

    def _finish(self, ends: Sequence[End]) -> Steps[tuple[Sequence[Row], bool]]:
        now = clock.timestamp()
        if all(map(_is_completed, ends)):
            given = [(end.run_id, end.step_no, end.lease, end.sticky) for end in ends]
            held = (yield HELD_COMPLETED, (now, _json(given))).rows
        else:
            held = (yield HELD, (now, _json([_fields(end) for end in ends]))).rows
        by_run = {end.run_id: end for end in ends}
        terms = {"now": now, "seconds": self._terms.lease, "ageing": self._terms.ageing}
        for row in held:
            end = by_run[row["id"]]
            row.update(terms, message=end.message, meta=end.meta)
        kept = [row for row in held if row["outcome"] == State.RUNNING]
        others = held if not kept else [row for row in held if row["outcome"] != State.RUNNING]
        if kept:
            yield FINISH_KEPT, Many(kept)
        if others:
            yield FINISH, Many(others)
        yield FINISH_HISTORY, Many(held)
        freed = yield from self._unlocked(held)
        done = [_after(row) for row in held]
        if any(row["events"] for row in done):
            for row in done:
                yield from _told(row, _ended(row, by_run[row["id"]]), now)
        ended = yield from self._count_down(done, now)
        again = any(row["status"] in (State.READY, State.DELAYED) for row in done)
        return done, freed or again or ended

    def _unlocked(self, held: Sequence[Row]) -> Steps[bool]:
        """Give back the locks that these held, and let in who waits for them."""
        locks = {
            (row["resource_key"], row["lease"])
            for row in held
            if row["resource_key"] is not None
            and not (row["outcome"] == State.RUNNING and row["next_key"] is not None)
        }
        freed = False
        for key, lease in locks:
            if (yield UNLOCK, (key, lease)).row_count:
                freed = True
                yield UNBLOCK, (key, key)
        return freed

    def _finished(self, end: End, now: float) -> Steps[Row | None]:
        rows, _ = yield from self._finish([end])
        return rows[0] if rows else None

    def _count_down(self, done: Sequence[Row], now: float) -> Steps[bool]:
        """The decrement that reaches zero ends the group and writes the event."""
        final = [row for row in done if row["status"] in FINAL]
        if not final:
            return False
        ended = yield from self._gather(final)
        top = [row for row in final if row["parent_id"] is None]
        for group_id, n in Counter(row["group_id"] for row in top).items():
            mine = Counter(row["status"] for row in top if row["group_id"] == group_id)
            params = (now, group_id, n, mine[State.FAILED], mine[State.CANCELLED])
            group = (yield COUNT_DOWN, params).rows[0]
            if group["started_at"] == now:
                for event in group_events(LifeCycleEvent.GROUP_START, group, 0, "running", now):
                    yield shared.ADD_EVENT, event
            if group["remaining"] == 0:
                ended = True
                end = (group["endings"], group["status"], now)
                for event in group_events(LifeCycleEvent.GROUP_END, group, *end):
                    yield shared.ADD_EVENT, event
        return ended

    def _gather(self, final: Sequence[Row]) -> Steps[bool]:
        """Count down the runs that made these."""
        by_parent: dict[tuple[int, int], Counter[bool]] = {}
        for row in final:
            if row["parent_id"] is not None:
                counts = by_parent.setdefault((row["parent_id"], row["parent_step"]), Counter())
                counts[row["status"] == State.COMPLETED] += 1
        for (parent_id, step_no), counts in by_parent.items():
            n = counts.total()
            yield GATHER, (n, counts[False], n, parent_id, step_no)
        return bool(by_parent)

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, str]]) -> Sequence[Beat]:
        """One transaction."""
        return await self._steps(lambda: self._heartbeat(worker_id, held))

    def _heartbeat(self, worker_id: str, held: Sequence[tuple[int, str]]) -> Steps[list[Beat]]:
        now = clock.timestamp()
        until = now + self._terms.lease
        yield CHECK_IN, (worker_id, now, now, until)
        kept: dict[tuple[int, str], Row] = {}
        if held:
            for row in (yield KEEP, (until, _json(held))).rows:
                key = row["resource_key"]
                if key is not None:
                    lock = (until, key, row["lease"], now)
                    if not (yield KEEP_LOCK, lock).row_count:
                        continue
                kept[row["id"], row["lease"]] = row
        return [
            Beat(
                run_id=run_id,
                lease=lease,
                is_kept=(run_id, lease) in kept,
                wanted=kept.get((run_id, lease), {}).get("wanted"),
            )
            for run_id, lease in held
        ]

    async def reap(self, own: Sequence[str], held: Sequence[str] | None = None) -> Reaped:
        """One transaction."""
        leases = [None] if held is None else held  # nothing is outside of a list with NULL
        reaped = await self._steps(lambda: self._reap(_json(own), _json(leases)))
        if reaped.steps:
            await self._tell(CHANNEL)
        return reaped

    def _reap(self, own: str, leases: str) -> Steps[Reaped]:
        now = clock.timestamp()
        held = (yield EXPIRED, (self._terms.max_lost, now, own, leases)).rows
        for row in held:
            outcome = row["outcome"]
            yield TAKE_BACK, (outcome, now, now, outcome, now, outcome, row["id"])
            attempt = (row["id"], row["fence"], row["step_no"], row["retry"], row["worker_id"])
            yield REAPED_ATTEMPT, (*attempt, row["step_started_at"], now)
            if (key := row["resource_key"]) is not None:
                yield UNLOCK, (key, row["lease"])
                yield UNBLOCK, (key, key)
        done = [{**row, "status": row["outcome"]} for row in held]
        for row in done:
            if row["events"] and row["status"] == State.FAILED:
                yield from _told(row, _gave_up(row), now)
        yield from self._count_down(done, now)
        gone = (yield CHECK_OUT_DEAD, (now, own)).rows
        return Reaped(
            workers=sorted({row["worker_id"] for row in [*held, *gone]}),
            steps=sorted(row["id"] * STEP_FACTOR + row["step_no"] for row in held),
        )

    # --- by time --------------------------------------------------------------------------------

    async def tend(self) -> Tended:
        """One transaction."""
        tended = await self._steps(self._tend)
        if tended.promoted:
            await self._tell(CHANNEL)
        return tended

    def _tend(self) -> Steps[Tended]:
        now = clock.timestamp()
        promoted = (yield PROMOTE, (now,)).row_count
        yield PARK, (now,)
        for row in (yield FREE_KEYS, (now,)).rows:
            promoted += (yield UNBLOCK, (row["k"], row["k"])).row_count
        due = yield NEXT_DUE, (now,)
        return Tended(promoted=promoted, next_due=due.rows[0]["seconds"])

    # --- by hand --------------------------------------------------------------------------------

    async def cancel(self, *, group_id: int | None, run_id: int | None) -> int:
        """One transaction."""

        def steps() -> Steps[int]:
            now = clock.timestamp()
            running = yield CANCEL_RUNNING, (now, group_id, run_id)
            done = (yield CANCEL_WAITING, (now, now, group_id, run_id)).rows
            yield from self._count_down(done, now)
            return running.row_count + len(done)

        return await self._changed(steps, CHANNEL_WANTED)

    async def pause(self, *, group_id: int | None, run_id: int | None) -> int:
        """One transaction."""

        def steps() -> Steps[int]:
            return (yield PAUSE, (clock.timestamp(), group_id, run_id)).row_count

        return await self._changed(steps, CHANNEL_WANTED)

    async def resume(self, *, group_id: int | None, run_id: int | None) -> int:
        """One transaction."""

        def steps() -> Steps[int]:
            now = clock.timestamp()
            return (yield RESUME, (now, now, group_id, run_id)).row_count

        return await self._changed(steps, CHANNEL)

    async def retry(self, *, group_id: int | None, run_id: int | None, hard: bool) -> int:
        """One transaction."""

        def steps() -> Steps[int]:
            rows = (yield TO_RETRY, (group_id, run_id, hard)).rows
            now = clock.timestamp()
            yield RESET, (now, now, _json([row["id"] for row in rows]))
            for row in rows:
                if row["lease"] is not None and row["resource_key"] is not None:
                    yield UNLOCK, (row["resource_key"], row["lease"])
            made = {row["parent_id"] for row in rows if row["parent_id"] is not None}
            made |= {row["id"] for row in rows if row["fan"] is not None}
            if made:
                yield RECOUNT, (_json(sorted(made)),)
            final = [row for row in rows if row["status"] in FINAL and row["parent_id"] is None]
            for group in {row["group_id"] for row in final}:
                mine = Counter(row["status"] for row in final if row["group_id"] == group)
                counts = (mine.total(), mine[State.FAILED], mine[State.CANCELLED])
                yield REOPEN, (*counts, group)
            return len(rows)

        return await self._changed(steps, CHANNEL)

    async def _changed(self, steps: Any, channel: str) -> int:
        changed: int = await self._steps(steps)
        if changed:
            await self._tell(channel)
        return changed

    async def prune(self, older_than: float, limit: int) -> int:
        """Many small transactions, so that claims come in between."""
        old = await self._query(shared.OLD_GROUPS, (clock.timestamp() - older_than, limit))
        removed = 0
        for row in old.rows:
            while gone := await self._steps(lambda group=row["id"]: self._forget(group)):  # type: ignore[misc]
                removed += gone
        return removed

    def _forget(self, group_id: int) -> Steps[int]:
        found = (yield SOME_RUNS, (group_id,)).rows
        ids = _json([row["id"] for row in found])
        if found:
            yield FORGET_HISTORY, (ids,)
            yield FORGET_RUNS, (ids,)
        else:
            yield from self._forget_group(group_id)
        return len(found)

    async def take_events(
        self,
        lease: str,
        seconds: float,
        limit: int,
        kinds: Sequence[LifeCycleEvent],
        audience: Audience,
    ) -> Sequence[GroupEvent]:
        """One transaction."""
        now = clock.timestamp()
        params = (lease, now + seconds, _json([*kinds]), now, limit)
        statement = TAKE_EVENTS_OF[audience]
        found: QueryResult = await self._steps(lambda: self._alone(statement, params))
        return sorted((event_from(row) for row in found.rows), key=lambda event: event.id)

    def _list(self, values: Sequence[Any]) -> Any:
        return _json(values)


_Happened: TypeAlias = tuple[LifeCycleEvent, int, int, str]  # with step, fence, status


def _told(row: Row, happened: Sequence[_Happened], now: float) -> Steps[None]:
    """Write those that handlers of the plan wait for."""
    for kind, step_no, fence, status in happened:
        if row["events"] & EVENT_BITS[kind]:
            event = (kind, row["group_id"], fence, status, now, row["id"], step_no)
            yield shared.ADD_EVENT, (*event, Audience.HANDLER)


def _begun(row: Row) -> Sequence[_Happened]:
    started = (row["step_no"], row["fence"], "running")
    first = [(LifeCycleEvent.ITEM_START, *started)] if row["fence"] == 1 else []
    return [*first, (LifeCycleEvent.STEP_START, *started)]


def _ended(row: Row, end: End) -> Sequence[_Happened]:
    goes_on = row["status"] == State.RUNNING
    fence = row["fence"] - 1 if goes_on else row["fence"]
    done = (end.step_no, fence, "completed")
    happened: list[_Happened] = []
    if end.kind is EndKind.COMPLETED:
        happened.append((LifeCycleEvent.STEP_END, *done))
    if row["status"] == State.COMPLETED:
        happened.append((LifeCycleEvent.ITEM_END, *done))
    if row["status"] == State.FAILED:
        happened += _gave_up({"step_no": end.step_no, "fence": fence})
    if goes_on:
        happened.append((LifeCycleEvent.STEP_START, row["step_no"], row["fence"], "running"))
    return happened


def _gave_up(row: Row) -> Sequence[_Happened]:
    failed = (row["step_no"], row["fence"], "failed")
    return [(LifeCycleEvent.STEP_FAILED, *failed), (LifeCycleEvent.ITEM_FAILED, *failed)]


def _candidates(selection: Selection, now: float, limit: int) -> tuple[str, Sequence[Any]]:
    if selection.batch_id is not None:
        batch = (_json(selection.types), selection.excluded, selection.batch_id)
        return CANDIDATES_BATCH, (*batch, now, limit)
    if not selection.excluded and len(selection.types) == 1:
        return CANDIDATES_TYPE, (selection.types[0], now, limit)
    statement = CANDIDATES_OTHERS if selection.excluded else CANDIDATES_TYPES
    return statement, (_json(selection.types), now, limit)


def _fields(end: End) -> Sequence[Any]:
    """In the order of _END."""
    children = sum(len(spawn.runs) for spawn in end.spawns) if end.spawns else None
    attempt = (end.run_id, end.step_no, end.lease, end.sticky, end.kind)
    return (*attempt, end.jitter, end.fatal, end.next_no, children)


def _is_completed(end: End) -> bool:
    return end.kind is EndKind.COMPLETED and end.next_no is None and not end.spawns


def _after(row: Row) -> dict[str, Any]:
    """What FINISH made of a run: the answer, without reading it again."""
    keeps, advances = row["outcome"] == State.RUNNING, row["advances"]
    return {
        "id": row["id"],
        "group_id": row["group_id"],
        "status": row["outcome"],
        "step_no": row["next_no"] if advances else row["step_no"],
        "retry": 0 if advances else row["retry"] + row["is_error"],
        "fence": row["fence"] + 1 if keeps else row["fence"],
        "parent_id": row["parent_id"],
        "parent_step": row["parent_step"],
        "events": row["events"],
    }


def _json(values: Sequence[Any]) -> str:
    return orjson.dumps(values).decode()

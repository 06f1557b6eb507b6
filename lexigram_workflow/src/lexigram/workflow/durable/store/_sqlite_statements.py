"""The statements of durable runs for SQLite: its transactions follow each other, so none has to lock."""

# ruff: noqa: S608 - statements are put together from pieces of these files only

from __future__ import annotations

import re
from typing import Final

from lexigram.sql.locks.statements import WAITING
from lexigram.sql.statements import render_statement
from lexigram.workflow.durable.store import statements as shared
from lexigram.workflow.durable.store.records import (
    Audience,
)

_BATCH = 500  # rows that one transaction of the reaper or of retention changes
_TOGETHER = 50  # runs that wait for a resource and are made ready at once when they may share it

# The parameters that several places of a statement need.
_P: Final = "p AS (SELECT ? AS now, ? AS seconds, ? AS ageing)"
_NOW: Final = "(SELECT now FROM p)"


def _render(text: str, **pieces: str) -> str:
    terms = {"lease": "(SELECT seconds FROM p)", "ageing": "(SELECT ageing FROM p)"}
    return render_statement(text, now=_NOW, **terms, **pieces)


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
_KIND = ("queue", "requires")
ADD_KINDS = f"""
INSERT INTO lexigram_durable_step_kinds (queue, handler)
SELECT DISTINCT v.queue, v.requires FROM {_from_json(*_KIND)} WHERE true ON CONFLICT DO NOTHING"""
ADD_STEPS = f"""
INSERT INTO lexigram_durable_plan_steps
    (plan_id, step_no, name, step_type, pool, retries, backoff, backoff_cap, resource_key,
    resource_shared, step_kind)
SELECT ?, {", ".join(f"v.{name}" for name in _STEP)}, k.id FROM {_from_json(*_STEP, *_KIND)}
JOIN lexigram_durable_step_kinds k ON k.queue = v.queue AND k.handler = v.requires
WHERE true ON CONFLICT DO NOTHING"""

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
    rank, status, step_no, n_steps, step_type, step_kind, resource_key, available_at, created_at,
    status_at, completed_at, params, idempotency_key, events, parent_id, parent_step)
SELECT p.group_id, p.plan_id, t.doc_id, t.batch_id, t.tenant, t.priority, t.turn,
    t.turn - t.priority * p.ageing,
    CASE WHEN p.status = 'ready' AND t.delay > 0 THEN 'delayed' ELSE p.status END, 1, p.n_steps,
    coalesce(s.pool, s.step_type), s.step_kind, s.resource_key, p.now + t.delay, p.now, p.now,
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
    text = render_statement(text, now=":now", lease=":seconds", ageing=":ageing")
    return re.sub(r"\bh\.(\w+)", r":\1", text)


# Whether a run may have its resource now. While another caller waits for a lock, no run gets
# it: workers that follow each other at once would starve that caller.
_FITS = f"""
(? IS NULL OR r.batch_id = ?)
AND (r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, '{WAITING}' || r.resource_key)
            AND l.expires_at > ?)
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running')))"""
# One probe of ix_lexigram_durable_runs_ready for each kind: whose turn it is, and who is next.
LINES = f"""
SELECT q.step_kind AS kind, q.rank AS rank
FROM json_each(?) AS k JOIN lexigram_durable_runs q ON q.id = (
    SELECT r.id FROM lexigram_durable_runs r
    WHERE r.status = 'ready' AND r.step_kind = k.value AND {_FITS}
    ORDER BY r.rank, r.id LIMIT 1)
ORDER BY q.rank, q.id LIMIT 2"""
# ix_lexigram_durable_runs_ready from the first entry of the kind.
CANDIDATES = f"""
SELECT r.id AS id, r.resource_key AS resource_key,
    CASE WHEN r.resource_key IS NOT NULL THEN (
        SELECT s.resource_shared FROM lexigram_durable_plan_steps s
        WHERE s.plan_id = r.plan_id AND s.step_no = r.step_no) END AS shares
FROM lexigram_durable_runs r
WHERE r.status = 'ready' AND r.step_kind = ? AND r.rank <= ? AND {_FITS}
ORDER BY r.rank, r.id LIMIT ?"""
# Primary key.
CLAIM = _render(
    f"""
WITH {_P} UPDATE lexigram_durable_runs SET status = 'running', lease = ?, worker_id = ?,
    lease_until = {{now}} + {{lease}}, fence = fence + 1, step_started_at = {{now}},
    started_at = coalesce(started_at, {{now}}), status_at = {{now}}
WHERE id IN (SELECT value FROM json_each(?))
RETURNING id, group_id, plan_id, step_no, step_type, step_kind, retry, fence, priority, rank,
    resource_key, lease, doc_id, batch_id, tenant, params, children_failed, answer, parent_id,
    events, lost, begun, NULL AS lock_fence"""
)
BEGIN_GROUPS = """
UPDATE lexigram_durable_groups SET status = 'running', started_at = ?
WHERE status = 'pending' AND id IN (SELECT value FROM json_each(?))
RETURNING id, events"""

_END = ("run_id", "step_no", "lease", "sticky", "kind", "jitter", "fatal", "next_no", "children")
# Primary keys of runs and plan steps. The lease in the join is the gate.
_HELD = f"WITH p AS (SELECT ? AS now){shared.HELD}"
HELD = _render(_HELD, texts="", ends=_from_array(*_END))
# For steps that are completed and nothing more: each value taken out of JSON costs half a
# microsecond.
HELD_COMPLETED = _render(
    _HELD,
    texts="",
    ends=_from_array(
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
    step_kind = :next_kind, resource_key = :next_key, retry = 0, lost = 0, begun = 0, fence = fence + 1, available_at = :now,
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
COUNT_DOWN = _render(
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

CHECK_IN = f"""
INSERT INTO lexigram_durable_checkins AS c
    (worker_id, first_checkin, last_checkin, expires_at, lacks)
VALUES (?, ?, ?, ?, ?) ON CONFLICT (worker_id) DO UPDATE
SET last_checkin = excluded.last_checkin, expires_at = excluded.expires_at,
    lacks = excluded.lacks, first_checkin = {shared.FIRST_CHECKIN}"""
# Whether a worker may judge others: none of ours has a check-in, or one has it for long enough.
STEADY = """
SELECT count(*) = 0 OR max(expires_at > ? AND first_checkin <= ?) AS is_steady
FROM lexigram_durable_checkins WHERE worker_id IN (SELECT value FROM json_each(?))"""
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
SELECT h.*, {shared.REAPED_MESSAGE} AS message, {shared.REAPED_META} AS meta FROM (
SELECT r.id, r.group_id, r.step_no, r.retry, r.fence, r.worker_id, r.lease, r.resource_key,
    r.parent_id, r.parent_step, r.events, r.step_started_at, r.begun, {_render(shared.REAPED, max_lost="?")} AS outcome
FROM lexigram_durable_runs r
WHERE r.status = 'running' AND r.lease_until <= ?
    AND (r.worker_id NOT IN (SELECT value FROM json_each(?))
        OR r.lease NOT IN (SELECT value FROM json_each(?)))
ORDER BY r.lease_until LIMIT {_BATCH}) AS h"""
TAKE_BACK = """
UPDATE lexigram_durable_runs SET status = ?, lost = lost + 1, lease = NULL, lease_until = NULL,
    worker_id = NULL, wanted = NULL, step_started_at = NULL, status_at = ?, available_at = ?,
    completed_at = CASE WHEN ? IN ('failed', 'cancelled') THEN ? END,
    message = CASE WHEN ? = 'failed' THEN ? ELSE message END
WHERE id = ?"""
REAPED_ATTEMPT = """
INSERT INTO lexigram_durable_history
    (run_id, fence, step_no, retry, status, worker_id, started_at, finished_at, message, meta)
VALUES (?, ?, ?, ?, CASE ? WHEN 'failed' THEN 'FAILED' ELSE 'PENDING' END, ?, ?, ?, ?, ?)"""
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
UPDATE lexigram_durable_runs SET status = 'ready', retry = 0, lost = 0, begun = 0, lease = NULL,
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
_IDS: Final = "IN (SELECT value FROM json_each(?))"
RECOUNT = _render(shared.RECOUNT, ids=_IDS)
SUSPECTS = _render(shared.SUSPECTS, ids=_IDS)
_NUMBERS: Final = "group_concat(l.handler_no)"
WAITING_EVENTS = _render(shared.WAITING_EVENTS, numbers=_NUMBERS, whose="true")
WAITING_EVENTS_OF_GROUP = _render(shared.WAITING_EVENTS, numbers=_NUMBERS, whose="e.group_id = ?")

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
_TAKE_EVENTS = """
UPDATE lexigram_durable_events SET lease = ?, lease_until = ?, tries = tries + 1
WHERE id IN (SELECT id FROM lexigram_durable_events
    WHERE delivered_at IS NULL AND audience = '{audience}' AND kind IN (SELECT value FROM json_each(?))
        AND id NOT IN (SELECT value FROM json_each(?))
        AND (lease_until IS NULL OR lease_until <= ?)
        AND (lease IS NULL OR ? IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_checkins
            WHERE worker_id = ? AND expires_at > ? AND first_checkin <= ?))
    ORDER BY id LIMIT ?)
RETURNING *"""
# A literal each: a parameter would not be known to match the partial index of one of them.
TAKE_EVENTS_OF = {of: _render(_TAKE_EVENTS, audience=of) for of in Audience}

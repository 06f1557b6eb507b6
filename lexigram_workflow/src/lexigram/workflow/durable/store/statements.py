"""Statements and pieces of statements that SQLite and PostgreSQL share.

``{now}`` stands for the time, which is the server's clock on PostgreSQL and a parameter on SQLite.
"""

# ruff: noqa: S608 - statements are put together from pieces of these files only

from __future__ import annotations

from typing import Final

from lexigram.workflow.durable.store.records import HANDLER_MARK

# Seconds: runs of one kind that came so much later than the first of another go with their own.
MOMENT: Final = 1.0

# What becomes of a run when an attempt at step ``s`` ended as ``v`` says; ``n`` is the next step.
# A lease is kept only for a step that needs no lock, or the lock that is held already by it alone.
OUTCOME: Final = """
CASE CASE WHEN v.kind = 'failed' THEN 'completed' ELSE v.kind END
WHEN 'completed' THEN
    CASE WHEN n.step_no IS NULL THEN v.kind
         WHEN r.wanted = 'cancel' THEN 'cancelled'
         WHEN r.wanted = 'pause' THEN 'paused'
         WHEN v.children > 0 THEN 'waiting'
         WHEN v.sticky AND (n.resource_key IS NULL OR (n.resource_key = r.resource_key
            AND NOT s.resource_shared AND NOT n.resource_shared
            AND EXISTS (SELECT 1 FROM lexigram_locks l WHERE l.resource_key = r.resource_key
                        AND l.holder_id = r.lease AND l.expires_at > {now}))) THEN 'running'
         ELSE 'ready' END
WHEN 'error' THEN
    CASE WHEN v.fatal OR r.retry + 1 >= s.retries THEN 'failed'
         WHEN r.wanted = 'cancel' THEN 'cancelled'
         WHEN r.wanted = 'pause' THEN 'paused'
         WHEN s.backoff > 0 THEN 'delayed' ELSE 'ready' END
ELSE CASE WHEN r.wanted = 'cancel' THEN 'cancelled' WHEN r.wanted = 'pause' THEN 'paused'
          WHEN v.kind = 'parked' THEN 'parked' ELSE 'ready' END
END"""

# An attempt that ended, and the step after it. Only a running run has a lease, so its status is
# not asked for: PostgreSQL would read all running rows by their index instead of these by their key.
HELD: Final = f"""
SELECT r.id AS id, r.group_id AS group_id, r.step_no AS step_no, r.retry AS retry,
    r.fence AS fence, r.worker_id AS worker_id, r.lease AS lease, r.events AS events,
    r.parent_id AS parent_id, r.parent_step AS parent_step,
    r.resource_key AS resource_key, s.resource_shared AS shares,
    r.step_started_at AS step_started_at, v.kind AS kind, {{texts}}v.kind = 'error' AS is_error,
    v.kind IN ('completed', 'failed') AND n.step_no IS NOT NULL AS advances, v.children AS children,
    n.step_no AS next_no, coalesce(n.pool, n.step_type) AS next_type, n.step_kind AS next_kind,
    n.resource_key AS next_key,
    CASE WHEN s.backoff * (1 << CASE WHEN r.retry < 20 THEN r.retry ELSE 20 END) < s.backoff_cap
         THEN s.backoff * (1 << CASE WHEN r.retry < 20 THEN r.retry ELSE 20 END)
         ELSE s.backoff_cap END * v.jitter AS delay,
    {OUTCOME} AS outcome
FROM {{ends}}
JOIN lexigram_durable_runs r
    ON r.id = v.run_id AND r.lease = v.lease AND r.step_no = v.step_no
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_plan_steps n
    ON n.plan_id = r.plan_id AND n.step_no = coalesce(v.next_no, r.step_no + 1)"""

# The cursor after that; ``h`` is a row of HELD.
ADVANCED: Final = """
    status = h.outcome,
    step_no = CASE WHEN h.advances THEN h.next_no ELSE r.step_no END,
    step_type = CASE WHEN h.advances THEN h.next_type ELSE r.step_type END,
    step_kind = CASE WHEN h.advances THEN h.next_kind ELSE r.step_kind END,
    resource_key = CASE WHEN h.advances THEN h.next_key
                        WHEN h.outcome = 'completed' THEN NULL ELSE r.resource_key END,
    retry = CASE WHEN h.advances THEN 0 WHEN h.is_error THEN r.retry + 1 ELSE r.retry END,
    lost = CASE WHEN h.kind = 'released' THEN r.lost ELSE 0 END, begun = 0,
    fence = CASE WHEN h.outcome = 'running' THEN r.fence + 1 ELSE r.fence END,
    available_at = CASE WHEN h.is_error THEN {now} + h.delay ELSE {now} END,
    rank = CASE WHEN h.is_error THEN {now} + h.delay - r.priority * {ageing} ELSE r.rank END,
    lease = CASE WHEN h.outcome = 'running' THEN r.lease END,
    lease_until = CASE WHEN h.outcome = 'running' THEN {now} + {lease} END,
    worker_id = CASE WHEN h.outcome = 'running' THEN r.worker_id END,
    wanted = CASE WHEN h.outcome = 'running' THEN r.wanted END,
    step_started_at = CASE WHEN h.outcome = 'running' THEN {now} END,
    status_at = {now},
    completed_at = CASE WHEN h.outcome IN ('completed', 'failed', 'cancelled') THEN {now} END,
    message = CASE WHEN h.outcome = 'failed' THEN h.message ELSE r.message END,
    fan = CASE WHEN NOT h.advances THEN r.fan WHEN h.children IS NOT NULL THEN r.step_no END,
    children = CASE WHEN h.advances THEN coalesce(h.children, 0) ELSE r.children END,
    children_failed = CASE WHEN h.advances THEN 0 ELSE r.children_failed END,
    parked = CASE WHEN h.kind = 'parked' THEN h.message END,
    answer = CASE WHEN h.advances OR h.kind = 'parked' THEN NULL ELSE r.answer END"""

# The attempt itself, for the history; ``h`` is a row of HELD with the texts of the end.
ATTEMPT_VALUES: Final = """
INSERT INTO lexigram_durable_history
    (run_id, fence, step_no, retry, status, worker_id, started_at, finished_at, message, meta)
SELECT h.id, h.fence, h.step_no,
    h.retry + CASE WHEN h.is_error OR h.kind = 'failed' THEN 1 ELSE 0 END,
    CASE WHEN h.kind = 'completed' THEN 'COMPLETED'
         WHEN h.kind = 'failed' OR h.outcome = 'failed' THEN 'FAILED'
         WHEN h.kind = 'error' THEN 'ERROR' ELSE 'PENDING' END,
    h.worker_id, h.step_started_at, {now}, h.message, h.meta"""
ATTEMPT: Final = f"{ATTEMPT_VALUES} FROM held h"

# Since when a worker checks in without a gap; ``c`` is what was there, ``excluded`` what comes.
# A gap of the worker is one of the database or of the machine: see ``DurableEngine.reap``.
FIRST_CHECKIN: Final = """CASE
    WHEN c.expires_at <= excluded.last_checkin OR c.first_checkin > excluded.last_checkin
    THEN excluded.last_checkin ELSE c.first_checkin END"""

# How a reaped run goes on. Begins count, not claims: a worker that ends takes steps along that it
# had claimed and not begun.
REAPED: Final = """
CASE WHEN r.wanted = 'cancel' THEN 'cancelled'
     WHEN r.begun >= {max_lost} THEN 'failed'
     WHEN r.wanted = 'pause' THEN 'paused' ELSE 'ready' END"""
# The text of its history, ``h`` being a reaped run with its outcome.
POISON: Final = """
'poison: its worker ended ' || h.begun || CASE h.begun WHEN 1 THEN ' time' ELSE ' times' END
    || ' while the handler ran'"""
REAPED_MESSAGE: Final = f"""
CASE WHEN h.outcome = 'failed' THEN {POISON} ELSE 'reset by dead-worker reaper' END"""
REAPED_META: Final = f"""
CASE WHEN h.outcome = 'failed' THEN '{{"error": "WorkerLost", "reason": "poison", "text": "'
    || {POISON} || '"}}' END"""
# Primary key; row lock. The lease is the gate: who lost it begins nothing.
BEGIN_STEP = """
UPDATE lexigram_durable_runs SET begun = begun + 1
WHERE id = ? AND lease = ? AND status = 'running'"""

# How a group stands after ``c`` of its runs became final.
GROUP_COUNTED: Final = """
    remaining = g.remaining - c.n,
    failed = g.failed + c.failed,
    cancelled = g.cancelled + c.cancelled,
    status = CASE
        WHEN g.remaining > c.n THEN
            CASE WHEN g.status = 'pending' AND c.cancelled = c.n THEN 'pending' ELSE 'running' END
        WHEN g.failed + c.failed > 0 THEN 'failed'
        WHEN g.cancelled + c.cancelled >= g.total THEN 'cancelled' ELSE 'completed' END,
    endings = g.endings + CASE WHEN g.remaining = c.n THEN 1 ELSE 0 END,
    completed_at = CASE WHEN g.remaining = c.n THEN {now} END"""

# --- the same on both databases -----------------------------------------------------------------

# Unique index of digest; who inserts the same one is waited for, then nothing is done.
ADD_PLAN = """
INSERT INTO lexigram_durable_plans (digest, workflow_id, param_id, body, created_at)
VALUES (?, ?, ?, ?, ?) ON CONFLICT (digest) DO NOTHING"""
FIND_PLAN = "SELECT id FROM lexigram_durable_plans WHERE digest = ?"
PLAN = "SELECT body FROM lexigram_durable_plans WHERE id = ?"

# One probe of ix_lexigram_durable_runs_ready for each kind.
_FIRST = """
SELECT r.available_at FROM lexigram_durable_runs r
WHERE r.status = 'ready' AND r.step_kind = k.id ORDER BY r.rank, r.id LIMIT 1"""
KINDS = f"""
SELECT k.id AS id, k.queue AS queue, k.handler AS handler, ({_FIRST}) AS waits_since
FROM lexigram_durable_step_kinds k ORDER BY k.id"""
COUNT_KINDS = "SELECT count(*) AS n FROM lexigram_durable_step_kinds"
# The check-ins of live workers; what one has not met yet it may have.
_UNSERVED = """
NOT EXISTS (SELECT 1 FROM lexigram_durable_checkins c
    WHERE c.expires_at > ? AND (c.lacks IS NULL OR c.lacks NOT LIKE '%,' || k.id || ',%'))"""
UNSERVED = f"""
SELECT queue, handler, waits_since FROM (
    SELECT k.queue AS queue, k.handler AS handler, ({_FIRST}) AS waits_since
    FROM lexigram_durable_step_kinds k WHERE {_UNSERVED}) AS w
WHERE waits_since IS NOT NULL ORDER BY waits_since"""
# Index (group_id, status). Nothing while no worker lives: then it is not a matter of handlers.
UNSERVED_OF_GROUP = f"""
SELECT k.queue AS queue, k.handler AS handler, g.waits_since AS waits_since
FROM (SELECT r.step_kind AS step_kind, min(r.available_at) AS waits_since
    FROM lexigram_durable_runs r WHERE r.group_id = ? AND r.status = 'ready'
    GROUP BY r.step_kind) g
JOIN lexigram_durable_step_kinds k ON k.id = g.step_kind
WHERE {_UNSERVED}
    AND EXISTS (SELECT 1 FROM lexigram_durable_checkins c WHERE c.expires_at > ?)
ORDER BY g.waits_since"""
# What live workers lack.
LACKS = "SELECT lacks FROM lexigram_durable_checkins WHERE expires_at > ?"
# Events that handlers of plans wait for, alike in plan, kind and the numbers of the handlers that
# are done, and since when: ix_lexigram_durable_events_handlers, the rest by primary keys. The oldest
# ones only, so that it costs the same however many wait: workers take them in this order, too.
WAITING_EVENTS = """
SELECT p.body AS body, w.kind AS kind, w.done AS done, w.waits_since AS waits_since
FROM (SELECT o.plan_id AS plan_id, o.kind AS kind, o.done AS done, min(o.created_at) AS waits_since
    FROM (SELECT e.kind AS kind, e.created_at AS created_at,
            coalesce((SELECT r.plan_id FROM lexigram_durable_runs r WHERE r.id = e.run_id),
                (SELECT g.plan_id FROM lexigram_durable_groups g WHERE g.id = e.group_id)) AS plan_id,
            (SELECT {numbers} FROM lexigram_durable_lifecycle l
                WHERE l.event_id = e.id AND l.status IN ('COMPLETED', 'FAILED')) AS done
        FROM lexigram_durable_events e
        WHERE e.delivered_at IS NULL AND e.audience = 'handler' AND {whose}
        ORDER BY e.id LIMIT 10000) o
    GROUP BY o.plan_id, o.kind, o.done) w
JOIN lexigram_durable_plans p ON p.id = w.plan_id"""

# Unique index of the key.
ADD_GROUP = """
INSERT INTO lexigram_durable_groups
    (name, workflow_id, param_id, batch_id, status, total, remaining, created_at, idempotency_key,
     plan_id, events)
VALUES (?, ?, ?, ?, 'pending', 0, 0, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id"""
FIND_GROUP = "SELECT id FROM lexigram_durable_groups WHERE idempotency_key = ?"
RUNS_OF_GROUP = """
SELECT id FROM lexigram_durable_runs WHERE group_id = ? AND parent_id IS NULL ORDER BY id"""
FILL_GROUP = "UPDATE lexigram_durable_groups SET total = ?, remaining = ? WHERE id = ?"
DROP_GROUP = "DELETE FROM lexigram_durable_groups WHERE id = ?"

# Primary keys; no lock.
RUN = "SELECT * FROM lexigram_durable_runs WHERE id = ?"
GROUP = "SELECT * FROM lexigram_durable_groups WHERE id = ?"
ATTEMPTS = "SELECT * FROM lexigram_durable_history WHERE run_id = ? ORDER BY fence"
# The view: primary keys of the run, its plan's steps and its history.
STEPS = """
SELECT id, workflow_run_id, workflow_step_number, workflow_step_name, step_type, is_last_step,
    priority, retry, retries, status, status_message, status_meta, worker_id, lease_token,
    resource_key
FROM runstep WHERE workflow_run_id = ? ORDER BY workflow_step_number"""

# Index (group_id, status); reads the runs of the group. ``lacks_handlers``: whether a worker has
# found out that it lacks a lifecycle handler.
STATS = f"""
SELECT g.status AS status, count(r.id) AS total,
    count(CASE WHEN r.status = 'completed' THEN 1 END) AS completed,
    count(CASE WHEN r.status IN ('failed', 'cancelled') THEN 1 END) AS failed,
    count(CASE WHEN r.completed_at IS NULL AND r.started_at IS NOT NULL THEN 1 END) AS running,
    count(CASE WHEN r.completed_at IS NULL AND r.started_at IS NULL THEN 1 END) AS pending,
    count(CASE WHEN r.status IN ('ready', 'waiting') THEN 1 END) AS waiting,
    avg(r.completed_at - r.started_at) AS average_duration,
    EXISTS (SELECT 1 FROM lexigram_durable_checkins c WHERE c.lacks LIKE '%,{HANDLER_MARK}%') AS lacks_handlers
FROM lexigram_durable_groups g LEFT JOIN lexigram_durable_runs r
    ON r.group_id = g.id AND r.parent_id IS NULL
WHERE g.id = ? GROUP BY g.id, g.status"""

# ix_lexigram_durable_runs_children; the last attempt by the primary key of the history.
CHILDREN = """
SELECT r.id, r.status, r.started_at, r.doc_id, r.params,
    coalesce(r.message, h.message) AS last_message, h.meta AS meta
FROM lexigram_durable_runs r
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = (
    SELECT max(x.fence) FROM lexigram_durable_history x WHERE x.run_id = r.id)
WHERE r.parent_id = ? AND r.parent_step = coalesce(?,
    (SELECT q.fan FROM lexigram_durable_runs q WHERE q.id = ?),
    (SELECT max(x.parent_step) FROM lexigram_durable_runs x WHERE x.parent_id = ?))
ORDER BY r.id"""

# Primary key; row lock.
ANSWER = """
UPDATE lexigram_durable_runs SET answer = ?, parked = NULL, status_at = ?, available_at = ?,
    status = CASE WHEN status = 'parked' THEN 'ready' ELSE status END
WHERE id = ? AND parked IS NOT NULL AND completed_at IS NULL"""

# Primary key. The rows are locked before: what this reads is what they have then.
_OF_FAN = """(SELECT count(*) FROM lexigram_durable_runs c WHERE c.parent_id = lexigram_durable_runs.id
        AND c.parent_step = lexigram_durable_runs.fan AND """
_OPEN = f"{_OF_FAN}c.completed_at IS NULL)"
_FAILED = f"{_OF_FAN}c.status IN ('failed', 'cancelled'))"
RECOUNT = f"""
UPDATE lexigram_durable_runs SET children = {_OPEN}, children_failed = {_FAILED},
    status = CASE WHEN status IN ('ready', 'waiting')
        THEN CASE WHEN {_OPEN} > 0 THEN 'waiting' ELSE 'ready' END ELSE status END
WHERE fan IS NOT NULL AND id {{ids}}"""
# Index (group_id, status): runs that wait though nothing is left to wait for.
STUCK = """
SELECT r.id FROM lexigram_durable_runs r
WHERE r.group_id = ? AND r.status = 'waiting' AND NOT EXISTS (
    SELECT 1 FROM lexigram_durable_runs c
    WHERE c.parent_id = r.id AND c.parent_step = r.fan AND c.completed_at IS NULL)"""

CHECK_OUT = "DELETE FROM lexigram_durable_checkins WHERE worker_id = ?"

# Primary key; row lock. The gate of every write about an event, and its renewal.
HOLD_EVENT = """
UPDATE lexigram_durable_events SET lease_until = ?
WHERE id = ? AND lease = ? AND delivered_at IS NULL"""
# Primary keys.
PLAN_OF_EVENT = """
SELECT coalesce((SELECT plan_id FROM lexigram_durable_runs WHERE id = ?),
    (SELECT plan_id FROM lexigram_durable_groups WHERE id = ?)) AS plan_id"""
HANDLED = "SELECT * FROM lexigram_durable_lifecycle WHERE event_id = ? ORDER BY handler_no"
# An attempt whose worker died is not counted twice.
BEGIN_HANDLER = """
INSERT INTO lexigram_durable_lifecycle AS l (event_id, handler_no, handler_name, kind, group_id,
    run_id, step_no, status, attempts, worker_id, started_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 'RUNNING', 1, ?, ?)
ON CONFLICT (event_id, handler_no) DO UPDATE SET status = 'RUNNING',
    attempts = l.attempts + CASE WHEN l.status = 'RUNNING' THEN 0 ELSE 1 END,
    lost = CASE WHEN l.status = 'RUNNING' THEN l.lost + 1 ELSE 0 END,
    worker_id = excluded.worker_id, started_at = excluded.started_at, finished_at = NULL"""
# What ended in a transaction of its handler is not ended in another way.
END_HANDLER = """
UPDATE lexigram_durable_lifecycle SET status = ?, finished_at = ?, message = ?, meta = ?
WHERE event_id = ? AND handler_no = ? AND status IN ('RUNNING', ?)"""
# ix_lexigram_durable_lifecycle_group_id
LIFECYCLE = """
SELECT * FROM lexigram_durable_lifecycle WHERE group_id = ? ORDER BY event_id, handler_no"""

# --- open questions and failures -----------------------------------------------------------------

_QUESTION = """
SELECT r.id AS run_id, r.group_id AS group_id, r.parent_id AS parent_id, r.plan_id AS plan_id,
    r.step_no AS step_no, p.workflow_id AS workflow_id, s.name AS step, r.parked AS prompt,
    r.status_at AS asked_at, h.meta AS meta
FROM lexigram_durable_runs r
JOIN lexigram_durable_plans p ON p.id = r.plan_id
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = r.fence
WHERE r.parked IS NOT NULL AND r.completed_at IS NULL"""
# ix_lexigram_durable_runs_parked, the oldest question first; the rest by primary keys. No locks.
OPEN_QUESTIONS = f"""{_QUESTION}
    AND (CAST(? AS BIGINT) IS NULL OR r.group_id = CAST(? AS BIGINT))
ORDER BY r.id LIMIT ? OFFSET ?"""
# ix_lexigram_durable_runs_children: of a run, and of all that it made.
QUESTIONS_OF_RUN = f"""{_QUESTION} AND r.id IN (
    WITH RECURSIVE tree(id) AS (SELECT CAST(? AS BIGINT) UNION ALL
        SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)
ORDER BY r.id"""

# Index (group_id, status); the last attempt by the primary key of the history.
FAILURES = """
SELECT r.id AS run_id, r.params, r.message AS run_message, s.name AS step, h.message, h.meta
FROM lexigram_durable_runs r
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = (
    SELECT max(x.fence) FROM lexigram_durable_history x
    WHERE x.run_id = r.id AND x.step_no = r.step_no)
WHERE r.group_id = ? AND r.status = 'failed' AND r.parent_id IS NULL ORDER BY r.id LIMIT ?"""
# The partial index of events that handlers of plans wait for.
UNHANDLED = """
SELECT 1 FROM lexigram_durable_events
WHERE delivered_at IS NULL AND audience = 'handler' AND group_id = ? LIMIT 1"""

# --- duties and events --------------------------------------------------------------------------

# Primary key; row lock. Of all workers one moves it on.
ADD_DUTY = "INSERT INTO lexigram_durable_duties (name, due_at) VALUES (?, 0) ON CONFLICT DO NOTHING"
# A time too far in the future is from before the clock was set back.
TAKE_DUTY = """
UPDATE lexigram_durable_duties SET due_at = ? WHERE name = ? AND (due_at <= ? OR due_at > ?)"""

# Primary key; row lock. Whose lease on the event is over changes nothing.
SETTLE_EVENT = """
UPDATE lexigram_durable_events SET delivered_at = ?, lease = NULL, lease_until = ?
WHERE id = ? AND lease = ? AND delivered_at IS NULL"""

# Unique index (group_id, kind, ending); row lock. Of many callers one gets the row.
TAKE_GROUP_END = """
UPDATE lexigram_durable_events SET delivered_at = ?, tries = tries + 1
WHERE delivered_at IS NULL AND group_id = ? AND kind = 'group_end' AND audience = 'listener'
    AND (lease IS NULL OR lease_until <= ?)
    AND ending = (SELECT endings FROM lexigram_durable_groups WHERE id = ? AND remaining = 0)
RETURNING status"""

# ix_lexigram_durable_runs_leased from its far end: leases from before the clock was set back. Who
# lives renews them; the others would be waited for until that time comes again.
CAP_LEASES = """
UPDATE lexigram_durable_runs SET lease_until = ? WHERE status = 'running' AND lease_until > ?"""

# Index of completed_at, which unfinished groups have not.
OPEN_GROUPS = """
SELECT id FROM lexigram_durable_groups WHERE completed_at IS NULL AND id > ? ORDER BY id LIMIT 500"""

# Which of them look wrong: index (group_id, status), no locks, one read for many groups. What is
# on its way at this moment looks wrong too, and is found right by the look under the lock.
SUSPECTS = """
SELECT g.id AS id FROM lexigram_durable_groups g
LEFT JOIN (
    SELECT group_id, count(CASE WHEN parent_id IS NULL AND completed_at IS NULL THEN 1 END) AS open,
        count(CASE WHEN parent_id IS NULL AND status = 'failed' THEN 1 END) AS failed,
        count(CASE WHEN parent_id IS NULL AND status = 'cancelled' THEN 1 END) AS cancelled,
        count(CASE WHEN parent_id IS NULL THEN 1 END) AS total,
        count(CASE WHEN status = 'waiting' THEN 1 END) AS waiting,
        min(started_at) AS started_at
    FROM lexigram_durable_runs WHERE group_id {ids} GROUP BY group_id) c ON c.group_id = g.id
WHERE g.id {ids} AND (c.group_id IS NULL OR c.open <> g.remaining OR c.failed <> g.failed
    OR c.cancelled <> g.cancelled OR c.total <> g.total OR c.waiting > 0 OR g.remaining = 0
    OR (g.started_at IS NULL AND c.started_at IS NOT NULL))"""

# Index (group_id, status). After the lock on the group: a statement that ends a run of it waits for
# that lock, so its run is either counted here or counted down afterwards, never both.
COUNT_GROUP = """
SELECT count(*) AS total, count(CASE WHEN completed_at IS NULL THEN 1 END) AS remaining,
    count(CASE WHEN status = 'failed' THEN 1 END) AS failed,
    count(CASE WHEN status = 'cancelled' THEN 1 END) AS cancelled,
    min(started_at) AS started_at
FROM lexigram_durable_runs WHERE group_id = ? AND parent_id IS NULL"""
REPAIRED = (
    *("total", "remaining", "failed", "cancelled", "status", "endings"),
    *("started_at", "completed_at"),
)
REPAIR_GROUP = """
UPDATE lexigram_durable_groups
SET total = ?, remaining = ?, failed = ?, cancelled = ?, status = ?, endings = ?, started_at = ?,
    completed_at = ?
WHERE id = ?"""
ADD_EVENT = """
INSERT INTO lexigram_durable_events
    (kind, group_id, ending, status, created_at, run_id, step_no, audience)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""

# Index of completed_at from its old end.
OLD_GROUPS = """
SELECT id FROM lexigram_durable_groups WHERE completed_at <= ? ORDER BY completed_at LIMIT ?"""
# Primary key; row lock. Not when it was reopened, or one of its runs is locked.
DROP_OLD_GROUP = """
DELETE FROM lexigram_durable_groups WHERE id = ? AND completed_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs WHERE group_id = ?)"""
FORGET_EVENTS = "DELETE FROM lexigram_durable_events WHERE group_id = ?"
FORGET_LIFECYCLE = "DELETE FROM lexigram_durable_lifecycle WHERE group_id = ?"

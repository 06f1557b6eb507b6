"""The statements of durable runs for PostgreSQL.

Lock order: claims, reaps, heartbeats and the operator's statements skip rows that others have
locked, so they wait for no run. Statements that wait lock in this order: runs from the highest id
to the lowest, which is child runs before their parents; then lexigram_locks, with the row of
lexigram_lock_fence before them; then groups by their ids. A finish locks the rows it was given,
their parents, its locks, the groups. A retry locks the parents before anything else. So no two of
them deadlock. The parts of a statement have no order by themselves: a part that must come later
counts the rows of the part that must come first.
"""

# ruff: noqa: S608 - statements are put together from pieces of these files only

from __future__ import annotations

from typing import Final

from lexigram.sql.locks.statements import WAITING
from lexigram.sql.statements import render_statement
from lexigram.workflow.durable.plan import EVENT_BITS, LifeCycleEvent
from lexigram.workflow.durable.store import statements as shared
from lexigram.workflow.durable.store.records import (
    CHANNEL,
    CHANNEL_WANTED,
    Audience,
)
from lexigram.workflow.durable.store.views import STEP_FACTOR

_BATCH = 500  # rows that one statement of the operator or the reaper changes
_TOGETHER = 50  # runs that wait for a resource and are made ready at once when they may share it

# The server's clock, once per statement.
_CLOCK: Final = """clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now)"""
_NOW: Final = "(SELECT now FROM clock)"

# How many steps hold a lock together; '{}' is one that never shared it.
_STEPS: Final = "CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int)"

# Every start and end of a group is written for listeners, and for the handlers of its plan if any.
_AUDIENCES: Final = {
    event: f"""JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & {bit} <> 0"""
    for event, bit in EVENT_BITS.items()
}

# Events that handlers of the plan wait for; most plans have none. ``{rows}`` is the CTE with the
# rows, ``{values}`` what may have happened to one of them.
_LIFE: Final = """
    INSERT INTO lexigram_durable_events
        (kind, group_id, ending, status, created_at, run_id, step_no, audience)
    SELECT x.kind, d.group_id, x.fence, x.status, {now}, d.id, x.step_no, 'handler'
    FROM {rows} d CROSS JOIN LATERAL (VALUES {values})
        AS x(n, bit, kind, happened, fence, step_no, status)
    WHERE d.events <> 0 AND d.events & x.bit <> 0 AND x.happened
    ORDER BY d.id, x.n ON CONFLICT DO NOTHING"""
_ENDED: Final = f"""
        (1, {EVENT_BITS[LifeCycleEvent.STEP_END]}, 'step_end', d.kind = 'completed', d.was_fence,
            d.was_step, 'completed'),
        (2, {EVENT_BITS[LifeCycleEvent.STEP_FAILED]}, 'step_failed',
            d.status = 'failed' OR d.kind = 'failed', d.was_fence, d.was_step, 'failed'),
        (3, {EVENT_BITS[LifeCycleEvent.ITEM_END]}, 'item_end', d.status = 'completed',
            d.was_fence, d.was_step, 'completed'),
        (4, {EVENT_BITS[LifeCycleEvent.ITEM_FAILED]}, 'item_failed', d.status = 'failed',
            d.was_fence, d.was_step, 'failed'),
        (5, {EVENT_BITS[LifeCycleEvent.STEP_START]}, 'step_start', d.status = 'running', d.fence,
            d.step_no, 'running')"""
_CLAIMED: Final = f"""
        (1, {EVENT_BITS[LifeCycleEvent.ITEM_START]}, 'item_start', d.fence = 1, d.fence,
            d.step_no, 'running'),
        (2, {EVENT_BITS[LifeCycleEvent.STEP_START]}, 'step_start', true, d.fence, d.step_no,
            'running')"""

# A run that another one made counts down that one, and the last of them makes it ready: primary
# keys, row locks from the highest number down. One that this very statement changes is left as
# it is: a retry counts anew.
_GATHER: Final = """
children AS MATERIALIZED (
    SELECT parent_id, parent_step, CAST(count(*) AS int) AS n,
        CAST(count(*) FILTER (WHERE status <> 'completed') AS int) AS failed
    FROM done WHERE status IN ('completed', 'failed', 'cancelled') AND parent_id IS NOT NULL
    GROUP BY parent_id, parent_step),
parents AS MATERIALIZED (
    SELECT id FROM lexigram_durable_runs
    WHERE id = ANY(ARRAY(SELECT parent_id FROM children WHERE parent_id NOT IN (
        SELECT id FROM done))) ORDER BY id DESC FOR UPDATE),
gathered AS (
    UPDATE lexigram_durable_runs r SET children = r.children - c.n,
        children_failed = r.children_failed + c.failed,
        status = CASE WHEN r.status = 'waiting' AND r.children <= c.n THEN 'ready'
                      ELSE r.status END
    FROM children c WHERE r.id = ANY(ARRAY(SELECT id FROM parents)) AND r.id = c.parent_id
        AND r.fan = c.parent_step
    RETURNING r.id, r.status)"""

# The tail of every statement that may end runs: ``done`` has the rows it changed. The decrement
# that reaches zero ends the group and writes the event. Groups are locked in the order of their
# numbers, so that two finishes which end runs of the same groups do not wait for each other.
_COUNTDOWN: Final = f"""
counted AS (
    SELECT group_id, CAST(count(*) AS int) AS n,
        CAST(count(*) FILTER (WHERE status = 'failed') AS int) AS failed,
        CAST(count(*) FILTER (WHERE status = 'cancelled') AS int) AS cancelled
    FROM done WHERE status IN ('completed', 'failed', 'cancelled') AND parent_id IS NULL
    GROUP BY group_id),
in_order AS MATERIALIZED (
    SELECT id FROM lexigram_durable_groups WHERE id IN (SELECT group_id FROM counted)
        AND {{before}} ORDER BY id FOR UPDATE),
counted_down AS (
    UPDATE lexigram_durable_groups g SET {shared.GROUP_COUNTED},
        started_at = CASE WHEN g.started_at IS NULL AND c.cancelled < c.n THEN {{now}}
                          ELSE g.started_at END
    FROM counted c JOIN in_order o ON o.id = c.group_id WHERE g.id = c.group_id
    RETURNING g.id, g.remaining, g.endings, g.status, g.started_at, g.events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', {{now}}, a.name
    FROM counted_down d {_AUDIENCES[LifeCycleEvent.GROUP_START]} WHERE d.started_at = {{now}}
    UNION ALL
    SELECT 'group_end', d.id, d.endings, d.status, {{now}}, a.name
    FROM counted_down d {_AUDIENCES[LifeCycleEvent.GROUP_END]} WHERE d.remaining = 0
    ON CONFLICT DO NOTHING RETURNING group_id)"""

# Locks of attempts that ended (``held``: resource_key, shares, lease, keeps_lock), and the best
# runs that wait for each resource: one, or as many as may share it. Primary key of the locks;
# ix_lexigram_durable_runs_keyed. A lock of several steps counts them down, as a group does its
# runs: two finishes that end the last two see each other by the row they both change. Its last one
# makes the lock expire, which is as good as gone; the row is removed after that. They are locked in
# the order of their keys, so that two finishes with two keys do not wait for each other.
_UNLOCK: Final = f"""
unlocked AS (
    DELETE FROM lexigram_locks l USING held h
    WHERE l.resource_key = h.resource_key AND l.holder_id = h.lease AND NOT h.keeps_lock
        AND l.holder_meta = '{{}}' AND {{first}}
    RETURNING l.resource_key, h.shares),
leavers AS (
    SELECT resource_key, lease, CAST(count(*) AS int) AS n FROM held
    WHERE resource_key IS NOT NULL AND NOT keeps_lock GROUP BY resource_key, lease),
leavers_in_order AS MATERIALIZED (
    SELECT resource_key FROM lexigram_locks
    WHERE resource_key IN (SELECT resource_key FROM leavers) AND holder_meta <> '{{}}'
        AND {{first}}
    ORDER BY resource_key FOR UPDATE),
leaving AS (
    UPDATE lexigram_locks l SET
        holder_meta = '{{"steps": ' || {_STEPS} - e.n || '}}',
        expires_at = CASE WHEN {_STEPS} > e.n THEN l.expires_at ELSE 0 END
    FROM leavers e JOIN leavers_in_order o USING (resource_key)
    WHERE l.resource_key = e.resource_key AND l.holder_id = e.lease AND l.holder_meta <> '{{}}'
    RETURNING l.resource_key, l.expires_at),
freed AS (
    SELECT resource_key, CASE WHEN shares THEN {_TOGETHER} ELSE 1 END AS n FROM unlocked
    UNION ALL SELECT resource_key, {_TOGETHER} FROM leaving WHERE expires_at = 0),
unblocked AS (
    UPDATE lexigram_durable_runs SET status = 'ready'
    WHERE id IN (SELECT b.id FROM freed f CROSS JOIN LATERAL (
        SELECT id FROM lexigram_durable_runs
        WHERE resource_key = f.resource_key AND status = 'blocked'
        ORDER BY rank, id LIMIT f.n FOR UPDATE SKIP LOCKED) b)
    RETURNING id)"""
# Primary key; waits for a claim that takes the expired lock, and then keeps the row.
FORGET_FREED = (
    "DELETE FROM lexigram_locks WHERE resource_key = ANY(CAST(? AS text[])) AND expires_at = 0"
)


# True, when these have been taken.
_PARENTS_TAKEN: Final = "(SELECT count(*) FROM parents) >= 0"
_LOCKS_TAKEN: Final = "(SELECT count(*) FROM unblocked) >= 0"


def _render(text: str, *, first: str = "true", before: str = "true", **pieces: str) -> str:
    """``first``: what comes before the locks on resources; ``before``: what before groups."""
    order = {"first": first, "before": before}
    return render_statement(text, clock=_CLOCK, now=_NOW, **order, **pieces)


# --- in -----------------------------------------------------------------------------------------

_STEPS_GIVEN = """json_to_recordset(CAST(? AS json)) AS v(
    step_no int, name text, step_type text, pool text, queue text, requires text, retries int,
    backoff float8, backoff_cap float8, resource_key text, resource_shared boolean)"""
# Unique index of both; in their order, so that two new plans do not wait for each other.
ADD_KINDS = f"""
INSERT INTO lexigram_durable_step_kinds (queue, handler)
SELECT DISTINCT v.queue, v.requires FROM {_STEPS_GIVEN}
ORDER BY v.queue, v.requires ON CONFLICT DO NOTHING"""
ADD_STEPS = f"""
INSERT INTO lexigram_durable_plan_steps
    (plan_id, step_no, name, step_type, pool, retries, backoff, backoff_cap, resource_key,
    resource_shared, step_kind)
SELECT CAST(? AS bigint), v.step_no, v.name, v.step_type, v.pool, v.retries, v.backoff,
    v.backoff_cap, v.resource_key, v.resource_shared, k.id
FROM {_STEPS_GIVEN}
JOIN lexigram_durable_step_kinds k ON k.queue = v.queue AND k.handler = v.requires
ON CONFLICT DO NOTHING"""

# Locks its own new rows only; a key that is being inserted is waited for, then left out.
# The last turn of a tenant: ix_lexigram_durable_runs_tenant from its end.
_ADDED: Final = """
v AS (SELECT * FROM json_to_recordset(CAST(? AS json)) AS v(
    n int, doc_id text, batch_id bigint, priority int, tenant text, delay float8,
    idempotency_key text, params text)),
last AS (SELECT t.tenant, (SELECT max(r.turn) FROM lexigram_durable_runs r
        WHERE r.tenant = t.tenant AND r.completed_at IS NULL) AS turn
    FROM (SELECT DISTINCT tenant FROM v WHERE tenant IS NOT NULL) t),
turns AS (SELECT v.*, CASE WHEN v.tenant IS NULL THEN p.base ELSE
        greatest(p.base, coalesce(l.turn + p.gap, p.base))
        + p.gap * (row_number() OVER (PARTITION BY v.tenant ORDER BY v.n) - 1) END + v.delay AS turn
    FROM v CROSS JOIN p LEFT JOIN last l ON l.tenant = v.tenant)"""
_ADD: Final = """
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
ORDER BY t.n
ON CONFLICT DO NOTHING RETURNING id, idempotency_key"""
ADD_RUNS = f"""
WITH p AS (SELECT CAST(? AS double precision) AS now, CAST(? AS bigint) AS group_id,
    CAST(? AS bigint) AS plan_id, CAST(? AS int) AS n_steps, CAST(? AS float8) AS ageing,
    CAST(? AS float8) AS gap, CAST(? AS int) AS events, CAST(? AS float8) AS base,
    CAST(? AS bigint) AS parent_id, CAST(? AS int) AS parent_step, CAST(? AS text) AS status),
{_ADDED} {_ADD}"""
# A group of a known plan, without keys, in one statement: nothing can conflict. No row comes
# back when the plan is not there.
SUBMIT = _render(
    f"""
WITH {_CLOCK},
g AS (
    INSERT INTO lexigram_durable_groups (name, workflow_id, param_id, batch_id, status, total,
        remaining, created_at, plan_id, events)
    SELECT CAST(? AS text), CAST(? AS text), CAST(? AS text), CAST(? AS bigint), 'pending', c.n,
        c.n, {{now}}, s.plan_id, CAST(? AS int)
    FROM lexigram_durable_plan_steps s CROSS JOIN (SELECT CAST(? AS int) AS n) c
    WHERE s.plan_id = ? AND s.step_no = 1
    RETURNING id, plan_id, events),
p AS (SELECT {{now}} AS now, g.id AS group_id, g.plan_id, CAST(? AS int) AS n_steps,
    CAST(? AS float8) AS ageing, CAST(? AS float8) AS gap, g.events, {{now}} AS base,
    CAST(NULL AS bigint) AS parent_id, CAST(NULL AS int) AS parent_step, 'ready' AS status
    FROM g),
{_ADDED},
added AS ({_ADD})
SELECT a.id, g.id AS group_id, CAST((SELECT pg_notify('{CHANNEL}', '')) AS text) AS notified
FROM added a CROSS JOIN g ORDER BY a.id"""
)

KNOWN_RUNS = """
SELECT id, group_id, idempotency_key FROM lexigram_durable_runs
WHERE idempotency_key = ANY(CAST(? AS text[]))"""

# --- out ----------------------------------------------------------------------------------------

# ix_lexigram_durable_runs_ready from its first entry of a kind. Of several kinds the one is taken
# whose first run is first in line, with those of its runs that came at most a moment after the
# first of the others: kinds are handed out in turn, each by its own part of the index. Row locks on
# the candidates; rows another claim has locked are skipped, so two claims never get one row. A
# resource is taken by the insert into lexigram_locks, whose primary key lets one of two claims win.
# The first run in line gets it, and with it those behind it as long as all of them share. While
# another caller waits for the lock, none gets it: workers that follow each other at once would
# starve that caller. A locked group is not waited for: the statement that ends a run of it marks
# its start.
_CLAIM_TEXT: Final = """
WITH {clock},
p AS (SELECT CAST(? AS text) AS worker, CAST(? AS text) AS lease, CAST(? AS float8) AS seconds,
    CAST(? AS bigint) AS batch),
{line},
cand AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.group_id, r.rank,
        CASE WHEN r.resource_key IS NOT NULL THEN (
            SELECT s.resource_shared FROM lexigram_durable_plan_steps s
            WHERE s.plan_id = r.plan_id AND s.step_no = r.step_no) END AS shares
    FROM lexigram_durable_runs r
    WHERE r.status = 'ready' AND r.step_kind = (SELECT kind FROM line)
        AND r.rank <= (SELECT bound FROM line) AND {fits}
    ORDER BY r.rank, r.id LIMIT CAST(? AS bigint) FOR UPDATE OF r SKIP LOCKED),
asking AS MATERIALIZED (
    SELECT id, resource_key, row_number() OVER line = 1 OR bool_and(shares) OVER line AS fits
    FROM cand WHERE resource_key IS NOT NULL
    WINDOW line AS (PARTITION BY resource_key ORDER BY rank, id)),
keyed AS MATERIALIZED (
    SELECT resource_key, count(*) AS steps FROM asking WHERE fits GROUP BY resource_key),
fence AS (
    UPDATE lexigram_lock_fence SET last = last + (SELECT count(*) FROM keyed)
    WHERE id = 1 AND EXISTS (SELECT 1 FROM keyed) RETURNING last),
taken AS (
    INSERT INTO lexigram_locks AS l
        (resource_key, holder_id, holder_kind, holder_meta, fence, acquired_at, expires_at)
    SELECT k.resource_key, p.lease, 'worker',
        CASE WHEN k.steps > 1 THEN '{"steps": ' || k.steps || '}' ELSE '{}' END,
        f.last - row_number() OVER (ORDER BY k.resource_key DESC) + 1, {now}, {now} + p.seconds
    FROM keyed k CROSS JOIN fence f CROSS JOIN p ORDER BY k.resource_key
    ON CONFLICT (resource_key) DO UPDATE SET holder_id = excluded.holder_id,
        holder_kind = excluded.holder_kind, holder_meta = excluded.holder_meta,
        fence = excluded.fence, acquired_at = excluded.acquired_at,
        expires_at = excluded.expires_at
    WHERE l.expires_at <= excluded.acquired_at
    RETURNING l.resource_key, l.fence),
granted AS (
    SELECT a.id, t.fence FROM asking a JOIN taken t USING (resource_key) WHERE a.fits),
claimed AS (
    UPDATE lexigram_durable_runs r SET status = 'running', lease = p.lease, worker_id = p.worker,
        lease_until = {now} + p.seconds, fence = r.fence + 1, step_started_at = {now},
        started_at = coalesce(r.started_at, {now}), status_at = {now}
    FROM cand c CROSS JOIN p
    WHERE r.id = c.id
        AND (c.resource_key IS NULL OR c.id IN (SELECT id FROM granted))
    RETURNING r.id, r.group_id, r.plan_id, r.step_no, r.step_type, r.step_kind, r.retry, r.fence,
        r.priority, r.rank, r.resource_key, r.lease, r.doc_id, r.batch_id, r.tenant, r.params,
        r.children_failed, r.answer, r.parent_id, r.events, r.lost, r.begun),
begun AS (
    UPDATE lexigram_durable_groups SET status = 'running', started_at = {now}
    WHERE id IN (SELECT id FROM lexigram_durable_groups
        WHERE status = 'pending' AND id IN (SELECT group_id FROM claimed) FOR UPDATE SKIP LOCKED)
    RETURNING id, events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', {now}, a.name FROM begun d {audiences}
    ON CONFLICT DO NOTHING),
life AS ({life})
SELECT c.*, g.fence AS lock_fence, x.*
FROM (SELECT (SELECT count(*) FROM keyed) - (SELECT count(*) FROM taken) AS lost_races,
    line.kind AS line, line.others AS others,
    (SELECT count(*) FROM lexigram_durable_step_kinds) AS kinds FROM line) x
LEFT JOIN claimed c ON true LEFT JOIN granted g ON g.id = c.id
ORDER BY c.rank, c.id"""
# Whether a run may have its resource now.
_FITS: Final = """(r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, '{waiting}' || r.resource_key)
            AND l.expires_at > {now})
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running')))"""
_OF_BATCH: Final = f"{_FITS} AND r.batch_id = (SELECT batch FROM p)"
_LINE: Final = """line AS MATERIALIZED (SELECT CAST(? AS int) AS kind,
    CAST('Infinity' AS float8) AS bound, false AS others)"""
# One probe of the index for each kind.
_LINES: Final = f"""first AS MATERIALIZED (
    SELECT h.* FROM unnest(CAST(? AS int[])) AS k(kind) CROSS JOIN LATERAL (
        SELECT r.step_kind AS kind, r.rank, r.id FROM lexigram_durable_runs r
        WHERE r.status = 'ready' AND r.step_kind = k.kind AND {{fits}}
        ORDER BY r.rank, r.id LIMIT 1) h
    ORDER BY h.rank, h.id LIMIT 2),
line AS MATERIALIZED (
    SELECT (array_agg(kind ORDER BY rank, id))[1] AS kind, CASE WHEN count(*) > 1
        THEN max(rank) + {shared.MOMENT} ELSE CAST('Infinity' AS float8) END AS bound,
        count(*) > 1 AS others FROM first)"""


def _claim(line: str, fits: str) -> str:
    started = _AUDIENCES[LifeCycleEvent.GROUP_START]
    life = {"life": _LIFE, "rows": "claimed", "values": _CLAIMED}
    return _render(_CLAIM_TEXT, line=line, fits=fits, waiting=WAITING, audiences=started, **life)


CLAIM_KIND = _claim(_LINE, _FITS)
CLAIM_KINDS = _claim(_LINES, _FITS)
# Of one batch: rows of other batches are passed over.
CLAIM_KIND_OF_BATCH = _claim(_LINE, _OF_BATCH)
CLAIM_KINDS_OF_BATCH = _claim(_LINES, _OF_BATCH)

# Primary keys of runs and plan steps; row locks on the runs. The lease in the join is the gate:
# a finish with a lost lease finds no row, and no other part of the statement acts.
_FINISH = f"""
WITH {_CLOCK},
p AS (SELECT CAST(? AS float8) AS seconds, CAST(? AS float8) AS ageing),
v AS (SELECT * FROM json_to_recordset(CAST(? AS json)) AS v(
    run_id bigint, step_no int, lease text, kind text, message text, meta text, jitter float8,
    sticky boolean, fatal boolean, next_no int, children int)),
{{ahead}}
held AS MATERIALIZED (
    SELECT t.*, t.outcome = 'running' AND t.next_key IS NOT NULL AS keeps_lock
    FROM ({shared.HELD}
        {{where}} ORDER BY r.id DESC FOR UPDATE OF r) t),
done AS (
    UPDATE lexigram_durable_runs r SET {shared.ADVANCED}
    FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.step_no, r.retry, r.fence, r.parent_id,
        r.parent_step, r.events, h.kind, h.step_no AS was_step, h.fence AS was_fence),
attempts AS ({shared.ATTEMPT}),
{{more}}
{_UNLOCK},
{_COUNTDOWN},
news AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT 1 FROM done WHERE status IN ('ready', 'delayed'))
                OR EXISTS (SELECT 1 FROM unblocked) OR EXISTS (SELECT 1 FROM group_events) {{news}}
           THEN CAST(pg_notify('{CHANNEL}', '') AS text) END AS notified)
SELECT done.*, news.notified, ARRAY(SELECT resource_key FROM leaving WHERE expires_at = 0) AS freed
FROM done CROSS JOIN news"""
_FINISH_PIECES: Final = {
    "ends": "v",
    "texts": "v.message AS message, v.meta AS meta, ",
    "lease": "(SELECT seconds FROM p)",
    "ageing": "(SELECT ageing FROM p)",
}
# The runs of the ends and those that made them, in one line: one may be in both. A run that only
# continues with its next step does not change its parent. What a cancel changes after this read is
# locked later, by ``parents``.
_AHEAD: Final = """
family AS MATERIALIZED (
    SELECT id FROM lexigram_durable_runs WHERE id = ANY(ARRAY(
        SELECT u.id FROM v JOIN lexigram_durable_runs r ON r.id = v.run_id AND r.lease = v.lease
        CROSS JOIN LATERAL (VALUES (r.id), (CASE WHEN v.kind <> 'completed'
            OR r.step_no = r.n_steps OR r.wanted IS NOT NULL THEN r.parent_id END)) AS u(id)
        WHERE u.id IS NOT NULL))
    ORDER BY id DESC FOR UPDATE),"""
FINISH = _render(
    _FINISH,
    **_FINISH_PIECES,
    more=f"life AS ({_LIFE}),{_GATHER},",
    rows="done",
    values=_ENDED,
    news="OR EXISTS (SELECT 1 FROM gathered WHERE status = 'ready')",
    ahead=_AHEAD,
    where="WHERE (SELECT count(*) FROM family) >= 0",
    first=_PARENTS_TAKEN,
    before=f"{_PARENTS_TAKEN} AND {_LOCKS_TAKEN}",
)
# For runs that no other run made and whose plans have no handlers: almost all of them. Without the
# parts that would find nothing to do a lone finish takes 0.84 ms instead of 0.88 (the tenth
# percentile of 700, interleaved, on a busy machine).
FINISH_PLAIN = _render(
    _FINISH, **_FINISH_PIECES, more="", news="", ahead="", where="", before=_LOCKS_TAKEN
)

# Primary keys. Locked rows are being finished or cancelled: they are not waited for,
# and the last part, which reads without locks, returns their state before.
HEARTBEAT = _render(
    f"""
WITH {_CLOCK},
p AS (SELECT CAST(? AS text) AS worker, CAST(? AS float8) AS seconds, CAST(? AS text) AS lacks),
v AS (SELECT * FROM unnest(CAST(? AS bigint[]), CAST(? AS text[])) AS v(run_id, lease)),
seen AS (
    INSERT INTO lexigram_durable_checkins AS c
        (worker_id, first_checkin, last_checkin, expires_at, lacks)
    SELECT worker, {{now}}, {{now}}, {{now}} + seconds, lacks FROM p
    ON CONFLICT (worker_id) DO UPDATE
    SET last_checkin = excluded.last_checkin, expires_at = excluded.expires_at,
        lacks = excluded.lacks, first_checkin = {shared.FIRST_CHECKIN}),
free AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease FROM lexigram_durable_runs r
    JOIN v ON v.run_id = r.id AND v.lease = r.lease
    WHERE r.status = 'running' FOR UPDATE OF r SKIP LOCKED),
kept AS (
    UPDATE lexigram_durable_runs r SET lease_until = {{now}} + p.seconds
    FROM free f CROSS JOIN p WHERE r.id = f.id),
locked AS MATERIALIZED (
    SELECT l.resource_key FROM lexigram_locks l
    JOIN free f ON f.resource_key = l.resource_key AND f.lease = l.holder_id
    WHERE l.expires_at > {{now}} FOR UPDATE OF l SKIP LOCKED),
kept_locks AS (
    UPDATE lexigram_locks l SET expires_at = {{now}} + p.seconds
    FROM locked k CROSS JOIN p WHERE l.resource_key = k.resource_key)
SELECT v.run_id, v.lease, r.wanted, r.id IS NOT NULL AND (r.resource_key IS NULL
    OR EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key = r.resource_key AND l.holder_id = r.lease)) AS is_kept
FROM v LEFT JOIN lexigram_durable_runs r
    ON r.id = v.run_id AND r.lease = v.lease AND r.status = 'running'"""
)

# ix_lexigram_durable_runs_leased from its first entry; row locks on what is over. A worker that
# renews or finishes at this very moment has the row locked and is skipped.
REAP = _render(
    f"""
WITH {_CLOCK},
p AS (SELECT CAST(? AS text[]) AS own, CAST(? AS text[]) AS held, CAST(? AS int) AS max_lost,
    CAST(? AS float8) AS ageing, CAST(? AS float8) AS seconds),
steady AS MATERIALIZED (
    SELECT coalesce(bool_or(c.expires_at > {{now}} AND c.first_checkin <= {{now}} - p.seconds / 2),
        true) AS is_steady
    FROM p LEFT JOIN lexigram_durable_checkins c ON c.worker_id = ANY(p.own)),
taken AS MATERIALIZED (
    SELECT r.id, r.group_id, r.step_no, r.retry, r.fence, r.worker_id, r.lease, r.resource_key,
        r.step_started_at, r.begun, false AS shares, 'reaped' AS kind, false AS is_error,
        false AS keeps_lock,
        {shared.REAPED} AS outcome
    FROM lexigram_durable_runs r
    WHERE r.status = 'running' AND r.lease_until <= {{now}} AND (SELECT is_steady FROM steady)
        AND (r.worker_id <> ALL((SELECT own FROM p)::text[])
            OR r.lease <> ALL((SELECT held FROM p)::text[]))
    ORDER BY r.lease_until LIMIT {_BATCH} FOR UPDATE OF r SKIP LOCKED),
held AS MATERIALIZED (
    SELECT h.*, {shared.REAPED_MESSAGE} AS message, {shared.REAPED_META} AS meta FROM taken h),
done AS (
    UPDATE lexigram_durable_runs r SET status = h.outcome, lost = r.lost + 1, lease = NULL,
        lease_until = NULL, worker_id = NULL, wanted = NULL, step_started_at = NULL,
        status_at = {{now}}, available_at = {{now}},
        completed_at = CASE WHEN h.outcome IN ('failed', 'cancelled') THEN {{now}} END,
        message = CASE WHEN h.outcome = 'failed' THEN h.message ELSE r.message END
    FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.step_no, r.fence, r.parent_id, r.parent_step,
        r.events, h.kind, h.step_no AS was_step, h.fence AS was_fence),
life AS ({_LIFE}),
attempts AS ({shared.ATTEMPT}),
{_GATHER},
{_UNLOCK},
{_COUNTDOWN},
gone AS (
    DELETE FROM lexigram_durable_checkins c
    WHERE c.expires_at <= {{now}} AND c.worker_id <> ALL((SELECT own FROM p)::text[])
        AND (SELECT is_steady FROM steady)
    RETURNING c.worker_id)
SELECT h.id * {STEP_FACTOR} + h.step_no AS step_id, h.worker_id, h.outcome,
    CAST((SELECT pg_notify('{CHANNEL}', '')) AS text) AS notified FROM held h
UNION ALL SELECT NULL, worker_id, NULL, NULL FROM gone""",
    max_lost="(SELECT max_lost FROM p)",
    rows="done",
    values=_ENDED,
    first=_PARENTS_TAKEN,
    before=f"{_PARENTS_TAKEN} AND {_LOCKS_TAKEN}",
)

# --- by time ------------------------------------------------------------------------------------

# ix_lexigram_durable_runs_delayed from its first entry; row locks on what is due.
PROMOTE = _render(
    f"""
WITH {_CLOCK} UPDATE lexigram_durable_runs SET status = 'ready'
WHERE id = ANY(ARRAY(SELECT id FROM lexigram_durable_runs
    WHERE status = 'delayed' AND available_at <= {{now}}
    ORDER BY available_at LIMIT 1000 FOR UPDATE SKIP LOCKED))"""
)
# The locks that are held, each with ix_lexigram_durable_runs_keyed: what waits for them leaves
# the claim indexes, so that a long line for one resource costs a claim nothing.
PARK = _render(
    f"""
WITH {_CLOCK} UPDATE lexigram_durable_runs SET status = 'blocked'
WHERE id = ANY(ARRAY(SELECT r.id FROM lexigram_locks l
    JOIN lexigram_durable_runs r ON r.resource_key = l.resource_key AND r.status = 'ready'
    WHERE l.expires_at > {{now}} LIMIT 1000 FOR UPDATE OF r SKIP LOCKED))"""
)
# One step from resource to resource along ix_lexigram_durable_runs_keyed, however long the lines.
UNPARK = _render(
    f"""
WITH RECURSIVE {_CLOCK},
keys AS (
    (SELECT min(resource_key) AS k FROM lexigram_durable_runs
     WHERE resource_key IS NOT NULL AND status = 'blocked')
    UNION ALL
    SELECT (SELECT min(resource_key) FROM lexigram_durable_runs
            WHERE resource_key > keys.k AND status = 'blocked')
    FROM keys WHERE keys.k IS NOT NULL)
UPDATE lexigram_durable_runs SET status = 'ready'
WHERE id IN (SELECT b.id FROM keys CROSS JOIN LATERAL (
    SELECT id FROM lexigram_durable_runs WHERE resource_key = keys.k AND status = 'blocked'
    ORDER BY rank, id LIMIT (
        SELECT CASE WHEN s.resource_shared THEN {_TOGETHER} ELSE 1 END
        FROM (SELECT plan_id, step_no FROM lexigram_durable_runs
            WHERE resource_key = keys.k AND status = 'blocked' ORDER BY rank, id LIMIT 1) f
        JOIN lexigram_durable_plan_steps s USING (plan_id, step_no))
    FOR UPDATE SKIP LOCKED) b
    WHERE keys.k IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lexigram_locks l WHERE l.resource_key = keys.k AND l.expires_at > {{now}})
    AND NOT EXISTS (
        SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = keys.k AND o.status IN ('ready', 'running')))"""
)
NEXT_DUE = _render(
    f"""WITH {_CLOCK} SELECT min(available_at) - {{now}} AS seconds
FROM lexigram_durable_runs WHERE status = 'delayed'"""
)

# --- by hand ------------------------------------------------------------------------------------

# Index (group_id, status), or the primary key; a batch at a time. What is being claimed or
# finished is skipped and looked at again.
_CHANGE = f"""
WITH {_CLOCK},
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE {{whose}} AND {{such}} {{batch}} FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET {{change}} FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was)"""

# A run and all that it made, and they made: ix_lexigram_durable_runs_children.
_TREE = """r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree))"""

_LEFT = """
        WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE {whose} AND {such}"""


def _change(
    such: str, change: str, tail: str, *, batch: str = f"LIMIT {_BATCH}"
) -> tuple[str, str, str, str]:
    """For a group and for a run: the statement, and one that counts the rows left."""

    def one(whose: str) -> tuple[str, str]:
        pieces = {"whose": whose, "such": such, "change": change, "batch": batch}
        return _render(_CHANGE + tail, **pieces), _render(_LEFT, whose=whose, such=such)

    return *one("r.group_id = (SELECT group_id FROM p)"), *one(_TREE)


_NOTIFY_ALL = f"""
SELECT done.*, CAST((SELECT pg_notify('{CHANNEL}', '')) AS text) AS notified FROM done"""
_NOTIFY_WANTED = f"""
SELECT done.*, CAST((SELECT pg_notify('{CHANNEL_WANTED}', '')) AS text) AS notified FROM done"""

CANCEL = _change(
    "r.completed_at IS NULL AND r.wanted IS DISTINCT FROM 'cancel'",
    """status = CASE r.status WHEN 'running' THEN 'running' ELSE 'cancelled' END,
        wanted = CASE r.status WHEN 'running' THEN 'cancel' END,
        completed_at = CASE r.status WHEN 'running' THEN NULL ELSE {now} END,
        message = CASE r.status WHEN 'running' THEN r.message ELSE 'cancelled' END,
        status_at = {now}""",
    f",{_COUNTDOWN}{_NOTIFY_WANTED}",
)
PAUSE = _change(
    "r.completed_at IS NULL AND r.status <> 'paused' AND r.wanted IS NULL",
    """status = CASE r.status WHEN 'running' THEN 'running' ELSE 'paused' END,
        wanted = CASE r.status WHEN 'running' THEN 'pause' END, status_at = {now}""",
    _NOTIFY_WANTED,
)
RESUME = _change(
    "(r.status = 'paused' OR r.wanted = 'pause')",
    """status = CASE WHEN r.status = 'running' THEN 'running'
                  WHEN r.children > 0 THEN 'waiting' WHEN r.parked IS NOT NULL THEN 'parked'
                  WHEN r.available_at > {now} THEN 'delayed' ELSE 'ready' END,
        wanted = NULL, status_at = {now}""",
    _NOTIFY_ALL,
)
_RESET = """status = 'ready', retry = 0, lost = 0, begun = 0, lease = NULL, lease_until = NULL,
        worker_id = NULL, wanted = NULL, step_started_at = NULL, completed_at = NULL,
        available_at = {now}, message = NULL, parked = NULL, status_at = {now}"""
# The group counts up again; what was final is open.
_REOPEN = f""",
{_UNLOCK},
reopened AS (
    UPDATE lexigram_durable_groups g SET remaining = g.remaining + c.n,
        failed = g.failed - c.failed, cancelled = g.cancelled - c.cancelled, completed_at = NULL,
        status = CASE WHEN g.started_at IS NULL THEN 'pending' ELSE 'running' END
    FROM (SELECT group_id, count(*) AS n, count(*) FILTER (WHERE was = 'failed') AS failed,
              count(*) FILTER (WHERE was = 'cancelled') AS cancelled
          FROM done WHERE was IN ('failed', 'cancelled') AND parent_id IS NULL
          GROUP BY group_id) c
    WHERE g.id = c.group_id AND {_LOCKS_TAKEN})
{_NOTIFY_ALL}"""
# All at once: a second pass would take what failed again meanwhile.
# A run that another one made counts only while that one waits for it or gathers it.
_STILL_WANTED = """ AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step))"""
RETRY = _change("r.status IN ('failed', 'cancelled')" + _STILL_WANTED, _RESET, _REOPEN, batch="")
RETRY_HARD = _change("r.status <> 'completed'" + _STILL_WANTED, _RESET, _REOPEN, batch="")
# Row locks on those that made runs of the group, or the run and those that it made: then no other
# statement counts them down. From the highest id down, as every statement that locks several.
_PARENTS = """
SELECT id FROM lexigram_durable_runs WHERE id = ANY(ARRAY(
    SELECT r.parent_id FROM lexigram_durable_runs r WHERE {whose} AND r.parent_id IS NOT NULL))
ORDER BY id DESC FOR UPDATE"""
PARENTS_OF_GROUP = _render(_PARENTS, whose="r.group_id = ?")
PARENTS_OF_RUN = _render("WITH p AS (SELECT CAST(? AS bigint) AS run_id)" + _PARENTS, whose=_TREE)
_IDS: Final = "= ANY(CAST(? AS bigint[]))"
RECOUNT = _render(shared.RECOUNT, ids=_IDS)
SUSPECTS = _render(shared.SUSPECTS, ids=_IDS)
_NUMBERS: Final = "string_agg(CAST(l.handler_no AS text), ',' ORDER BY l.handler_no)"
WAITING_EVENTS = _render(shared.WAITING_EVENTS, numbers=_NUMBERS, whose="true")
WAITING_EVENTS_OF_GROUP = _render(shared.WAITING_EVENTS, numbers=_NUMBERS, whose="e.group_id = ?")
LOCK_RUNS = """
SELECT id FROM lexigram_durable_runs WHERE id = ANY(CAST(? AS bigint[]))
ORDER BY id DESC FOR UPDATE"""

LOCK_GROUP = "SELECT * FROM lexigram_durable_groups WHERE id = ? FOR UPDATE"

# Index (group_id, status); row locks on what is removed. History by its primary key.
FORGET_RUNS = f"""
WITH gone AS (
    DELETE FROM lexigram_durable_runs WHERE id = ANY(ARRAY(
        SELECT r.id FROM lexigram_durable_runs r WHERE r.group_id = ? AND EXISTS (
            SELECT 1 FROM lexigram_durable_groups g
            WHERE g.id = r.group_id AND g.completed_at IS NOT NULL)
        LIMIT {_BATCH} FOR UPDATE OF r SKIP LOCKED))
    RETURNING id),
h AS (DELETE FROM lexigram_durable_history WHERE run_id IN (SELECT id FROM gone))
SELECT count(*) AS n FROM gone"""

# --- events -------------------------------------------------------------------------------------

# ix_lexigram_durable_events_due or …_handlers; row locks on what is taken.
_TAKE_EVENTS = f"""
WITH {_CLOCK} UPDATE lexigram_durable_events
SET lease = ?, lease_until = {{now}} + CAST(? AS float8), tries = tries + 1
WHERE id = ANY(ARRAY(SELECT id FROM lexigram_durable_events
    WHERE delivered_at IS NULL AND audience = '{{audience}}' AND kind = ANY(CAST(? AS text[]))
        AND id <> ALL(CAST(? AS bigint[]))
        AND (lease_until IS NULL OR lease_until <= {{now}})
        AND (lease IS NULL OR CAST(? AS text) IS NULL OR EXISTS (
            SELECT 1 FROM lexigram_durable_checkins
            WHERE worker_id = ? AND expires_at > {{now}}
                AND first_checkin <= {{now}} - CAST(? AS float8)))
    ORDER BY id LIMIT CAST(? AS bigint) FOR UPDATE SKIP LOCKED))
RETURNING *"""
# A literal each: a parameter would not be known to match the partial index of one of them.
TAKE_EVENTS_OF = {of: _render(_TAKE_EVENTS, audience=of) for of in Audience}

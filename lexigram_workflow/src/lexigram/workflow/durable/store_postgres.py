"""Durable runs in PostgreSQL: a claim is one statement, a finish is one statement.

Who waits for whom: claims, reaps, heartbeats and the operator's statements skip rows that others
have locked and so wait for no run. Whoever waits does so in this order: runs from the highest number
to the lowest, which is those that were made before those that made them; then lexigram_locks, the
row of lexigram_lock_fence before them; then groups by their numbers. A finish takes the rows it was
given, the runs that made those, its locks, the groups. A retry takes the runs that made others before
it has anything else. So no two of them wait for each other. The parts of a statement run in no order
by themselves: what must come later counts what must come first.
"""

# ruff: noqa: S608 - statements are put together from pieces of these files only

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.sql.database import Database
from lexigram.sql.leasing import lease_now
from lexigram.sql.locks.statements import WAITING
from lexigram.sql.steps import Steps
from lexigram.workflow.durable import store_statements as shared
from lexigram.workflow.durable.plan import EVENT_BITS, LifeCycleEvent, NewRun, RunPlan
from lexigram.workflow.durable.store import (
    CHANNEL,
    CHANNEL_WANTED,
    Audience,
    Beat,
    Claimed,
    End,
    Ended,
    GroupEvent,
    Reaped,
    Row,
    Selection,
    State,
    Submitted,
    Tended,
    Terms,
    claim_from,
    ended_from,
    ends_json,
    event_from,
    runs_json,
)
from lexigram.workflow.durable.store_base import SqlDurableStore, translated
from lexigram.workflow.durable.views import STEP_FACTOR

_BATCH = 500  # rows that one statement of the operator or the reaper changes
_PLANS = 1_000  # plans whose numbers are kept in memory
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
_LIFE_ENDED: Final = _LIFE.replace("{rows}", "done").replace(
    "{values}",
    f"""
        (1, {EVENT_BITS[LifeCycleEvent.STEP_END]}, 'step_end', d.kind = 'completed', d.was_fence,
            d.was_step, 'completed'),
        (2, {EVENT_BITS[LifeCycleEvent.STEP_FAILED]}, 'step_failed', d.status = 'failed',
            d.was_fence, d.was_step, 'failed'),
        (3, {EVENT_BITS[LifeCycleEvent.ITEM_END]}, 'item_end', d.status = 'completed',
            d.was_fence, d.was_step, 'completed'),
        (4, {EVENT_BITS[LifeCycleEvent.ITEM_FAILED]}, 'item_failed', d.status = 'failed',
            d.was_fence, d.was_step, 'failed'),
        (5, {EVENT_BITS[LifeCycleEvent.STEP_START]}, 'step_start', d.status = 'running', d.fence,
            d.step_no, 'running')""",
)
_LIFE_CLAIMED: Final = _LIFE.replace("{rows}", "claimed").replace(
    "{values}",
    f"""
        (1, {EVENT_BITS[LifeCycleEvent.ITEM_START]}, 'item_start', d.fence = 1, d.fence,
            d.step_no, 'running'),
        (2, {EVENT_BITS[LifeCycleEvent.STEP_START]}, 'step_start', true, d.fence, d.step_no,
            'running')""",
)

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
told AS (
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
# Primary key; waits for whoever takes the expired lock and then leaves it alone.
FORGET_FREED = (
    "DELETE FROM lexigram_locks WHERE resource_key = ANY(CAST(? AS text[])) AND expires_at = 0"
)


# True, when these have been taken.
_PARENTS_TAKEN: Final = "(SELECT count(*) FROM parents) >= 0"
_LOCKS_TAKEN: Final = "(SELECT count(*) FROM unblocked) >= 0"


def _made(text: str, *, first: str = "true", before: str = "true") -> str:
    """``first``: what comes before the locks on resources; ``before``: what before groups."""
    text = text.replace("{first}", first).replace("{before}", before)
    return text.replace("{clock}", _CLOCK).replace("{now}", _NOW)


# --- in -----------------------------------------------------------------------------------------

ADD_STEPS = """
INSERT INTO lexigram_durable_plan_steps
    (plan_id, step_no, name, step_type, pool, retries, backoff, backoff_cap, resource_key,
    resource_shared)
SELECT CAST(? AS bigint), v.* FROM json_to_recordset(CAST(? AS json)) AS v(
    step_no int, name text, step_type text, pool text, retries int, backoff float8, backoff_cap float8,
    resource_key text, resource_shared boolean)
ON CONFLICT DO NOTHING"""

# Locks its own new rows only; a key that somebody inserts just now is waited for, then left out.
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
ORDER BY t.n
ON CONFLICT DO NOTHING RETURNING id, idempotency_key"""
ADD_RUNS = f"""
WITH p AS (SELECT CAST(? AS double precision) AS now, CAST(? AS bigint) AS group_id,
    CAST(? AS bigint) AS plan_id, CAST(? AS int) AS n_steps, CAST(? AS float8) AS ageing,
    CAST(? AS float8) AS gap, CAST(? AS int) AS events, CAST(? AS float8) AS base,
    CAST(? AS bigint) AS parent_id, CAST(? AS int) AS parent_step, CAST(? AS text) AS status),
{_ADDED} {_ADD}"""
# A group of a known plan, without keys, in one statement: nobody can be in the way. No row comes
# back when the plan is not there.
SUBMIT = _made(
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
SELECT a.id, g.id AS group_id, CAST((SELECT pg_notify('{CHANNEL}', '')) AS text) AS told
FROM added a CROSS JOIN g ORDER BY a.id"""
)

KNOWN_RUNS = """
SELECT id, group_id, idempotency_key FROM lexigram_durable_runs
WHERE idempotency_key = ANY(CAST(? AS text[]))"""

# --- out ----------------------------------------------------------------------------------------

# {which} decides the index: ix_lexigram_durable_runs_ready for given types, …_ready_all for all
# but some; both are read from their first entry. Row locks on the candidates; rows another claim
# has locked are skipped, so two claims never get one row. A resource is taken by the insert into
# lexigram_locks, whose primary key lets one of two claims win. The first run in line gets it, and
# with it those behind it as long as all of them share. While somebody else waits for the lock, none
# gets it: workers that follow each other at once would never let him in. A group that somebody has locked
# is not waited for: whoever ends a run of it marks its start.
_CLAIM_TEXT: Final = """
WITH {clock},
p AS (SELECT CAST(? AS text) AS worker, CAST(? AS text) AS lease, CAST(? AS float8) AS seconds),
cand AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.group_id, r.rank,
        CASE WHEN r.resource_key IS NOT NULL THEN (
            SELECT s.resource_shared FROM lexigram_durable_plan_steps s
            WHERE s.plan_id = r.plan_id AND s.step_no = r.step_no) END AS shares
    FROM lexigram_durable_runs r
    WHERE r.status = 'ready' AND {which}
        AND (r.resource_key IS NULL OR (
            NOT EXISTS (SELECT 1 FROM lexigram_locks l
                WHERE l.resource_key IN (r.resource_key, '{waiting}' || r.resource_key)
                    AND l.expires_at > {now})
            AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
                WHERE o.resource_key = r.resource_key AND o.status = 'running')))
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
    RETURNING r.id, r.group_id, r.plan_id, r.step_no, r.step_type, r.retry, r.fence, r.priority,
        r.rank, r.resource_key, r.lease, r.doc_id, r.batch_id, r.tenant, r.params,
        r.children_failed, r.answer, r.parent_id, r.events),
begun AS (
    UPDATE lexigram_durable_groups SET status = 'running', started_at = {now}
    WHERE id IN (SELECT id FROM lexigram_durable_groups
        WHERE status = 'pending' AND id IN (SELECT group_id FROM claimed) FOR UPDATE SKIP LOCKED)
    RETURNING id, events),
told AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', {now}, a.name FROM begun d {audiences}
    ON CONFLICT DO NOTHING),
life AS ({life})
SELECT c.*, g.fence AS lock_fence, x.lost_races
FROM (SELECT (SELECT count(*) FROM keyed) - (SELECT count(*) FROM taken) AS lost_races) x
LEFT JOIN claimed c ON true LEFT JOIN granted g ON g.id = c.id
ORDER BY c.rank, c.id"""
_CLAIM: Final = (
    _CLAIM_TEXT.replace("{waiting}", WAITING)
    .replace("{audiences}", _AUDIENCES[LifeCycleEvent.GROUP_START])
    .replace("{life}", _LIFE_CLAIMED)
)
CLAIM_TYPE = _made(_CLAIM.replace("{which}", "r.step_type = CAST(? AS text)"))
CLAIM_TYPES = _made(_CLAIM.replace("{which}", "r.step_type = ANY(CAST(? AS text[]))"))
CLAIM_OTHERS = _made(_CLAIM.replace("{which}", "r.step_type <> ALL(CAST(? AS text[]))"))
# Of one batch: the same indexes, and rows of other batches are passed over.
CLAIM_BATCH = _made(
    _CLAIM.replace(
        "{which}",
        "(r.step_type = ANY(CAST(? AS text[]))) <> CAST(? AS boolean) AND r.batch_id = ?",
    )
)

_TEXTS: Final = "v.message AS message, v.meta AS meta, "
# Primary keys of runs and plan steps; row locks on the runs. The lease in the join is the gate:
# what the holder of a lost lease says finds no row, and no other part of the statement acts.
_FINISH = f"""
WITH {_CLOCK},
p AS (SELECT CAST(? AS float8) AS seconds, CAST(? AS float8) AS ageing),
v AS (SELECT * FROM json_to_recordset(CAST(? AS json)) AS v(
    run_id bigint, step_no int, lease text, kind text, message text, meta text, jitter float8,
    sticky boolean, fatal boolean, next_no int, children int)),
{{ahead}}
held AS MATERIALIZED (
    SELECT t.*, t.outcome = 'running' AND t.next_key IS NOT NULL AS keeps_lock
    FROM ({shared.HELD.replace("{ends}", "v").replace("{texts}", _TEXTS)}
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
                OR EXISTS (SELECT 1 FROM unblocked) OR EXISTS (SELECT 1 FROM told) {{news}}
           THEN CAST(pg_notify('{CHANNEL}', '') AS text) END AS told)
SELECT done.*, news.told, ARRAY(SELECT resource_key FROM leaving WHERE expires_at = 0) AS freed
FROM done CROSS JOIN news""".replace("{ageing}", "(SELECT ageing FROM p)").replace(
    "{lease}", "(SELECT seconds FROM p)"
)
# The runs of the ends and those that made them, in one line: one may be in both. Who only goes on
# to its next step leaves the run that made it alone. What a cancel changes after this look is locked
# later, by ``parents``.
_AHEAD: Final = """
family AS MATERIALIZED (
    SELECT id FROM lexigram_durable_runs WHERE id = ANY(ARRAY(
        SELECT u.id FROM v JOIN lexigram_durable_runs r ON r.id = v.run_id AND r.lease = v.lease
        CROSS JOIN LATERAL (VALUES (r.id), (CASE WHEN v.kind <> 'completed'
            OR r.step_no = r.n_steps OR r.wanted IS NOT NULL THEN r.parent_id END)) AS u(id)
        WHERE u.id IS NOT NULL))
    ORDER BY id DESC FOR UPDATE),"""
FINISH = _made(
    _FINISH.replace("{more}", f"life AS ({_LIFE_ENDED}),{_GATHER},")
    .replace("{news}", "OR EXISTS (SELECT 1 FROM gathered WHERE status = 'ready')")
    .replace("{ahead}", _AHEAD)
    .replace("{where}", "WHERE (SELECT count(*) FROM family) >= 0"),
    first=_PARENTS_TAKEN,
    before=f"{_PARENTS_TAKEN} AND {_LOCKS_TAKEN}",
)
# For runs that no other run made and whose plans have no handlers: almost all of them. Without the
# parts that would find nothing to do a lone finish takes 0.84 ms instead of 0.88 (the tenth
# percentile of 700, interleaved, on a busy machine).
FINISH_PLAIN = _made(
    _FINISH.replace("{more}", "")
    .replace("{news}", "")
    .replace("{ahead}", "")
    .replace("{where}", ""),
    before=_LOCKS_TAKEN,
)

# Primary keys. Rows somebody has locked are being finished or cancelled: they are not waited for,
# and the last part, which reads without locks, says what they were before.
HEARTBEAT = _made(
    f"""
WITH {_CLOCK},
p AS (SELECT CAST(? AS text) AS worker, CAST(? AS float8) AS seconds),
v AS (SELECT * FROM unnest(CAST(? AS bigint[]), CAST(? AS text[])) AS v(run_id, lease)),
seen AS (
    INSERT INTO lexigram_durable_checkins AS c (worker_id, first_checkin, last_checkin, expires_at)
    SELECT worker, {{now}}, {{now}}, {{now}} + seconds FROM p
    ON CONFLICT (worker_id) DO UPDATE
    SET last_checkin = excluded.last_checkin, expires_at = excluded.expires_at),
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
REAP = _made(
    f"""
WITH {_CLOCK},
p AS (SELECT CAST(? AS text[]) AS own, CAST(? AS text[]) AS held, CAST(? AS int) AS max_lost,
    CAST(? AS float8) AS ageing),
held AS MATERIALIZED (
    SELECT r.id, r.group_id, r.step_no, r.retry, r.fence, r.worker_id, r.lease, r.resource_key,
        r.step_started_at, false AS shares, 'reaped' AS kind, false AS is_error, false AS keeps_lock,
        'reset by dead-worker reaper' AS message, CAST(NULL AS text) AS meta,
        {shared.REAPED.replace("{max_lost}", "(SELECT max_lost FROM p)")} AS outcome
    FROM lexigram_durable_runs r
    WHERE r.status = 'running' AND r.lease_until <= {{now}}
        AND (r.worker_id <> ALL((SELECT own FROM p)::text[])
            OR r.lease <> ALL((SELECT held FROM p)::text[]))
    ORDER BY r.lease_until LIMIT {_BATCH} FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = h.outcome, lost = r.lost + 1, lease = NULL,
        lease_until = NULL, worker_id = NULL, wanted = NULL, step_started_at = NULL,
        status_at = {{now}}, available_at = {{now}},
        completed_at = CASE WHEN h.outcome IN ('failed', 'cancelled') THEN {{now}} END,
        message = CASE WHEN h.outcome = 'failed'
            THEN 'its workers died or were cut off ' || (r.lost + 1) || ' times'
            ELSE r.message END
    FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.step_no, r.fence, r.parent_id, r.parent_step,
        r.events, h.kind, h.step_no AS was_step, h.fence AS was_fence),
life AS ({_LIFE_ENDED}),
attempts AS ({shared.ATTEMPT}),
{_GATHER},
{_UNLOCK},
{_COUNTDOWN},
gone AS (
    DELETE FROM lexigram_durable_checkins c
    WHERE c.expires_at <= {{now}} AND c.worker_id <> ALL((SELECT own FROM p)::text[])
    RETURNING c.worker_id)
SELECT h.id * {STEP_FACTOR} + h.step_no AS step_id, h.worker_id,
    CAST((SELECT pg_notify('{CHANNEL}', '')) AS text) AS told FROM held h
UNION ALL SELECT NULL, worker_id, NULL FROM gone""",
    first=_PARENTS_TAKEN,
    before=f"{_PARENTS_TAKEN} AND {_LOCKS_TAKEN}",
)

# --- by time ------------------------------------------------------------------------------------

# ix_lexigram_durable_runs_delayed from its first entry; row locks on what is due.
PROMOTE = _made(
    f"""
WITH {_CLOCK} UPDATE lexigram_durable_runs SET status = 'ready'
WHERE id = ANY(ARRAY(SELECT id FROM lexigram_durable_runs
    WHERE status = 'delayed' AND available_at <= {{now}}
    ORDER BY available_at LIMIT 1000 FOR UPDATE SKIP LOCKED))"""
)
# The locks that are held, each with ix_lexigram_durable_runs_keyed: what waits for them leaves
# the claim indexes, so that a long line for one resource costs a claim nothing.
PARK = _made(
    f"""
WITH {_CLOCK} UPDATE lexigram_durable_runs SET status = 'blocked'
WHERE id = ANY(ARRAY(SELECT r.id FROM lexigram_locks l
    JOIN lexigram_durable_runs r ON r.resource_key = l.resource_key AND r.status = 'ready'
    WHERE l.expires_at > {{now}} LIMIT 1000 FOR UPDATE OF r SKIP LOCKED))"""
)
# One step from resource to resource along ix_lexigram_durable_runs_keyed, however long the lines.
UNPARK = _made(
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
NEXT_DUE = _made(
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


def _change(
    such: str, change: str, tail: str, *, batch: str = f"LIMIT {_BATCH}"
) -> tuple[str, str, str, str]:
    """For a group and for a run: the statement, and the question whether rows are left."""

    def one(whose: str) -> tuple[str, str]:
        text = _CHANGE.replace("{such}", such).replace("{change}", change)
        text = text.replace("{batch}", batch)
        left = f"""
        WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE {whose} AND {such}"""
        return _made(text.replace("{whose}", whose) + tail), left

    return *one("r.group_id = (SELECT group_id FROM p)"), *one(_TREE)


_TOLD_ALL = f"""
SELECT done.*, CAST((SELECT pg_notify('{CHANNEL}', '')) AS text) AS told FROM done"""
_TOLD_WANTED = f"""
SELECT done.*, CAST((SELECT pg_notify('{CHANNEL_WANTED}', '')) AS text) AS told FROM done"""

CANCEL = _change(
    "r.completed_at IS NULL AND r.wanted IS DISTINCT FROM 'cancel'",
    """status = CASE r.status WHEN 'running' THEN 'running' ELSE 'cancelled' END,
        wanted = CASE r.status WHEN 'running' THEN 'cancel' END,
        completed_at = CASE r.status WHEN 'running' THEN NULL ELSE {now} END,
        message = CASE r.status WHEN 'running' THEN r.message ELSE 'cancelled' END,
        status_at = {now}""",
    f",{_COUNTDOWN}{_TOLD_WANTED}",
)
PAUSE = _change(
    "r.completed_at IS NULL AND r.status <> 'paused' AND r.wanted IS NULL",
    """status = CASE r.status WHEN 'running' THEN 'running' ELSE 'paused' END,
        wanted = CASE r.status WHEN 'running' THEN 'pause' END, status_at = {now}""",
    _TOLD_WANTED,
)
RESUME = _change(
    "(r.status = 'paused' OR r.wanted = 'pause')",
    """status = CASE WHEN r.status = 'running' THEN 'running'
                  WHEN r.children > 0 THEN 'waiting' WHEN r.parked IS NOT NULL THEN 'parked'
                  WHEN r.available_at > {now} THEN 'delayed' ELSE 'ready' END,
        wanted = NULL, status_at = {now}""",
    _TOLD_ALL,
)
_RESET = """status = 'ready', retry = 0, lost = 0, lease = NULL, lease_until = NULL,
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
{_TOLD_ALL}"""
# All at once: a second pass would take what failed again meanwhile.
# A run that another one made counts only while that one waits for it or gathers it.
_STILL_WANTED = """ AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step))"""
RETRY = _change("r.status IN ('failed', 'cancelled')" + _STILL_WANTED, _RESET, _REOPEN, batch="")
RETRY_HARD = _change("r.status <> 'completed'" + _STILL_WANTED, _RESET, _REOPEN, batch="")
# Row locks on those that made runs of the group, or the run and those that it made: then nobody
# counts them down. From the highest number down, as everybody who waits for several.
_PARENTS = """
SELECT id FROM lexigram_durable_runs WHERE id = ANY(ARRAY(
    SELECT r.parent_id FROM lexigram_durable_runs r WHERE {whose} AND r.parent_id IS NOT NULL))
ORDER BY id DESC FOR UPDATE"""
PARENTS_OF_GROUP = _PARENTS.replace("{whose}", "r.group_id = ?")
PARENTS_OF_RUN = "WITH p AS (SELECT CAST(? AS bigint) AS run_id)" + _PARENTS.replace(
    "{whose}", _TREE
)
RECOUNT = shared.RECOUNT.replace("{ids}", "= ANY(CAST(? AS bigint[]))")
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
TAKE_EVENTS = _made(
    f"""
WITH {_CLOCK} UPDATE lexigram_durable_events
SET lease = ?, lease_until = {{now}} + CAST(? AS float8), tries = tries + 1
WHERE id = ANY(ARRAY(SELECT id FROM lexigram_durable_events
    WHERE delivered_at IS NULL AND audience = '{{audience}}' AND kind = ANY(CAST(? AS text[]))
        AND (lease_until IS NULL OR lease_until <= {{now}})
    ORDER BY id LIMIT CAST(? AS bigint) FOR UPDATE SKIP LOCKED))
RETURNING *"""
)
# A literal each: a parameter would not be known to match the partial index of one of them.
TAKE_EVENTS_OF = {of: TAKE_EVENTS.replace("{audience}", of) for of in Audience}


class PostgresDurableStore(SqlDurableStore):
    """Implements ``DurableStore``; its clock is the server's."""

    ADD_STEPS = ADD_STEPS
    ADD_RUNS = ADD_RUNS
    KNOWN_RUNS = KNOWN_RUNS
    LOCK_GROUP = LOCK_GROUP
    LOCK_RUNS = LOCK_RUNS
    RECOUNT = RECOUNT
    SUSPECTS = shared.SUSPECTS.replace("{ids}", "= ANY(CAST(? AS bigint[]))")

    def __init__(self, database: Database, terms: Terms) -> None:
        super().__init__(database, terms)
        # digests; what stands here may be from a transaction that was rolled back
        self._plans: dict[str, int] = {}

    async def submit(
        self, plan: RunPlan, runs: Sequence[NewRun], name: str | None, key: str | None
    ) -> Submitted:
        """One transaction; of one statement when the plan is known and nothing has a key."""
        digest = plan.digest
        plan_id = self._plans.get(digest)
        if plan_id is not None and key is None and all(r.idempotency_key is None for r in runs):
            known = plan_id
            answer = await self._steps(lambda: self._submit_known(plan, known, runs, name))
            if answer is not None:
                return answer
            self._plans.pop(digest, None)
        return await super().submit(plan, runs, name, key)

    def _submit_known(
        self, plan: RunPlan, plan_id: int, runs: Sequence[NewRun], name: str | None
    ) -> Steps[Submitted | None]:
        batches = {run.batch_id for run in runs}
        batch_id = batches.pop() if len(batches) == 1 else None
        group = (name, plan.workflow_id, plan.param_id, batch_id, plan.events, len(runs), plan_id)
        terms = (len(plan.steps), self._terms.ageing, self._terms.tenant_gap)
        rows = (yield SUBMIT, (*group, *terms, runs_json(runs))).rows
        if not rows:
            return None
        return Submitted(group_id=rows[0]["group_id"], runs=[row["id"] for row in rows])

    def _plan_id(self, plan: RunPlan, now: float) -> Steps[int]:
        plan_id = yield from super()._plan_id(plan, now)
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        self._plans[plan.digest] = plan_id
        return plan_id

    async def claim(self, worker_id: str, lease: str, selection: Selection, limit: int) -> Claimed:
        which: Any = list(selection.types)
        if selection.batch_id is not None:
            batch = (which, selection.excluded, selection.batch_id)
            return await self._claimed(
                CLAIM_BATCH, (worker_id, lease, self._terms.lease, *batch, limit)
            )
        if selection.excluded:
            statement = CLAIM_OTHERS
        elif len(selection.types) == 1:
            statement, which = CLAIM_TYPE, selection.types[0]
        else:
            statement = CLAIM_TYPES
        return await self._claimed(statement, (worker_id, lease, self._terms.lease, which, limit))

    async def _claimed(self, statement: str, params: Sequence[Any]) -> Claimed:
        rows = (await self._execute(statement, params)).rows
        lost = rows[0]["lost_races"] if rows else 0
        claims = [claim_from(row) for row in rows if row["id"] is not None]
        return Claimed(claims=claims, lost_races=lost)

    async def finish(self, ends: Sequence[End]) -> Sequence[Ended | None]:
        if any(end.spawns for end in ends):
            return [await self._finish_alone(end) for end in ends]
        statement = FINISH_PLAIN if all(end.is_plain for end in ends) else FINISH
        found = await self._execute(statement, self._finish_params(ends))
        if found.rows and found.rows[0]["freed"]:
            await self._execute(FORGET_FREED, (found.rows[0]["freed"],))
        done = {row["id"]: row for row in found.rows}
        return [ended_from(done[end.run_id]) if end.run_id in done else None for end in ends]

    def _finish_params(self, ends: Sequence[End]) -> Sequence[Any]:
        return self._terms.lease, self._terms.ageing, ends_json(ends)

    def _finished(self, end: End, now: float) -> Steps[Row | None]:
        return (yield FINISH, self._finish_params([end])).first()

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, str]]) -> Sequence[Beat]:
        ids, leases = [run for run, _ in held], [lease for _, lease in held]
        found = await self._execute(HEARTBEAT, (worker_id, self._terms.lease, ids, leases))
        return [Beat(**row) for row in found.rows]

    async def reap(self, own: Sequence[str], held: Sequence[str] | None = None) -> Reaped:
        leases = None if held is None else list(held)
        params = (list(own), leases, self._terms.max_lost, self._terms.ageing)
        rows = (await self._execute(REAP, params)).rows
        return Reaped(
            workers=sorted({row["worker_id"] for row in rows}),
            steps=sorted(row["step_id"] for row in rows if row["step_id"] is not None),
        )

    async def tend(self) -> Tended:
        promoted = (await self._execute(PROMOTE, ())).row_count
        await self._execute(PARK, ())
        promoted += (await self._execute(UNPARK, ())).row_count
        due = await self._execute(NEXT_DUE, ())
        if promoted:
            await self._tell(CHANNEL)
        return Tended(promoted=promoted, next_due=due.rows[0]["seconds"])

    async def cancel(self, *, group_id: int | None, run_id: int | None) -> int:
        """A batch at a time; then those that made cancelled runs are counted, one by one.

        Within the batch they would be waited for, by two cancels that have each other's.
        """
        parents: set[int] = set()
        changed = await self._change(CANCEL, group_id, run_id, parents)
        for parent in sorted(parents):
            await self._steps(lambda one=parent: self._counted_anew(one))  # type: ignore[misc]
        if parents:
            await self._tell(CHANNEL)
        return changed

    def _counted_anew(self, run_id: int) -> Steps[None]:
        yield LOCK_RUNS, ([run_id],)
        yield RECOUNT, ([run_id],)

    async def pause(self, *, group_id: int | None, run_id: int | None) -> int:
        return await self._change(PAUSE, group_id, run_id)

    async def resume(self, *, group_id: int | None, run_id: int | None) -> int:
        return await self._change(RESUME, group_id, run_id)

    async def retry(self, *, group_id: int | None, run_id: int | None, hard: bool) -> int:
        """One transaction."""
        of_group = group_id is not None
        statement = (RETRY_HARD if hard else RETRY)[0 if of_group else 2]
        parents = PARENTS_OF_GROUP if of_group else PARENTS_OF_RUN

        def steps() -> Steps[tuple[int, set[int]]]:
            locked = (yield parents, (group_id if of_group else run_id,)).rows
            rows = (yield statement, (group_id, run_id)).rows
            ours = {row["id"] for row in (*locked, *rows)}
            made = {row["parent_id"] for row in rows if row["parent_id"] is not None}
            made |= {row["id"] for row in rows if row["fan"] is not None}
            if made & ours:
                yield RECOUNT, (sorted(made & ours),)
            return len(rows), made - ours

        changed, others = await self._steps(steps)
        # Those that began to make runs meanwhile: not waited for while anything is held.
        for parent in sorted(others):
            await self._steps(lambda one=parent: self._counted_anew(one))  # type: ignore[misc]
        return changed

    async def _change(
        self,
        statements: tuple[str, str, str, str],
        group_id: int | None,
        run_id: int | None,
        parents: set[int] | None = None,
    ) -> int:
        change, left = statements[:2] if group_id is not None else statements[2:]
        changed = 0
        while True:
            rows = (await self._execute(change, (group_id, run_id))).rows
            changed += len(rows)
            if parents is not None:
                made = (row for row in rows if row["status"] == State.CANCELLED)
                parents.update(row["parent_id"] for row in made if row["parent_id"] is not None)
            found = await self._execute(left, (group_id, run_id))
            if not found.rows[0]["n"]:
                return changed
            await anyio.sleep(0.005)  # somebody has the rest locked, for a moment

    async def prune(self, older_than: float, limit: int) -> int:
        now = await self._steps(lambda: lease_now("postgresql"))
        removed = 0
        old = await self._execute(shared.OLD_GROUPS, (now - older_than, limit))
        for group_id in [row["id"] for row in old.rows]:
            while gone := (await self._execute(FORGET_RUNS, (group_id,))).rows[0]["n"]:
                removed += gone
            await self._steps(lambda one=group_id: self._forget_group(one))  # type: ignore[misc]
        return removed

    async def take_events(
        self,
        lease: str,
        seconds: float,
        limit: int,
        kinds: Sequence[LifeCycleEvent],
        audience: Audience,
    ) -> Sequence[GroupEvent]:
        params = (lease, seconds, [str(kind) for kind in kinds], limit)
        rows = (await self._execute(TAKE_EVENTS_OF[audience], params)).rows
        return sorted((event_from(row) for row in rows), key=lambda event: event.id)

    async def _execute(self, statement: str, params: Sequence[Any]) -> QueryResult:
        return await translated(lambda: self._db.execute(statement, params))

    def _list(self, values: Sequence[Any]) -> Any:
        return list(values)

"""Every statement of the job store, for SQLite and PostgreSQL.

One text serves both where it can. The pieces that differ stand at the top:

- ``clock``: the time. PostgreSQL asks its server's clock, once per statement; SQLite gets it.
  Both take one parameter, the first one; it is None on PostgreSQL.
- ``picked`` … ``unpicked``: rows chosen by a subquery. PostgreSQL locks them and skips those that
  others have locked; as an array the subquery runs once, and the planner takes the primary key
  however many rows it expects. SQLite holds the file's write lock (BEGIN IMMEDIATE) anyway.
- ``listed``: membership in a list that is one parameter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from attrs import frozen

# What a caller may see of a job.
_SEEN = """
seq, id, name, queue, priority, payload, max_retries, max_deliveries, timeout, result_ttl,
unique_key, idempotency_key, depends_on, on_dependency_failure, correlation_id, causation_id,
state, scheduled_at, available_at, created_at, started_at, completed_at, retry_count, lost_count,
error, reason, notes, cancel_requested, lease, fence"""

# The result, as long as it is kept.
_FRESH = "CASE WHEN result_until > {now} THEN result END AS result"
# Filters that may be absent: queue, name, whether attempts failed; each given twice.
_SUCH = """
    AND (CAST(? AS text) IS NULL OR queue = CAST(? AS text))
    AND (CAST(? AS text) IS NULL OR name = CAST(? AS text))
    AND (CAST(? AS boolean) IS NULL OR (retry_count > 0) = CAST(? AS boolean))"""
# Notifications of new and of ended jobs.
_ENDED = "seq, id, name, queue, state, reason, retry_count, is_awaited"

# NOTIFY as part of a statement, once however many rows it has, and only when it has any.
_NOTIFY_WORK = "CAST((SELECT pg_notify('lexigram_jobs_work', '')) AS text) AS notified"
_NOTIFY_DONE = "CAST((SELECT pg_notify('lexigram_jobs_done', '')) AS text) AS notified"

# The first half of a claim.
_TAKE = """UPDATE lexigram_jobs SET state = 'running', lease = ?, lease_until = {now} + ?,
    fence = fence + 1, started_at = {now}
WHERE seq {picked}SELECT seq FROM lexigram_jobs"""

_UNFINISHED = "('ready', 'delayed', 'waiting', 'running')"

_NEW_COLUMNS = """
id, name, queue, priority, payload, max_retries, max_deliveries, timeout, result_ttl,
unique_key, idempotency_key, depends_on, on_dependency_failure, correlation_id, causation_id,
state, scheduled_at, available_at, created_at, completed_at, reason, waits, error, notes"""


@frozen(kw_only=True)
class Dialect:
    """The pieces that differ."""

    clock: str
    picked: str
    unpicked: str
    listed: str
    new_rows: str
    ended_rows: str
    for_update: str

    positions: str

    @lru_cache(maxsize=64)  # noqa: B019 - two dialects, and they live for ever
    def made(self, text: str) -> str:
        """A statement of this dialect."""
        pieces = {
            "insert": _INSERT,
            "finish": _FINISH,
            "take": _TAKE,
            "notify_work": _NOTIFY_WORK,
            "notify_done": _NOTIFY_DONE,
            "fresh": _FRESH,
            "such": _SUCH,
            "clock": self.clock,
            "picked": self.picked,
            "unpicked": self.unpicked,
            "listed": self.listed,
            "new_rows": self.new_rows,
            "ended_rows": self.ended_rows,
            "for_update": self.for_update,
            "positions": self.positions,
            "seen": _SEEN,
            "ended": _ENDED,
            "unfinished": _UNFINISHED,
            "new_columns": _NEW_COLUMNS,
            "now": "(SELECT now FROM clock)",  # last: other pieces have it inside
        }
        for name, piece in pieces.items():
            text = text.replace("{" + name + "}", piece)
        return text


POSTGRES: Final = Dialect(
    clock="""clock AS MATERIALIZED (
    SELECT coalesce(CAST(? AS double precision),
                    CAST(extract(epoch FROM clock_timestamp()) AS double precision)) AS now)""",
    picked="= ANY(ARRAY(",
    unpicked=" FOR UPDATE SKIP LOCKED))",
    listed="= ANY(CAST(? AS text[]))",
    new_rows="""json_to_recordset(CAST(? AS json)) AS v(
    n int, id text, name text, queue text, priority int, payload text, max_retries int,
    max_deliveries int, timeout float8, result_ttl float8, unique_key text, idempotency_key text,
    depends_on text, on_dependency_failure text, correlation_id text, causation_id text,
    state text, scheduled_at float8, delay float8, reason text, waits int, error text,
    notes text)""",
    ended_rows="""json_to_recordset(CAST(? AS json)) AS v(
    position bigint, holder text, claim int, next text, failed int, settled boolean, delay float8,
    value text, ttl float8, message text, why text)""",
    for_update="FOR UPDATE",
    positions="= ANY(CAST(? AS bigint[]))",
)

_SQLITE_NEW = (
    *("n", "id", "name", "queue", "priority", "payload", "max_retries", "max_deliveries"),
    *("timeout", "result_ttl", "unique_key", "idempotency_key", "depends_on"),
    *("on_dependency_failure", "correlation_id", "causation_id", "state", "scheduled_at"),
    *("delay", "reason", "waits", "error", "notes"),
)
_SQLITE_ENDED = (
    *("position", "holder", "claim", "next", "failed", "settled", "delay"),
    *("value", "ttl", "message", "why"),
)


def _from_json(columns: tuple[str, ...]) -> str:
    picked = ", ".join(f"value ->> '{name}' AS {name}" for name in columns)
    return f"(SELECT {picked} FROM json_each(?)) AS v"  # noqa: S608 - names from above


SQLITE: Final = Dialect(
    clock="clock AS MATERIALIZED (SELECT ? AS now)",
    picked="IN (",
    unpicked=")",
    listed="IN (SELECT value FROM json_each(?))",
    new_rows=_from_json(_SQLITE_NEW),
    ended_rows=_from_json(_SQLITE_ENDED),
    for_update="",
    positions="IN (SELECT value FROM json_each(?))",
)

# --- in -----------------------------------------------------------------------------------------

# Takes no lock but on its own new rows. A taken id or key leaves the row out; who is in the way
# is asked afterwards. Waits for a transaction that inserts the same key. Sorted, so that the
# order of the batch is the order of arrival.
_INSERT = """
INSERT INTO lexigram_jobs ({new_columns})
SELECT v.id, v.name, v.queue, v.priority, v.payload, v.max_retries, v.max_deliveries, v.timeout,
    v.result_ttl, v.unique_key, v.idempotency_key, v.depends_on, v.on_dependency_failure,
    v.correlation_id, v.causation_id,
    CASE WHEN v.state IS NOT NULL THEN v.state
         WHEN v.delay > 0 OR v.scheduled_at > {now} THEN 'delayed' ELSE 'ready' END,
    CASE WHEN v.delay > 0 THEN {now} + v.delay ELSE v.scheduled_at END,
    CASE WHEN v.scheduled_at > {now} THEN v.scheduled_at ELSE {now} END + v.delay,
    {now}, CASE WHEN v.state IN ('failed', 'cancelled') THEN {now} END,
    v.reason, v.waits, v.error, v.notes
FROM {new_rows} WHERE true ORDER BY v.n
ON CONFLICT DO NOTHING RETURNING id"""
INSERT_POSTGRES = "WITH {clock}, made AS ({insert}) SELECT id, {notify_work} FROM made"
INSERT_SQLITE = "WITH {clock} {insert}"

# Unique indexes of id, idempotency_key, unique_key; no lock. Only after a conflict.
CONFLICTS = """
SELECT id, unique_key, idempotency_key, state IN {unfinished} AS unfinished
FROM lexigram_jobs
WHERE id {listed} OR (idempotency_key IS NOT NULL AND idempotency_key {listed})
   OR (unique_key IS NOT NULL AND unique_key {listed} AND state IN {unfinished})"""

# Index of id; row locks in the order of arrival, so that two such statements never wait for each
# other. A transaction that ends one of these jobs meanwhile waits, and then sees the edge.
NEEDED = "SELECT id, state FROM lexigram_jobs WHERE id {listed} ORDER BY seq {for_update}"

# Primary key of the edges.
ADD_EDGE = "INSERT INTO lexigram_job_edges (depends_on, job_id) VALUES (?, ?)"

# Index of id; the rows are locked already.
AWAIT = "UPDATE lexigram_jobs SET is_awaited = true WHERE id {listed}"

# --- out ----------------------------------------------------------------------------------------

# ix_lexigram_jobs_ready from its first entry, so the cost is that of the rows taken. Row locks on
# these; rows another claim has locked are skipped, so two claims never get one row.
CLAIM = """WITH {clock} {take}
WHERE state = 'ready' AND queue = ? ORDER BY priority DESC, available_at, seq LIMIT ?{unpicked}
RETURNING {seen}"""
# The same on ix_lexigram_jobs_ready_all.
CLAIM_ANY = """WITH {clock} {take}
WHERE state = 'ready' ORDER BY priority DESC, available_at, seq LIMIT ?{unpicked}
RETURNING {seen}"""

# Primary key; row locks. Answers for the leases that are still the holder's.
EXTEND = """WITH {clock} UPDATE lexigram_jobs SET lease_until = {now} + ?
WHERE seq {positions} AND lease = ? AND state = 'running'
RETURNING seq, fence, cancel_requested"""

# Primary key; row locks. Lease and fence in the WHERE: what the holder of a lost lease reports
# finds no row. Rows that other jobs wait for are left out unless asked for: they need the steps below
# in the same transaction, all others end in one statement.
_FINISH = """UPDATE lexigram_jobs AS j SET
    state = CASE WHEN j.cancel_requested AND v.next IN ('ready', 'delayed')
                 THEN 'cancelled' ELSE v.next END,
    reason = CASE WHEN j.cancel_requested AND v.next IN ('ready', 'delayed') THEN 'asked'
                  WHEN v.settled THEN v.why ELSE j.reason END,
    error = CASE WHEN v.settled THEN v.message ELSE j.error END,
    retry_count = j.retry_count + v.failed,
    available_at = CASE WHEN v.next IN ('ready', 'delayed') THEN {now} + v.delay
                        ELSE j.available_at END,
    completed_at = CASE WHEN j.cancel_requested OR v.next NOT IN ('ready', 'delayed')
                        THEN {now} END,
    result = v.value, result_until = CASE WHEN v.value IS NOT NULL THEN {now} + v.ttl END,
    lease = NULL, lease_until = NULL
FROM {ended_rows}
WHERE j.seq = v.position AND j.lease = v.holder AND j.fence = v.claim AND j.state = 'running'
    AND (NOT j.is_awaited OR CAST(? AS boolean))
RETURNING {ended}"""
FINISH_POSTGRES = "WITH {clock}, done AS ({finish}) SELECT {ended}, {notify_done} FROM done"
FINISH_SQLITE = "WITH {clock} {finish}"

# --- those who wait -----------------------------------------------------------------------------

# Primary key of the edges, then index of id; row locks.
LET_GO = """WITH {clock} UPDATE lexigram_jobs SET waits = waits - 1,
    state = CASE WHEN waits > 1 THEN 'waiting' WHEN available_at > {now} THEN 'delayed'
                 ELSE 'ready' END
WHERE state = 'waiting'
    AND id IN (SELECT job_id FROM lexigram_job_edges WHERE depends_on = ?)
    AND (CAST(? AS boolean) OR on_dependency_failure = 'run')"""
# The same rows, the other policy.
CANCEL_WAITING = """WITH {clock} UPDATE lexigram_jobs SET state = 'cancelled',
    reason = 'dependency', completed_at = {now}
WHERE state = 'waiting'
    AND id IN (SELECT job_id FROM lexigram_job_edges WHERE depends_on = ?)
    AND on_dependency_failure = 'cancel'
RETURNING {ended}"""
# Primary key of the edges.
CUT_EDGES = "DELETE FROM lexigram_job_edges WHERE depends_on = ?"

# --- by time ------------------------------------------------------------------------------------

# ix_lexigram_jobs_delayed from its first entry; row locks on what is due.
PROMOTE = """WITH {clock} UPDATE lexigram_jobs SET state = 'ready'
WHERE seq {picked}SELECT seq FROM lexigram_jobs WHERE state = 'delayed' AND available_at <= {now}
    ORDER BY available_at LIMIT 1000{unpicked}
RETURNING seq"""
# ix_lexigram_jobs_leased from its first entry; row locks on what is over. A holder that renews at
# this very moment has the row locked and is skipped.
REAP = """WITH {clock} UPDATE lexigram_jobs SET
    state = CASE WHEN cancel_requested THEN 'cancelled'
                 WHEN lost_count + 1 >= max_deliveries THEN 'failed' ELSE 'ready' END,
    reason = CASE WHEN cancel_requested THEN 'asked'
                  WHEN lost_count + 1 >= max_deliveries THEN 'poison' ELSE reason END,
    error = CASE WHEN NOT cancel_requested AND lost_count + 1 >= max_deliveries
                 THEN 'its workers died or lost it ' || (lost_count + 1) || ' times'
                 ELSE error END,
    completed_at = CASE WHEN cancel_requested OR lost_count + 1 >= max_deliveries THEN {now} END,
    available_at = {now}, lost_count = lost_count + 1, lease = NULL, lease_until = NULL
WHERE seq {picked}SELECT seq FROM lexigram_jobs WHERE state = 'running' AND lease_until <= {now}
    ORDER BY lease_until LIMIT 500{unpicked}
RETURNING {ended}"""
# First entry of ix_lexigram_jobs_delayed.
NEXT_DUE = """WITH {clock} SELECT min(available_at) - {now} AS seconds
FROM lexigram_jobs WHERE state = 'delayed'"""

# --- by hand ------------------------------------------------------------------------------------

# Index of id; row lock. A running job is marked, a waiting one ends.
CANCEL = """WITH {clock} UPDATE lexigram_jobs SET cancel_requested = true,
    state = CASE WHEN state = 'running' THEN 'running' ELSE 'cancelled' END,
    reason = CASE WHEN state = 'running' THEN reason ELSE 'asked' END,
    completed_at = CASE WHEN state = 'running' THEN completed_at ELSE {now} END
WHERE id = ? AND state IN {unfinished}
RETURNING {ended}"""
# Index of id; row lock. The unique index has the last word when two want one key.
REVIVE = """WITH {clock} UPDATE lexigram_jobs AS j SET state = 'ready', retry_count = 0,
    lost_count = 0, error = '', reason = '', notes = '', cancel_requested = false,
    completed_at = NULL, available_at = {now}
WHERE id = ? AND state {listed} AND name <> '' AND NOT EXISTS (
    SELECT 1 FROM lexigram_jobs o WHERE o.unique_key = j.unique_key AND o.state IN {unfinished})
RETURNING id"""
# Index of id; row lock. A job that is there becomes a dead letter as it is.
BURY_KNOWN = """WITH {clock} UPDATE lexigram_jobs SET state = 'failed', reason = ?, error = ?,
    notes = ?, completed_at = {now}, lease = NULL, lease_until = NULL
WHERE id = ? AND state <> 'failed' RETURNING {ended}"""
# Index of id.
FORGET = "DELETE FROM lexigram_jobs WHERE id = ? AND state {listed}"
# ix_lexigram_jobs_failed.
FORGET_DEAD = "DELETE FROM lexigram_jobs WHERE state = 'failed'"
# Both claim indexes and a scan for the waiting.
FORGET_QUEUED = "DELETE FROM lexigram_jobs WHERE state IN ('ready', 'delayed', 'waiting')"
# Small: edges exist while both ends are unfinished.
CUT_LOOSE_EDGES = """DELETE FROM lexigram_job_edges WHERE NOT EXISTS (
    SELECT 1 FROM lexigram_jobs WHERE id = job_id AND state = 'waiting')"""
# ix_lexigram_jobs_ended from its old end; a thousand at a time, so that no lock lasts.
PURGE = """WITH {clock} DELETE FROM lexigram_jobs
WHERE seq {picked}SELECT seq FROM lexigram_jobs
    WHERE state IN ('completed', 'cancelled') AND completed_at <= {now} - ?
    ORDER BY completed_at LIMIT 1000{unpicked}
RETURNING seq"""

# --- to look at ---------------------------------------------------------------------------------

# Index of id; no lock.
GET = "WITH {clock} SELECT {seen}, {fresh} FROM lexigram_jobs WHERE id = ?"
# The primary key backwards; no lock.
FIND = """WITH {clock} SELECT {seen}, {fresh} FROM lexigram_jobs
WHERE state {listed} {such} ORDER BY seq DESC LIMIT ? OFFSET ?"""
# ix_lexigram_jobs_failed; no lock.
FIND_DEAD = """WITH {clock} SELECT {seen}, {fresh} FROM lexigram_jobs
WHERE state = 'failed' {such} ORDER BY completed_at DESC, seq DESC LIMIT ? OFFSET ?"""
# A scan; no lock.
COUNT = "SELECT count(*) AS found FROM lexigram_jobs WHERE state {listed} {such}"

# --- progress -----------------------------------------------------------------------------------

# Primary key; row lock. Never back, and nothing after the end: RETURNING is then empty.
REPORT = """WITH {clock}
INSERT INTO lexigram_job_progress (task_id, done, total, status, message, error, updated_at)
VALUES (?, ?, ?, 'running', ?, '', {now})
ON CONFLICT (task_id) DO UPDATE SET done = excluded.done, total = excluded.total,
    message = excluded.message, updated_at = excluded.updated_at
WHERE lexigram_job_progress.status NOT IN ('complete', 'failed')
    AND excluded.done >= lexigram_job_progress.done
RETURNING task_id"""
# Primary key; row lock. Only the first end counts.
END_PROGRESS = """WITH {clock}
INSERT INTO lexigram_job_progress (task_id, done, total, status, message, error, updated_at)
VALUES (?, 0, 0, ?, ?, ?, {now})
ON CONFLICT (task_id) DO UPDATE SET status = excluded.status, message = excluded.message,
    error = excluded.error, updated_at = excluded.updated_at
WHERE lexigram_job_progress.status NOT IN ('complete', 'failed')
RETURNING task_id"""
# Primary key; no lock.
GET_PROGRESS = """SELECT task_id, done, total, status, message, error
FROM lexigram_job_progress WHERE task_id = ?"""
# Index of updated_at.
PURGE_PROGRESS = """WITH {clock} DELETE FROM lexigram_job_progress
WHERE updated_at <= {now} - ? RETURNING task_id"""

# --- submissions --------------------------------------------------------------------------------

# Primary key; the second of two concurrent ones waits for the first and gets no row.
SUBMIT = """WITH {clock}
INSERT INTO lexigram_job_submissions (key, task_id, task_name, created_at, is_completed)
VALUES (?, ?, ?, {now}, false) ON CONFLICT (key) DO NOTHING RETURNING key"""
# Primary key; no lock.
GET_SUBMISSION = """SELECT key, task_id, created_at, is_completed, result
FROM lexigram_job_submissions WHERE key = ?"""
# Primary key; row lock.
COMPLETE_SUBMISSION = """UPDATE lexigram_job_submissions SET is_completed = true, result = ?
WHERE key = ?"""
# Index of created_at.
PURGE_SUBMISSIONS = """WITH {clock} DELETE FROM lexigram_job_submissions
WHERE created_at <= {now} - ? RETURNING key"""

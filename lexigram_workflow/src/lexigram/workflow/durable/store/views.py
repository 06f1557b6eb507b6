"""Read-only views for ad-hoc queries, under the names of Soliplex Ingester's tables.

Dates are timestamps on PostgreSQL and ISO texts in UTC on SQLite. A step that is not reached yet
is PENDING, or CANCELLED when its run ended before it; one that a route left out is COMPLETED and
``skipped``; one that failed while the run went on is FAILED. One that was retried by hand looks as
if it was never tried: its history has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

# A step's number in all runs: complete_step and the view say the same.
STEP_FACTOR: Final = 10_000

# A step that is tried anew after a retry; the attempts before are those of ``h``.
_ANEW: Final = (
    "p.step_no = r.step_no AND r.retry = 0 AND h.status <> 'PENDING'"
    " AND r.status NOT IN ('running', 'completed', 'failed', 'cancelled')"
)

# Through the primary keys of runs, plan steps and history when asked for one run.
_RUNSTEP = """
CREATE VIEW runstep AS
SELECT r.id * 10000 + p.step_no AS id, r.id AS workflow_run_id,
    p.step_no AS workflow_step_number, p.name AS workflow_step_name,
    p.plan_id * 10000 + p.step_no AS step_config_id, p.step_type AS step_type,
    p.step_no = r.n_steps AS is_last_step, {created} AS created_date, r.priority AS priority,
    {started} AS start_date, {changed} AS status_date, {completed} AS completed_date,
    CASE WHEN p.step_no = r.step_no THEN r.retry ELSE coalesce(h.retry, 0) END AS retry,
    p.retries AS retries,
    CASE WHEN p.step_no < r.step_no OR r.status = 'completed' THEN
            CASE WHEN h.status = 'FAILED' THEN 'FAILED' ELSE 'COMPLETED' END
         WHEN p.step_no > r.step_no THEN
            CASE WHEN r.status IN ('failed', 'cancelled') THEN 'CANCELLED' ELSE 'PENDING' END
         WHEN r.status = 'running' THEN 'RUNNING'
         WHEN r.status = 'failed' THEN 'FAILED'
         WHEN r.status = 'cancelled' THEN 'CANCELLED'
         WHEN r.retry > 0 THEN 'ERROR' ELSE 'PENDING' END AS status,
    CASE WHEN p.step_no > r.step_no AND r.status = 'failed' THEN 'cancelled: prior step failed'
         WHEN p.step_no = r.step_no AND r.status = 'running' OR {anew} THEN NULL
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN 'skipped'
         ELSE h.message END AS status_message,
    CASE WHEN p.step_no = r.step_no AND r.status = 'running' OR {anew} THEN NULL
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN '{{"skipped": true}}'
         ELSE h.meta END AS status_meta,
    CASE WHEN p.step_no = r.step_no AND r.status = 'running' THEN r.worker_id
         WHEN h.status = 'PENDING' OR {anew} THEN NULL ELSE h.worker_id END AS worker_id,
    CASE WHEN p.step_no = r.step_no THEN r.lease END AS lease_token,
    p.resource_key AS resource_key
FROM lexigram_durable_runs r
JOIN lexigram_durable_plan_steps p ON p.plan_id = r.plan_id
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = (
    SELECT max(x.fence) FROM lexigram_durable_history x
    WHERE x.run_id = r.id AND x.step_no = p.step_no)"""

_WORKERCHECKIN = """
CREATE VIEW workercheckin AS
SELECT worker_id AS id, {first} AS first_checkin, {last} AS last_checkin
FROM lexigram_durable_checkins"""

_RESOURCELOCK = """
CREATE VIEW resourcelock AS
SELECT l.resource_key AS resource_key, l.holder_id AS holder_id, l.holder_kind AS holder_kind,
    (SELECT min(r.id * 10000 + r.step_no) FROM lexigram_durable_runs r
     WHERE r.resource_key = l.resource_key AND r.status = 'running' AND r.lease = l.holder_id)
        AS step_id,
    {acquired} AS acquired_at, {expires} AS expires_at, l.holder_meta AS holder_meta
FROM lexigram_locks l"""

_LIFECYCLE = """
CREATE VIEW lifecyclehistory AS
SELECT event_id * 100 + handler_no AS id, kind AS event, group_id AS run_group_id,
    CASE WHEN run_id > 0 THEN run_id END AS workflow_run_id,
    CASE WHEN step_no > 0 THEN run_id * 10000 + step_no END AS step_id,
    handler_name AS handler_name, status AS status, attempts AS attempts, {begun} AS start_date,
    {ended} AS completed_date, message AS status_message, meta AS status_meta,
    worker_id AS worker_id
FROM lexigram_durable_lifecycle"""


_ALL = (_RUNSTEP, _WORKERCHECKIN, _RESOURCELOCK, _LIFECYCLE)


def _views(date: str) -> Sequence[str]:
    running = "p.step_no = r.step_no AND r.status = 'running'"
    seconds = {
        "created": "r.created_at",
        "started": f"CASE WHEN {running} THEN r.step_started_at WHEN {_ANEW} THEN NULL"
        " ELSE h.started_at END",
        "changed": f"CASE WHEN {running} THEN r.step_started_at WHEN {_ANEW} THEN r.status_at"
        " ELSE h.finished_at END",
        "completed": "CASE WHEN h.status IN ('COMPLETED', 'FAILED') AND (p.step_no < r.step_no"
        " OR r.status IN ('completed', 'failed')) THEN h.finished_at END",
        "first": "first_checkin",
        "last": "last_checkin",
        "acquired": "l.acquired_at",
        "expires": "l.expires_at",
        "begun": "started_at",
        "ended": "finished_at",
    }
    dates = {name: date.format(value) for name, value in seconds.items()}
    return [text.format(**dates, anew=_ANEW).strip() for text in _ALL]


VIEWS: Final[Mapping[str, Sequence[str]]] = {
    "postgresql": _views("to_timestamp({})"),
    "sqlite": _views("strftime('%Y-%m-%d %H:%M:%f', {}, 'unixepoch')"),
}
VIEW_NAMES: Final = ("runstep", "workercheckin", "resourcelock", "lifecyclehistory")

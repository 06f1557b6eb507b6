"""Durable runs: open questions by an index, steps anew after a retry, how far sources are."""

import sqlalchemy as sa
from alembic import op

_INDEX = "ix_lexigram_durable_runs_parked"
_STATES = "lexigram_durable_sync_states"


def upgrade() -> None:
    """An index, a table and a view: workers of the version before go on."""
    where = sa.text("parked IS NOT NULL AND completed_at IS NULL")
    op.create_index(
        _INDEX, "lexigram_durable_runs", ["id"], postgresql_where=where, sqlite_where=where
    )
    op.create_table(
        _STATES,
        sa.Column("source_id", sa.String(255), primary_key=True),
        sa.Column("commit_sha", sa.String(255)),
        sa.Column("branch", sa.String(255), nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("synced_at", sa.Double, nullable=False),
    )
    _view(_ANEW)


def downgrade() -> None:
    """How far sources are is forgotten: whoever brings them begins anew."""
    _view(None)
    op.drop_table(_STATES)
    op.drop_index(_INDEX, "lexigram_durable_runs")


# A step that is tried anew after a retry; the attempts before are those of ``h``.
_ANEW = (
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
    CASE WHEN p.step_no < r.step_no OR r.status = 'completed' THEN 'COMPLETED'
         WHEN p.step_no > r.step_no THEN
            CASE WHEN r.status IN ('failed', 'cancelled') THEN 'CANCELLED' ELSE 'PENDING' END
         WHEN r.status = 'running' THEN 'RUNNING'
         WHEN r.status = 'failed' THEN 'FAILED'
         WHEN r.status = 'cancelled' THEN 'CANCELLED'
         WHEN r.retry > 0 THEN 'ERROR' ELSE 'PENDING' END AS status,
    CASE WHEN p.step_no > r.step_no AND r.status = 'failed' THEN 'cancelled: prior step failed'
         WHEN p.step_no = r.step_no AND r.status = 'running'{anew} THEN NULL
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN 'skipped'
         ELSE h.message END AS status_message,
    CASE WHEN p.step_no = r.step_no AND r.status = 'running'{anew} THEN NULL
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN '{{"skipped": true}}'
         ELSE h.meta END AS status_meta,
    CASE WHEN p.step_no = r.step_no AND r.status = 'running' THEN r.worker_id
         WHEN h.status = 'PENDING'{anew} THEN NULL ELSE h.worker_id END AS worker_id,
    CASE WHEN p.step_no = r.step_no THEN r.lease END AS lease_token,
    p.resource_key AS resource_key
FROM lexigram_durable_runs r
JOIN lexigram_durable_plan_steps p ON p.plan_id = r.plan_id
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = (
    SELECT max(x.fence) FROM lexigram_durable_history x
    WHERE x.run_id = r.id AND x.step_no = p.step_no)"""


def _view(anew: str | None) -> None:
    date = {
        "postgresql": "to_timestamp({})",
        "sqlite": "strftime('%Y-%m-%d %H:%M:%f', {}, 'unixepoch')",
    }[op.get_bind().dialect.name]
    running = "p.step_no = r.step_no AND r.status = 'running'"
    started = "" if anew is None else f" WHEN {anew} THEN NULL"
    changed = "" if anew is None else f" WHEN {anew} THEN r.status_at"
    seconds = {
        "created": "r.created_at",
        "started": f"CASE WHEN {running} THEN r.step_started_at{started} ELSE h.started_at END",
        "changed": f"CASE WHEN {running} THEN r.step_started_at{changed} ELSE h.finished_at END",
        "completed": "CASE WHEN h.status IN ('COMPLETED', 'FAILED') AND (p.step_no < r.step_no"
        " OR r.status IN ('completed', 'failed')) THEN h.finished_at END",
    }
    dates = {name: date.format(value) for name, value in seconds.items()}
    clause = "" if anew is None else f" OR {anew}"
    op.execute("DROP VIEW runstep")
    op.execute(_RUNSTEP.format(**dates, anew=clause).strip())

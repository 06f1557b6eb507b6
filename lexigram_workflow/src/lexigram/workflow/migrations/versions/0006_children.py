"""Durable runs: runs that runs make, answers of people, events of runs and steps, duties."""

from typing import Any

import sqlalchemy as sa
from alembic import op

_RUNS = "lexigram_durable_runs"
_EVENTS = "lexigram_durable_events"


def upgrade() -> None:
    """New columns have defaults: workers of the version before go on meanwhile."""
    op.add_column("lexigram_durable_plan_steps", sa.Column("pool", sa.String(255)))
    op.add_column("lexigram_durable_groups", sa.Column("plan_id", sa.BigInteger))
    op.add_column("lexigram_durable_groups", _count("events"))
    for column in (
        sa.Column("parent_id", sa.BigInteger),
        sa.Column("parent_step", sa.Integer),
        sa.Column("fan", sa.Integer),
        _count("children"),
        _count("children_failed"),
        sa.Column("parked", sa.Text),
        sa.Column("answer", sa.Text),
        _count("events"),
    ):
        op.add_column(_RUNS, column)
    op.create_index(
        "ix_lexigram_durable_runs_children",
        _RUNS,
        ["parent_id", "id"],
        **_where("parent_id IS NOT NULL"),
    )
    for column in (
        sa.Column("run_id", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        _count("step_no"),
        sa.Column("audience", sa.String(16), nullable=False, server_default=sa.text("'listener'")),
    ):
        op.add_column(_EVENTS, column)
    op.drop_index("uq_lexigram_durable_events_once", _EVENTS)
    op.create_index(
        "uq_lexigram_durable_events_once",
        _EVENTS,
        ["group_id", "kind", "run_id", "ending", "audience"],
        unique=True,
    )
    op.create_index(
        "ix_lexigram_durable_events_handlers",
        _EVENTS,
        ["id"],
        **_where("delivered_at IS NULL AND audience = 'handler'"),
    )
    op.create_table(
        "lexigram_durable_lifecycle",
        sa.Column("event_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("handler_no", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("handler_name", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("group_id", sa.BigInteger, nullable=False, index=True),
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.Column("step_no", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("worker_id", sa.String(255)),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.Column("message", sa.Text),
        sa.Column("meta", sa.Text),
    )
    op.create_table(
        "lexigram_durable_duties",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("due_at", sa.Double, nullable=False),
    )
    op.execute("DROP VIEW runstep")
    for statement in _views(_RUNSTEP, _LIFECYCLE):
        op.execute(statement)


def downgrade() -> None:
    """Runs that other runs made are gone, and all events of runs and steps."""
    op.execute("DROP VIEW lifecyclehistory")
    op.execute("DROP VIEW runstep")
    op.drop_table("lexigram_durable_duties")
    op.drop_table("lexigram_durable_lifecycle")
    op.execute("DELETE FROM lexigram_durable_events WHERE run_id > 0 OR audience <> 'listener'")
    op.execute("DELETE FROM lexigram_durable_runs WHERE parent_id IS NOT NULL")
    op.drop_index("ix_lexigram_durable_events_handlers", _EVENTS)
    op.drop_index("uq_lexigram_durable_events_once", _EVENTS)
    for name in ("audience", "step_no", "run_id"):
        op.drop_column(_EVENTS, name)
    op.create_index(
        "uq_lexigram_durable_events_once", _EVENTS, ["group_id", "kind", "ending"], unique=True
    )
    op.drop_index("ix_lexigram_durable_runs_children", _RUNS)
    for name in ("events", "answer", "parked", "children_failed", "children", "fan"):
        op.drop_column(_RUNS, name)
    for name in ("parent_step", "parent_id"):
        op.drop_column(_RUNS, name)
    for name in ("events", "plan_id"):
        op.drop_column("lexigram_durable_groups", name)
    op.drop_column("lexigram_durable_plan_steps", "pool")
    for statement in _views(_RUNSTEP_BEFORE):
        op.execute(statement)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, server_default=sa.text("0"))


def _where(condition: str) -> dict[str, Any]:
    return {"postgresql_where": sa.text(condition), "sqlite_where": sa.text(condition)}


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
         WHEN p.step_no = r.step_no AND r.status = 'running' THEN NULL
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN 'skipped'
         ELSE h.message END AS status_message,
    CASE WHEN p.step_no = r.step_no AND r.status = 'running' THEN NULL
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN '{{"skipped": true}}'
         ELSE h.meta END AS status_meta,
    CASE WHEN p.step_no = r.step_no AND r.status = 'running' THEN r.worker_id
         WHEN h.status = 'PENDING' THEN NULL ELSE h.worker_id END AS worker_id,
    CASE WHEN p.step_no = r.step_no THEN r.lease END AS lease_token,
    p.resource_key AS resource_key
FROM lexigram_durable_runs r
JOIN lexigram_durable_plan_steps p ON p.plan_id = r.plan_id
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = (
    SELECT max(x.fence) FROM lexigram_durable_history x
    WHERE x.run_id = r.id AND x.step_no = p.step_no)"""

_RUNSTEP_BEFORE = _RUNSTEP.replace(
    """
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN 'skipped'""",
    "",
).replace(
    """
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN '{{"skipped": true}}'""",
    "",
)

_LIFECYCLE = """
CREATE VIEW lifecyclehistory AS
SELECT event_id * 100 + handler_no AS id, kind AS event, group_id AS run_group_id,
    CASE WHEN run_id > 0 THEN run_id END AS workflow_run_id,
    CASE WHEN step_no > 0 THEN run_id * 10000 + step_no END AS step_id,
    handler_name AS handler_name, status AS status, attempts AS attempts, {begun} AS start_date,
    {ended} AS completed_date, message AS status_message, meta AS status_meta,
    worker_id AS worker_id
FROM lexigram_durable_lifecycle"""


def _views(*texts: str) -> list[str]:
    date = {
        "postgresql": "to_timestamp({})",
        "sqlite": "strftime('%Y-%m-%d %H:%M:%f', {}, 'unixepoch')",
    }[op.get_bind().dialect.name]
    running = "p.step_no = r.step_no AND r.status = 'running'"
    seconds = {
        "created": "r.created_at",
        "started": f"CASE WHEN {running} THEN r.step_started_at ELSE h.started_at END",
        "changed": f"CASE WHEN {running} THEN r.step_started_at ELSE h.finished_at END",
        "completed": "CASE WHEN h.status IN ('COMPLETED', 'FAILED') AND (p.step_no < r.step_no"
        " OR r.status IN ('completed', 'failed')) THEN h.finished_at END",
        "begun": "started_at",
        "ended": "finished_at",
    }
    dates = {name: date.format(value) for name, value in seconds.items()}
    return [text.format(**dates).strip() for text in texts]

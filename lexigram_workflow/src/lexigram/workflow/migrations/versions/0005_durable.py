"""Durable runs: plans, groups, cursors of runs, attempts, events, check-ins; and views of them."""

from typing import Any

import sqlalchemy as sa
from alembic import op

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Seven tables; the partial indexes of runs are what claims and sweeps go by."""
    op.create_table(
        "lexigram_durable_plans",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("workflow_id", sa.String(255), nullable=False),
        sa.Column("param_id", sa.String(255)),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_table(
        "lexigram_durable_plan_steps",
        sa.Column("plan_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("step_no", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("step_type", sa.String(255), nullable=False),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.Column("backoff", sa.Double, nullable=False),
        sa.Column("backoff_cap", sa.Double, nullable=False),
        sa.Column("resource_key", sa.String(255)),
    )
    op.create_table(
        "lexigram_durable_groups",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(255)),
        sa.Column("workflow_id", sa.String(255), nullable=False),
        sa.Column("param_id", sa.String(255)),
        sa.Column("batch_id", sa.BigInteger),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("remaining", sa.Integer, nullable=False),
        sa.Column("failed", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("cancelled", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("endings", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("completed_at", sa.Double),
        sa.Column("idempotency_key", sa.String(255)),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_lexigram_durable_groups_ended", "lexigram_durable_groups", ["completed_at"])
    op.create_index(
        "uq_lexigram_durable_groups_key",
        "lexigram_durable_groups",
        ["idempotency_key"],
        unique=True,
        **_where("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "lexigram_durable_runs",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("group_id", sa.BigInteger, nullable=False),
        sa.Column("plan_id", sa.BigInteger, nullable=False),
        sa.Column("doc_id", sa.String(255)),
        sa.Column("batch_id", sa.BigInteger),
        sa.Column("tenant", sa.String(255)),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("turn", sa.Double, nullable=False),
        sa.Column("rank", sa.Double, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("step_no", sa.Integer, nullable=False),
        sa.Column("n_steps", sa.Integer, nullable=False),
        sa.Column("step_type", sa.String(255), nullable=False),
        sa.Column("resource_key", sa.String(255)),
        sa.Column("retry", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("lost", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("available_at", sa.Double, nullable=False),
        sa.Column("lease", sa.String(255)),
        sa.Column("lease_until", sa.Double),
        sa.Column("worker_id", sa.String(255)),
        sa.Column("fence", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("wanted", sa.String(16)),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("step_started_at", sa.Double),
        sa.Column("status_at", sa.Double, nullable=False),
        sa.Column("completed_at", sa.Double),
        sa.Column("message", sa.Text),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.String(255)),
        sqlite_autoincrement=True,
        postgresql_with={"fillfactor": "60"},
    )
    op.create_index(
        "ix_lexigram_durable_runs_delayed",
        "lexigram_durable_runs",
        ["available_at"],
        **_where("status = 'delayed'"),
    )
    op.create_index(
        "ix_lexigram_durable_runs_group", "lexigram_durable_runs", ["group_id", "status"]
    )
    op.create_index(
        "ix_lexigram_durable_runs_keyed",
        "lexigram_durable_runs",
        ["resource_key", "status", "rank", "id"],
        **_where("resource_key IS NOT NULL"),
    )
    op.create_index(
        "ix_lexigram_durable_runs_leased",
        "lexigram_durable_runs",
        ["lease_until"],
        **_where("status = 'running'"),
    )
    op.create_index(
        "ix_lexigram_durable_runs_ready",
        "lexigram_durable_runs",
        ["step_type", "rank", "id"],
        **_where("status = 'ready'"),
    )
    op.create_index(
        "ix_lexigram_durable_runs_ready_all",
        "lexigram_durable_runs",
        ["rank", "id", "step_type"],
        **_where("status = 'ready'"),
    )
    op.create_index(
        "ix_lexigram_durable_runs_tenant",
        "lexigram_durable_runs",
        ["tenant", "turn"],
        **_where("tenant IS NOT NULL AND completed_at IS NULL"),
    )
    op.create_index(
        "uq_lexigram_durable_runs_key",
        "lexigram_durable_runs",
        ["idempotency_key"],
        unique=True,
        **_where("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "lexigram_durable_history",
        sa.Column("run_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("fence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("step_no", sa.Integer, nullable=False),
        sa.Column("retry", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("worker_id", sa.String(255)),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double, nullable=False),
        sa.Column("message", sa.Text),
        sa.Column("meta", sa.Text),
    )
    op.create_table(
        "lexigram_durable_events",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("group_id", sa.BigInteger, nullable=False),
        sa.Column("ending", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("lease", sa.String(255)),
        sa.Column("lease_until", sa.Double),
        sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("delivered_at", sa.Double),
    )
    op.create_index(
        "ix_lexigram_durable_events_due",
        "lexigram_durable_events",
        ["id"],
        **_where("delivered_at IS NULL"),
    )
    op.create_index(
        "uq_lexigram_durable_events_once",
        "lexigram_durable_events",
        ["group_id", "kind", "ending"],
        unique=True,
    )
    op.create_table(
        "lexigram_durable_checkins",
        sa.Column("worker_id", sa.String(255), primary_key=True),
        sa.Column("first_checkin", sa.Double, nullable=False),
        sa.Column("last_checkin", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
    for statement in _VIEWS[op.get_bind().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    """All runs and their history are gone."""
    op.execute("DROP VIEW resourcelock")
    op.execute("DROP VIEW workercheckin")
    op.execute("DROP VIEW runstep")
    op.drop_table("lexigram_durable_checkins")
    op.drop_table("lexigram_durable_events")
    op.drop_table("lexigram_durable_history")
    op.drop_table("lexigram_durable_runs")
    op.drop_table("lexigram_durable_groups")
    op.drop_table("lexigram_durable_plan_steps")
    op.drop_table("lexigram_durable_plans")


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
         ELSE h.message END AS status_message,
    CASE WHEN p.step_no = r.step_no AND r.status = 'running' THEN NULL
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

_WORKERCHECKIN = """
CREATE VIEW workercheckin AS
SELECT worker_id AS id, {first} AS first_checkin, {last} AS last_checkin
FROM lexigram_durable_checkins"""

_RESOURCELOCK = """
CREATE VIEW resourcelock AS
SELECT l.resource_key AS resource_key, l.holder_id AS holder_id, l.holder_kind AS holder_kind,
    (SELECT r.id * 10000 + r.step_no FROM lexigram_durable_runs r
     WHERE r.resource_key = l.resource_key AND r.status = 'running' AND r.lease = l.holder_id)
        AS step_id,
    {acquired} AS acquired_at, {expires} AS expires_at, l.holder_meta AS holder_meta
FROM lexigram_locks l"""


def _dated(date: str) -> list[str]:
    running = "p.step_no = r.step_no AND r.status = 'running'"
    seconds = {
        "created": "r.created_at",
        "started": f"CASE WHEN {running} THEN r.step_started_at ELSE h.started_at END",
        "changed": f"CASE WHEN {running} THEN r.step_started_at ELSE h.finished_at END",
        "completed": "CASE WHEN h.status IN ('COMPLETED', 'FAILED') AND (p.step_no < r.step_no"
        " OR r.status IN ('completed', 'failed')) THEN h.finished_at END",
        "first": "first_checkin",
        "last": "last_checkin",
        "acquired": "l.acquired_at",
        "expires": "l.expires_at",
    }
    dates = {name: date.format(value) for name, value in seconds.items()}
    return [text.format(**dates).strip() for text in (_RUNSTEP, _WORKERCHECKIN, _RESOURCELOCK)]


_VIEWS = {
    "postgresql": _dated("to_timestamp({})"),
    "sqlite": _dated("strftime('%Y-%m-%d %H:%M:%f', {}, 'unixepoch')"),
}

"""Durable runs: steps that hold their resource together with others of the same claim."""

import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    """Workers of the version before go on: they do such steps one at a time."""
    op.add_column(
        "lexigram_durable_plan_steps",
        sa.Column("resource_shared", sa.Boolean, nullable=False, server_default=sa.text("false")),
    )
    _view("min(r.id * 10000 + r.step_no)")


def downgrade() -> None:
    """Steps that shared their resource do not any more."""
    _view("r.id * 10000 + r.step_no")
    op.drop_column("lexigram_durable_plan_steps", "resource_shared")


def _view(step: str) -> None:
    date = {
        "postgresql": "to_timestamp({})",
        "sqlite": "strftime('%Y-%m-%d %H:%M:%f', {}, 'unixepoch')",
    }[op.get_bind().dialect.name]
    op.execute("DROP VIEW resourcelock")
    op.execute(
        f"""
CREATE VIEW resourcelock AS
SELECT l.resource_key AS resource_key, l.holder_id AS holder_id, l.holder_kind AS holder_kind,
    (SELECT {step} FROM lexigram_durable_runs r
     WHERE r.resource_key = l.resource_key AND r.status = 'running' AND r.lease = l.holder_id)
        AS step_id,
    {date.format("l.acquired_at")} AS acquired_at, {date.format("l.expires_at")} AS expires_at,
    l.holder_meta AS holder_meta
FROM lexigram_locks l"""  # noqa: S608 - pieces of this file only
    )

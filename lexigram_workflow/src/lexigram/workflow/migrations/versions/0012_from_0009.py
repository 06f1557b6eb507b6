"""Bridge of workflows: a database of the main branch before the first release. Goes in 1.1.

Adds how often steps were begun, and kinds of steps, the pool and the handler together. Stop the
workers of the version before, and what submits with it: runs that they write have no kind, and
nobody claims them.
"""

import sqlalchemy as sa
from alembic import op

from lexigram.workflow.durable.store.views import VIEW_NAMES, VIEWS

_KINDS = "lexigram_durable_step_kinds"
_READY = "ix_lexigram_durable_runs_ready"
_RUNS = "lexigram_durable_runs"
_STEPS = "lexigram_durable_plan_steps"


def upgrade() -> None:
    """Add what came after 0009, and fill it from the plans."""
    dialect = op.get_context().dialect.name
    for view in VIEW_NAMES:
        op.execute(f"DROP VIEW {view}")
    op.create_table(
        _KINDS,
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("queue", sa.String(255), nullable=False),
        sa.Column("handler", sa.Text, nullable=False),
    )
    op.create_index("uq_lexigram_durable_step_kinds", _KINDS, ["queue", "handler"], unique=True)
    for table, name in (
        (_RUNS, "begun"),
        ("lexigram_durable_lifecycle", "lost"),
        (_STEPS, "step_kind"),
        (_RUNS, "step_kind"),
    ):
        count = sa.Column(name, sa.Integer, nullable=False, server_default=sa.text("0"))
        op.add_column(table, count)
    op.add_column("lexigram_durable_checkins", sa.Column("lacks", sa.Text))
    _fill_kinds(_PLAN_STEPS[dialect])
    op.drop_index(f"{_READY}_all", _RUNS)
    op.drop_index(_READY, _RUNS)
    where = sa.text("status = 'ready'")
    op.create_index(
        _READY, _RUNS, ["step_kind", "rank", "id"], postgresql_where=where, sqlite_where=where
    )
    for statement in VIEWS[dialect]:
        op.execute(statement)


def _fill_kinds(steps: str) -> None:
    """Plans have their handlers in JSON; runs that completed are never claimed again."""
    op.execute(f"INSERT INTO {_KINDS} (queue, handler) SELECT DISTINCT queue, handler FROM {steps}")  # noqa: S608 - names of this file
    op.execute(
        f"UPDATE {_STEPS} SET step_kind = ("  # noqa: S608 - names of this file
        f"SELECT k.id FROM {_KINDS} k JOIN {steps} ON k.queue = s.queue AND k.handler = s.handler"
        f" WHERE s.plan_id = {_STEPS}.plan_id AND s.number = {_STEPS}.step_no)"
    )
    op.execute(
        f"UPDATE {_RUNS} SET step_kind = (SELECT s.step_kind FROM {_STEPS} s"  # noqa: S608 - names of this file
        f" WHERE s.plan_id = {_RUNS}.plan_id AND s.step_no = {_RUNS}.step_no)"
        " WHERE status <> 'completed'"
    )


# The steps of the plans with what a worker needs for them, as ``StepPlan.requires`` returns it.
_REQUIRED = """(
SELECT plan_id, number, coalesce(nullif(pool, ''), step_type) AS queue,
    CASE WHEN handler LIKE 'orchestrated.%' AND name IS NOT NULL THEN handler || ':' || name
         ELSE handler END AS handler
FROM ({steps}) fields) s"""
_PLAN_STEPS = {
    "postgresql": _REQUIRED.format(
        steps="""
SELECT p.id AS plan_id, one.number, one.value ->> 'pool' AS pool,
    one.value ->> 'step_type' AS step_type, one.value ->> 'handler' AS handler,
    one.value -> 'params' ->> 'orchestration' AS name
FROM lexigram_durable_plans p,
    json_array_elements(CAST(p.body AS json) -> 'steps') WITH ORDINALITY AS one (value, number)"""
    ),
    "sqlite": _REQUIRED.format(
        steps="""
SELECT p.id AS plan_id, one.key + 1 AS number, json_extract(one.value, '$.pool') AS pool,
    json_extract(one.value, '$.step_type') AS step_type,
    json_extract(one.value, '$.handler') AS handler,
    json_extract(one.value, '$.params.orchestration') AS name
FROM lexigram_durable_plans p, json_each(p.body, '$.steps') one"""
    ),
}

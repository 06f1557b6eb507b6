"""The tables of durable runs; the migrations create the same.

Times are seconds since 1970 by the clock of the store.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    event,
    text,
)

from lexigram.workflow.durable.store.views import VIEWS

metadata = MetaData()

SERIAL = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers INTEGER keys only


def where(condition: str) -> dict[str, Any]:
    """For an index over some rows only."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


# What runs consist of: written once for each content, never changed, shared by all its runs.
plans = Table(
    "lexigram_durable_plans",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    # hash of the body
    Column("digest", String(64), nullable=False, unique=True),
    Column("workflow_id", String(255), nullable=False),
    Column("param_id", String(255)),
    # JSON
    Column("body", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

# What workers claim by: steps of a pool with a handler. Few, and never removed.
step_kinds = Table(
    "lexigram_durable_step_kinds",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    # the pool that takes the steps: their type, unless their plan says otherwise
    Column("queue", String(255), nullable=False),
    # what a worker must have
    Column("handler", Text, nullable=False),
    Index("uq_lexigram_durable_step_kinds", "queue", "handler", unique=True),
)

# The part of a plan that statements read: the finish of a step looks up the next one here.
plan_steps = Table(
    "lexigram_durable_plan_steps",
    metadata,
    Column("plan_id", BigInteger, primary_key=True, autoincrement=False),
    # from 1
    Column("step_no", Integer, primary_key=True, autoincrement=False),
    Column("name", String(255), nullable=False),
    Column("step_type", String(255), nullable=False),
    # whose consumers claim it; NULL is those of its type
    Column("pool", String(255)),
    # attempts in all
    Column("retries", Integer, nullable=False),
    Column("backoff", Double, nullable=False),
    Column("backoff_cap", Double, nullable=False),
    Column("resource_key", String(255)),
    # steps of one claim hold it together
    Column("resource_shared", Boolean, nullable=False, server_default=text("false")),
    # of lexigram_durable_step_kinds
    Column("step_kind", Integer, nullable=False, server_default=text("0")),
)

# Runs that were started together. ``remaining`` counts down: zero is the end of the group.
groups = Table(
    "lexigram_durable_groups",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("name", String(255)),
    Column("workflow_id", String(255), nullable=False),
    Column("param_id", String(255)),
    Column("batch_id", BigInteger),
    # pending, running, completed, failed, cancelled
    Column("status", String(16), nullable=False),
    Column("total", Integer, nullable=False),
    Column("remaining", Integer, nullable=False),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("cancelled", Integer, nullable=False, server_default=text("0")),
    # how often it ended: a retry reopens it
    Column("endings", Integer, nullable=False, server_default=text("0")),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("completed_at", Double),
    Column("idempotency_key", String(255)),
    # of its runs, when it was submitted with one
    Column("plan_id", BigInteger),
    # which lifecycle events the plan has handlers for: a bit for each
    Column("events", Integer, nullable=False, server_default=text("0")),
    sqlite_autoincrement=True,
)
Index(
    "uq_lexigram_durable_groups_key",
    groups.c.idempotency_key,
    unique=True,
    **where("idempotency_key IS NOT NULL"),
)
# Retention goes from the old end; the reconciler through those that have none.
Index("ix_lexigram_durable_groups_ended", groups.c.completed_at)

# One claimable row per run: its cursor. Lowest unfinished step, attempts left, no other step of
# the run at work: all that is ``status = 'ready'``.
runs = Table(
    "lexigram_durable_runs",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("group_id", BigInteger, nullable=False),
    Column("plan_id", BigInteger, nullable=False),
    Column("doc_id", String(255)),
    Column("batch_id", BigInteger),
    Column("tenant", String(255)),
    Column("priority", Integer, nullable=False),
    # When it came; of a tenant with many runs waiting, when it would come were they spread out.
    Column("turn", Double, nullable=False),
    # turn - priority * ageing: the order of claims. Waiting makes up for priority, so that
    # nothing starves, and no row is rewritten for it.
    Column("rank", Double, nullable=False),
    # see lexigram.workflow.durable.store.records.State
    Column("status", String(16), nullable=False),
    Column("step_no", Integer, nullable=False),
    Column("n_steps", Integer, nullable=False),
    # the pool that claims the step it is at: its type, unless its plan says otherwise
    Column("step_type", String(255), nullable=False),
    # of lexigram_durable_step_kinds: the pool and the handler of the step it is at
    Column("step_kind", Integer, nullable=False, server_default=text("0")),
    Column("resource_key", String(255)),
    # failed attempts of the step it is at
    Column("retry", Integer, nullable=False, server_default=text("0")),
    # how often its worker ended while it had the step, in a row
    Column("lost", Integer, nullable=False, server_default=text("0")),
    # and how often of these the step was begun; what was never lost before is not counted
    Column("begun", Integer, nullable=False, server_default=text("0")),
    Column("available_at", Double, nullable=False),
    Column("lease", String(255)),
    Column("lease_until", Double),
    Column("worker_id", String(255)),
    # grows with every attempt, for ever
    Column("fence", Integer, nullable=False, server_default=text("0")),
    # cancel or pause, asked for while it was running
    Column("wanted", String(16)),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("step_started_at", Double),
    Column("status_at", Double, nullable=False),
    Column("completed_at", Double),
    Column("message", Text),
    # JSON
    Column("params", Text, nullable=False),
    Column("idempotency_key", String(255)),
    # the run that made it, and the step at which; the group counts runs without a parent
    Column("parent_id", BigInteger),
    Column("parent_step", Integer),
    # the step that made the runs it waits for or gathers now; there may be none
    Column("fan", Integer),
    # how many of them are not final; zero makes a waiting run ready
    Column("children", Integer, nullable=False, server_default=text("0")),
    # how many of them failed or were cancelled
    Column("children_failed", Integer, nullable=False, server_default=text("0")),
    # why it waits for an answer
    Column("parked", Text),
    # JSON: what was answered, for the step it is at
    Column("answer", Text),
    # which lifecycle events its plan has handlers for: a bit for each
    Column("events", Integer, nullable=False, server_default=text("0")),
    # A number is never used again: a stale lease would name the new run that got it.
    sqlite_autoincrement=True,
    # Room on the page for the next versions of its rows.
    postgresql_with={"fillfactor": "60"},
)
# The claim: exactly the claimable rows of a kind, in the order they are handed out. Rows of kinds
# that a worker does not take are never read, however many are in front.
Index(
    "ix_lexigram_durable_runs_ready",
    runs.c.step_kind,
    runs.c.rank,
    runs.c.id,
    **where("status = 'ready'"),
)
# What is due by time, and what is next.
Index("ix_lexigram_durable_runs_delayed", runs.c.available_at, **where("status = 'delayed'"))
# Whose worker died.
Index("ix_lexigram_durable_runs_leased", runs.c.lease_until, **where("status = 'running'"))
# Who works with a resource, and who waits for it; completed runs have none.
Index(
    "ix_lexigram_durable_runs_keyed",
    runs.c.resource_key,
    runs.c.status,
    runs.c.rank,
    runs.c.id,
    **where("resource_key IS NOT NULL"),
)
# The last turn a tenant has.
Index(
    "ix_lexigram_durable_runs_tenant",
    runs.c.tenant,
    runs.c.turn,
    **where("tenant IS NOT NULL AND completed_at IS NULL"),
)
# Statistics, retries, cancels and retention of a group.
Index("ix_lexigram_durable_runs_group", runs.c.group_id, runs.c.status)
Index(
    "uq_lexigram_durable_runs_key",
    runs.c.idempotency_key,
    unique=True,
    **where("idempotency_key IS NOT NULL"),
)
# The runs that a run made.
Index(
    "ix_lexigram_durable_runs_children",
    runs.c.parent_id,
    runs.c.id,
    **where("parent_id IS NOT NULL"),
)

# Runs that wait for an answer.
Index(
    "ix_lexigram_durable_runs_parked",
    runs.c.id,
    **where("parked IS NOT NULL AND completed_at IS NULL"),
)

# Insert only: one row per attempt that ended.
history = Table(
    "lexigram_durable_history",
    metadata,
    Column("run_id", BigInteger, primary_key=True, autoincrement=False),
    Column("fence", Integer, primary_key=True, autoincrement=False),
    Column("step_no", Integer, nullable=False),
    Column("retry", Integer, nullable=False),
    # COMPLETED, ERROR, FAILED; PENDING: given back or taken away
    Column("status", String(16), nullable=False),
    Column("worker_id", String(255)),
    Column("started_at", Double),
    Column("finished_at", Double, nullable=False),
    Column("message", Text),
    # JSON
    Column("meta", Text),
)

# Written by the statement that made it happen, so no crash comes in between.
events = Table(
    "lexigram_durable_events",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    # see lexigram.workflow.durable.plan.LifeCycleEvent
    Column("kind", String(32), nullable=False),
    Column("group_id", BigInteger, nullable=False),
    # which end of the group it is, 0 for its start; of a run or step: the fence of the attempt
    Column("ending", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    # who delivers it, until when; or when the next try may come
    Column("lease", String(255)),
    Column("lease_until", Double),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    Column("delivered_at", Double),
    # 0 for events of a group
    Column("run_id", BigInteger, nullable=False, server_default=text("0")),
    Column("step_no", Integer, nullable=False, server_default=text("0")),
    # listener: for listeners of workers; handler: for the handlers that the plan names
    Column("audience", String(16), nullable=False, server_default=text("'listener'")),
    Index(
        "uq_lexigram_durable_events_once",
        *("group_id", "kind", "run_id", "ending", "audience"),
        unique=True,
    ),
)
Index(
    "ix_lexigram_durable_events_due",
    events.c.id,
    **where("delivered_at IS NULL"),
)

# Those that handlers of plans wait for; listener's rows that nobody takes stay out of it.
Index(
    "ix_lexigram_durable_events_handlers",
    events.c.id,
    **where("delivered_at IS NULL AND audience = 'handler'"),
)

# The outcome of each handler of each event: lifecycle_history of Soliplex Ingester.
lifecycle = Table(
    "lexigram_durable_lifecycle",
    metadata,
    Column("event_id", BigInteger, primary_key=True, autoincrement=False),
    # its place among the handlers of the event
    Column("handler_no", Integer, primary_key=True, autoincrement=False),
    Column("handler_name", String(255), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("group_id", BigInteger, nullable=False, index=True),
    Column("run_id", BigInteger, nullable=False),
    Column("step_no", Integer, nullable=False),
    # RUNNING; ERROR: will be tried again; COMPLETED, FAILED
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("worker_id", String(255)),
    Column("started_at", Double, nullable=False),
    Column("finished_at", Double),
    Column("message", Text),
    # JSON
    Column("meta", Text),
    # how often its worker ended while it ran, in a row
    Column("lost", Integer, nullable=False, server_default=text("0")),
)

# What one worker of all does now and then: who moves ``due_at`` on does it.
duties = Table(
    "lexigram_durable_duties",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("due_at", Double, nullable=False),
)

checkins = Table(
    "lexigram_durable_checkins",
    metadata,
    Column("worker_id", String(255), primary_key=True),
    # since when it checks in without a gap
    Column("first_checkin", Double, nullable=False),
    Column("last_checkin", Double, nullable=False),
    # its leases end then unless it checks in again
    Column("expires_at", Double, nullable=False),
    # the kinds of steps that it cannot claim, and behind @ the lifecycle handlers that it has not:
    # ",1,5,@shop.notify,"; what it has not met is not among them
    Column("lacks", Text),
)


@event.listens_for(metadata, "after_create")
def _create_views(_: MetaData, connection: Connection, **__: Any) -> None:
    for statement in VIEWS[connection.dialect.name]:
        connection.exec_driver_sql(statement)

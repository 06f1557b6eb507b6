"""Start of the chain: graphs, sagas, bulk operations, state machines and durable runs.

The revisions 0001 to 0012 of development, in one file: a database that has 0012 has the same
tables. The views are those of ``lexigram.workflow.durable.store.views``: a change of one there is copied
the text of before into this file, and recreates the view in the next migration.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from lexigram.workflow.durable.store.views import VIEW_NAMES, VIEWS

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables and views."""
    _create_graphs()
    _create_sagas()
    _create_bulk_operations()
    _create_state_machines()
    _create_plans()
    _create_groups()
    _create_runs()
    _create_events()
    _create_workers()
    _create_documents()
    for statement in VIEWS[op.get_context().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    """Drop the tables with all runs; the blobs of documents remain."""
    for view in VIEW_NAMES:
        op.execute(f"DROP VIEW {view}")
    for table in (
        "lexigram_durable_sync_states",
        "lexigram_durable_batch_documents",
        "lexigram_durable_uri_history",
        "lexigram_durable_document_uris",
        "lexigram_durable_documents",
        "lexigram_durable_batches",
        "lexigram_durable_checkins",
        "lexigram_durable_duties",
        "lexigram_durable_lifecycle",
        "lexigram_durable_events",
        "lexigram_durable_history",
        "lexigram_durable_runs",
        "lexigram_durable_groups",
        "lexigram_durable_plan_steps",
        "lexigram_durable_step_kinds",
        "lexigram_durable_plans",
        "workflow_state_transitions",
        "lexigram_bulk_batches",
        "lexigram_bulk_operations",
        "workflow_content_checkpoints",
        "lexigram_sagas",
        "lexigram_graph_checkpoints",
        "lexigram_graph_runs",
    ):
        op.drop_table(table)


def _create_graphs() -> None:
    op.create_table(
        "lexigram_graph_runs",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("graph", sa.String(255), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("due_at", sa.Double),
        sa.Column("error", sa.Text),
        sa.Column("parent_run", sa.String(255)),
        sa.Column("parent_seq", sa.BigInteger),
    )
    op.create_index(
        "ix_lexigram_graph_runs_status", "lexigram_graph_runs", ["status", "updated_at"]
    )
    op.create_table(
        "lexigram_graph_checkpoints",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("whole", sa.Boolean, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("nodes", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )


def _create_sagas() -> None:
    op.create_table(
        "lexigram_sagas",
        sa.Column("saga_id", sa.String(255), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("owner", sa.String(255)),
        sa.Column("leased_until", sa.Double),
    )
    op.create_index("ix_lexigram_sagas_state", "lexigram_sagas", ["state", "updated_at"])
    op.create_table(
        "workflow_content_checkpoints",
        sa.Column("key_str", sa.String(512), primary_key=True),
        sa.Column("stage_id", sa.String(255), nullable=False),
        sa.Column("tenant_id", sa.String(255), nullable=False),
        sa.Column("entry_json", sa.Text, nullable=False),
        sa.Column("stage_handler_version", sa.String(255), nullable=False),
        sa.Column("output_size_bytes", sa.BigInteger, nullable=False),
        sa.Column("completed_at", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_index(
        "ix_workflow_content_checkpoints_stage",
        "workflow_content_checkpoints",
        ["stage_id", "tenant_id", "completed_at"],
    )


def _create_bulk_operations() -> None:
    op.create_table(
        "lexigram_bulk_operations",
        sa.Column("operation_id", sa.String(255), primary_key=True),
        sa.Column("batch_size", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_table(
        "lexigram_bulk_batches",
        sa.Column("operation_id", sa.String(255), primary_key=True),
        sa.Column("batch_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("failed", sa.Text, nullable=False),
    )


def _create_state_machines() -> None:
    op.create_table(
        "workflow_state_transitions",
        sa.Column("machine_id", sa.String(255), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("from_state", sa.String(255), nullable=False),
        sa.Column("event", sa.String(255), nullable=False),
        sa.Column("to_state", sa.String(255), nullable=False),
        sa.Column("transitioned_at", sa.Double, nullable=False),
    )


def _create_plans() -> None:
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
        "lexigram_durable_step_kinds",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("queue", sa.String(255), nullable=False),
        sa.Column("handler", sa.Text, nullable=False),
    )
    op.create_index(
        "uq_lexigram_durable_step_kinds",
        "lexigram_durable_step_kinds",
        ["queue", "handler"],
        unique=True,
    )
    op.create_table(
        "lexigram_durable_plan_steps",
        sa.Column("plan_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("step_no", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("step_type", sa.String(255), nullable=False),
        sa.Column("pool", sa.String(255)),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.Column("backoff", sa.Double, nullable=False),
        sa.Column("backoff_cap", sa.Double, nullable=False),
        sa.Column("resource_key", sa.String(255)),
        sa.Column("resource_shared", sa.Boolean, nullable=False, server_default=sa.text("false")),
        _count("step_kind"),
    )


def _create_groups() -> None:
    table = "lexigram_durable_groups"
    op.create_table(
        table,
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(255)),
        sa.Column("workflow_id", sa.String(255), nullable=False),
        sa.Column("param_id", sa.String(255)),
        sa.Column("batch_id", sa.BigInteger),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("remaining", sa.Integer, nullable=False),
        _count("failed"),
        _count("cancelled"),
        _count("endings"),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("completed_at", sa.Double),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("plan_id", sa.BigInteger),
        _count("events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_lexigram_durable_groups_ended", table, ["completed_at"])
    _index_some(
        "uq_lexigram_durable_groups_key",
        table,
        ["idempotency_key"],
        "idempotency_key IS NOT NULL",
        unique=True,
    )
    _index_some("ix_lexigram_durable_groups_batch", table, ["batch_id"], "batch_id IS NOT NULL")


def _create_runs() -> None:
    table = "lexigram_durable_runs"
    op.create_table(
        table,
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
        _count("step_kind"),
        sa.Column("resource_key", sa.String(255)),
        _count("retry"),
        _count("lost"),
        _count("begun"),
        sa.Column("available_at", sa.Double, nullable=False),
        sa.Column("lease", sa.String(255)),
        sa.Column("lease_until", sa.Double),
        sa.Column("worker_id", sa.String(255)),
        _count("fence"),
        sa.Column("wanted", sa.String(16)),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("step_started_at", sa.Double),
        sa.Column("status_at", sa.Double, nullable=False),
        sa.Column("completed_at", sa.Double),
        sa.Column("message", sa.Text),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("parent_id", sa.BigInteger),
        sa.Column("parent_step", sa.Integer),
        sa.Column("fan", sa.Integer),
        _count("children"),
        _count("children_failed"),
        sa.Column("parked", sa.Text),
        sa.Column("answer", sa.Text),
        _count("events"),
        sqlite_autoincrement=True,
        postgresql_with={"fillfactor": "60"},
    )
    op.create_index("ix_lexigram_durable_runs_group", table, ["group_id", "status"])
    for name, columns, where in (
        ("ready", ["step_kind", "rank", "id"], "status = 'ready'"),
        ("delayed", ["available_at"], "status = 'delayed'"),
        ("leased", ["lease_until"], "status = 'running'"),
        ("keyed", ["resource_key", "status", "rank", "id"], "resource_key IS NOT NULL"),
        ("tenant", ["tenant", "turn"], "tenant IS NOT NULL AND completed_at IS NULL"),
        ("children", ["parent_id", "id"], "parent_id IS NOT NULL"),
        ("parked", ["id"], "parked IS NOT NULL AND completed_at IS NULL"),
    ):
        _index_some(f"ix_lexigram_durable_runs_{name}", table, columns, where)
    _index_some(
        "uq_lexigram_durable_runs_key",
        table,
        ["idempotency_key"],
        "idempotency_key IS NOT NULL",
        unique=True,
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


def _create_events() -> None:
    table = "lexigram_durable_events"
    op.create_table(
        table,
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("group_id", sa.BigInteger, nullable=False),
        sa.Column("ending", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("lease", sa.String(255)),
        sa.Column("lease_until", sa.Double),
        _count("tries"),
        sa.Column("delivered_at", sa.Double),
        sa.Column("run_id", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        _count("step_no"),
        sa.Column("audience", sa.String(16), nullable=False, server_default=sa.text("'listener'")),
    )
    op.create_index(
        "uq_lexigram_durable_events_once",
        table,
        ["group_id", "kind", "run_id", "ending", "audience"],
        unique=True,
    )
    _index_some("ix_lexigram_durable_events_due", table, ["id"], "delivered_at IS NULL")
    _index_some(
        "ix_lexigram_durable_events_handlers",
        table,
        ["id"],
        "delivered_at IS NULL AND audience = 'handler'",
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
        _count("lost"),
    )


def _create_workers() -> None:
    op.create_table(
        "lexigram_durable_duties",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("due_at", sa.Double, nullable=False),
    )
    op.create_table(
        "lexigram_durable_checkins",
        sa.Column("worker_id", sa.String(255), primary_key=True),
        sa.Column("first_checkin", sa.Double, nullable=False),
        sa.Column("last_checkin", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("lacks", sa.Text),
    )


def _create_documents() -> None:
    batches, documents = "lexigram_durable_batches", "lexigram_durable_documents"
    uris = "lexigram_durable_document_uris"
    op.create_table(
        batches,
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(255)),
        sa.Column("source", sa.String(255), nullable=False),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("completed_at", sa.Double),
        sqlite_autoincrement=True,
    )
    op.create_table(
        documents,
        sa.Column("hash", sa.String(80), primary_key=True),
        sa.Column("mime_type", sa.String(255), nullable=False),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_table(
        uris,
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("source", sa.String(255), nullable=False, index=True),
        sa.Column("doc_hash", sa.String(80), _refer(documents, "hash"), nullable=False, index=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("batch_id", sa.BigInteger, _refer(batches)),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "lexigram_durable_uri_history",
        _key("uri_id", uris),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("doc_hash", sa.String(80), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("batch_id", sa.BigInteger),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_table(
        "lexigram_durable_batch_documents",
        _key("batch_id", batches),
        _key("uri_id", uris, index=True),
        sa.Column("doc_hash", sa.String(80), _refer(documents, "hash"), nullable=False, index=True),
    )
    op.create_table(
        "lexigram_durable_sync_states",
        sa.Column("source_id", sa.String(255), primary_key=True),
        sa.Column("commit_sha", sa.String(255)),
        sa.Column("branch", sa.String(255), nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("synced_at", sa.Double, nullable=False),
    )


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, server_default=sa.text("0"))


def _key(name: str, table: str, *, index: bool | None = None) -> sa.Column[int]:
    """Return a part of a primary key that refers to another table."""
    return sa.Column(
        name, sa.BigInteger, _refer(table), primary_key=True, autoincrement=False, index=index
    )


def _refer(table: str, column: str = "id") -> sa.ForeignKey:
    return sa.ForeignKey(f"{table}.{column}")


def _index_some(
    name: str, table: str, columns: list[str], where: str, *, unique: bool = False
) -> None:
    """Create an index over the rows that meet the condition."""
    condition: dict[str, Any] = {
        "postgresql_where": sa.text(where),
        "sqlite_where": sa.text(where),
    }
    op.create_index(name, table, columns, unique=unique, **condition)

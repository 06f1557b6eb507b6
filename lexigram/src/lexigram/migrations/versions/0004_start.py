"""Start of the chain: locks, cache, schedules and jobs.

The revisions 0001 to 0004 of development, in one file: a database that has 0004 has the same tables.
"""

import sqlalchemy as sa
from alembic import op

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables of each package."""
    _create_locks()
    _create_cache()
    _create_schedules()
    _create_jobs()


def downgrade() -> None:
    """Drop the tables; schedules declared in code are created again at the next start."""
    for table in (
        "lexigram_job_submissions",
        "lexigram_job_progress",
        "lexigram_job_edges",
        "lexigram_jobs",
        "lexigram_schedule_firings",
        "lexigram_schedules",
        "lexigram_idempotency",
        "lexigram_cache",
        "lexigram_lock_fence",
        "lexigram_locks",
    ):
        op.drop_table(table)


def _create_locks() -> None:
    op.create_table(
        "lexigram_locks",
        sa.Column("resource_key", sa.String(255), primary_key=True),
        sa.Column("holder_id", sa.String(255), nullable=False),
        sa.Column("holder_kind", sa.String(32), nullable=False),
        sa.Column("holder_meta", sa.Text, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("acquired_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
    op.create_index("ix_lexigram_locks_expires_at", "lexigram_locks", ["expires_at"])
    op.create_table(
        "lexigram_lock_fence",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO lexigram_lock_fence (id, last) VALUES (1, 0)")  # its only row


def _create_cache() -> None:
    op.create_table(
        "lexigram_cache",
        sa.Column("namespace", sa.String(128), primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.Column("expires_at", sa.Double),
    )
    op.create_index("ix_lexigram_cache_expires_at", "lexigram_cache", ["expires_at"])
    op.create_table(
        "lexigram_idempotency",
        sa.Column("namespace", sa.String(128), primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("value", sa.LargeBinary),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
    )
    op.create_index("ix_lexigram_idempotency_expires_at", "lexigram_idempotency", ["expires_at"])


def _create_schedules() -> None:
    op.create_table(
        "lexigram_schedules",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("next_tick", sa.BigInteger),
        sa.Column("due", sa.BigInteger),
        sa.Column("last_tick", sa.BigInteger),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("last_error", sa.Text),
    )
    op.create_index("ix_lexigram_schedules_due", "lexigram_schedules", ["due"])
    op.create_table(
        "lexigram_schedule_firings",
        sa.Column("schedule", sa.String(200), primary_key=True),
        sa.Column("tick", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("manual", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("fired", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reference", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("callback", sa.String(200)),
        sa.Column("holder", sa.String(255)),
        sa.Column("lease", sa.BigInteger),
    )
    _index_some(
        "ix_lexigram_schedule_firings_lease",
        "lexigram_schedule_firings",
        ["lease"],
        "lease IS NOT NULL",
    )
    op.create_index("ix_lexigram_schedule_firings_fired", "lexigram_schedule_firings", ["fired"])


def _create_jobs() -> None:
    op.create_table(
        "lexigram_jobs",
        sa.Column("seq", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(512), nullable=False, unique=True),
        sa.Column("name", sa.String(512), nullable=False),
        sa.Column("queue", sa.String(512), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("max_retries", sa.Integer, nullable=False),
        sa.Column("max_deliveries", sa.Integer, nullable=False),
        sa.Column("timeout", sa.Double),
        sa.Column("result_ttl", sa.Double),
        sa.Column("unique_key", sa.String(512)),
        sa.Column("idempotency_key", sa.String(512)),
        sa.Column("depends_on", sa.Text, nullable=False),
        sa.Column("on_dependency_failure", sa.String(16), nullable=False),
        sa.Column("correlation_id", sa.String(512)),
        sa.Column("causation_id", sa.String(512)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("scheduled_at", sa.Double),
        sa.Column("available_at", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("completed_at", sa.Double),
        sa.Column("retry_count", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("lost_count", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("error", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("reason", sa.String(255), nullable=False, server_default=sa.text("''")),
        sa.Column("notes", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("waits", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("is_awaited", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("lease", sa.String(255)),
        sa.Column("lease_until", sa.Double),
        sa.Column("fence", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("result", sa.Text),
        sa.Column("result_until", sa.Double),
        sqlite_autoincrement=True,
    )
    unfinished = "state IN ('ready', 'delayed', 'waiting', 'running')"
    ready = ["priority DESC", "available_at", "seq"]
    _index_jobs("ix_lexigram_jobs_ready", ["queue", *ready], "state = 'ready'")
    _index_jobs("ix_lexigram_jobs_ready_all", ready, "state = 'ready'")
    _index_jobs("ix_lexigram_jobs_delayed", ["available_at"], "state = 'delayed'")
    _index_jobs("ix_lexigram_jobs_leased", ["lease_until"], "state = 'running'")
    _index_jobs(
        "uq_lexigram_jobs_unique_key",
        ["unique_key"],
        f"unique_key IS NOT NULL AND {unfinished}",
        unique=True,
    )
    _index_jobs(
        "uq_lexigram_jobs_idempotency_key",
        ["idempotency_key"],
        "idempotency_key IS NOT NULL",
        unique=True,
    )
    _index_jobs("ix_lexigram_jobs_ended", ["completed_at"], "state IN ('completed', 'cancelled')")
    _index_jobs("ix_lexigram_jobs_failed", ["completed_at DESC"], "state = 'failed'")
    op.create_table(
        "lexigram_job_edges",
        sa.Column("depends_on", sa.String(512), primary_key=True),
        sa.Column("job_id", sa.String(512), primary_key=True),
    )
    op.create_table(
        "lexigram_job_progress",
        sa.Column("task_id", sa.String(512), primary_key=True),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
    )
    op.create_index("ix_lexigram_job_progress_updated_at", "lexigram_job_progress", ["updated_at"])
    op.create_table(
        "lexigram_job_submissions",
        sa.Column("key", sa.String(512), primary_key=True),
        sa.Column("task_id", sa.String(512), nullable=False),
        sa.Column("task_name", sa.String(512), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("is_completed", sa.Boolean, nullable=False),
        sa.Column("result", sa.Text),
    )
    op.create_index(
        "ix_lexigram_job_submissions_created_at", "lexigram_job_submissions", ["created_at"]
    )


def _index_jobs(name: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    _index_some(name, "lexigram_jobs", columns, where, unique=unique)


def _index_some(
    name: str, table: str, columns: list[str], where: str, *, unique: bool = False
) -> None:
    """Create an index over the rows that meet the condition."""
    op.create_index(
        name,
        table,
        [sa.text(column) if " " in column else column for column in columns],
        unique=unique,
        postgresql_where=sa.text(where),
        sqlite_where=sa.text(where),
    )

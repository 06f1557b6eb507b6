"""Jobs, who waits for whom, progress, and submissions that were seen before."""

import sqlalchemy as sa
from alembic import op

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Four tables; the partial indexes of the first are what claims and sweeps go by."""
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
    _index("ix_lexigram_jobs_ready", ["queue", *ready], "state = 'ready'")
    _index("ix_lexigram_jobs_ready_all", ready, "state = 'ready'")
    _index("ix_lexigram_jobs_delayed", ["available_at"], "state = 'delayed'")
    _index("ix_lexigram_jobs_leased", ["lease_until"], "state = 'running'")
    _index(
        "uq_lexigram_jobs_unique_key",
        ["unique_key"],
        f"unique_key IS NOT NULL AND {unfinished}",
        unique=True,
    )
    _index(
        "uq_lexigram_jobs_idempotency_key",
        ["idempotency_key"],
        "idempotency_key IS NOT NULL",
        unique=True,
    )
    _index("ix_lexigram_jobs_ended", ["completed_at"], "state IN ('completed', 'cancelled')")
    _index("ix_lexigram_jobs_failed", ["completed_at DESC"], "state = 'failed'")
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


def _index(name: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    op.create_index(
        name,
        "lexigram_jobs",
        [sa.text(column) if " " in column else column for column in columns],
        unique=unique,
        postgresql_where=sa.text(where),
        sqlite_where=sa.text(where),
    )


def downgrade() -> None:
    """All jobs are gone, those that wait too."""
    op.drop_table("lexigram_job_submissions")
    op.drop_table("lexigram_job_progress")
    op.drop_table("lexigram_job_edges")
    op.drop_table("lexigram_jobs")

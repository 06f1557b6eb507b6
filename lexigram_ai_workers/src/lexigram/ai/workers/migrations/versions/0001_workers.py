"""Dead letters, statistics and runs of maintenance tasks."""

import sqlalchemy as sa
from alembic import op

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "lexigram_ai_dead_letters",
        sa.Column("source", sa.String(32), primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("failure_count", sa.Integer, nullable=False),
        sa.Column("first_failure", sa.Double, nullable=False),
        sa.Column("last_failure", sa.Double, nullable=False),
        sa.Column("last_error", sa.Text, nullable=False),
        sa.Column("category", sa.String(16), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("retry_count", sa.Integer, nullable=False),
        sa.Column("max_retries", sa.Integer, nullable=False),
        sa.Column("next_retry", sa.Double, nullable=False),
        sa.Column("retried_at", sa.Double),
        sa.Column("notified", sa.Boolean, nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
    )
    op.create_index(
        "ix_lexigram_ai_dead_letters_state", "lexigram_ai_dead_letters", ["state", "next_retry"]
    )
    op.create_index("ix_lexigram_ai_dead_letters_id", "lexigram_ai_dead_letters", ["id"])
    op.create_index(
        "ix_lexigram_ai_dead_letters_latest", "lexigram_ai_dead_letters", ["last_failure"]
    )
    op.create_table(
        "lexigram_ai_figures",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("period", sa.BigInteger, primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
    )
    op.create_index("ix_lexigram_ai_figures_period", "lexigram_ai_figures", ["period"])
    op.create_table(
        "lexigram_ai_maintenance_runs",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("task", sa.String(200), nullable=False),
        sa.Column("task_type", sa.String(32), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("completed_at", sa.Double, nullable=False),
        sa.Column("items_processed", sa.BigInteger, nullable=False),
        sa.Column("items_deleted", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("notes", sa.Text, nullable=False),
    )
    op.create_index(
        "ix_lexigram_ai_maintenance_runs_task", "lexigram_ai_maintenance_runs", ["task", "id"]
    )


def downgrade() -> None:
    """Drop the tables; dead letters remain at their sources."""
    op.drop_table("lexigram_ai_maintenance_runs")
    op.drop_table("lexigram_ai_figures")
    op.drop_table("lexigram_ai_dead_letters")

"""Runs of graphs and their checkpoints."""

import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    """Two tables."""
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


def downgrade() -> None:
    """Paused runs are lost."""
    op.drop_table("lexigram_graph_checkpoints")
    op.drop_table("lexigram_graph_runs")

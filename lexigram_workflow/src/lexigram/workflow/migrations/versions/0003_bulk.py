"""What bulk operations finished."""

import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    """Two tables."""
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


def downgrade() -> None:
    """Operations that were cut off begin anew."""
    op.drop_table("lexigram_bulk_batches")
    op.drop_table("lexigram_bulk_operations")

"""Fenced locks, and the number that fences them."""

import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    """Two tables; the fence has its one row from the start."""
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
    op.execute("INSERT INTO lexigram_lock_fence (id, last) VALUES (1, 0)")


def downgrade() -> None:
    """All locks are gone; fences begin anew."""
    op.drop_table("lexigram_lock_fence")
    op.drop_table("lexigram_locks")

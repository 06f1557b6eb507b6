"""Values of the cache in the database, and keys that were claimed once."""

import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    """Two tables that know their rows by namespace and key."""
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


def downgrade() -> None:
    """Stored values and claims are gone."""
    op.drop_table("lexigram_idempotency")
    op.drop_table("lexigram_cache")

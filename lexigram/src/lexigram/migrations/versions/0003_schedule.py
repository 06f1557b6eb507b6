"""Schedules, and the ticks they fired."""

import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    """Two tables; the primary key of the second is what makes a tick fire once."""
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
    op.create_index(
        "ix_lexigram_schedule_firings_lease",
        "lexigram_schedule_firings",
        ["lease"],
        sqlite_where=sa.text("lease IS NOT NULL"),
        postgresql_where=sa.text("lease IS NOT NULL"),
    )
    op.create_index("ix_lexigram_schedule_firings_fired", "lexigram_schedule_firings", ["fired"])


def downgrade() -> None:
    """All schedules are gone; those declared in code come back at the next start."""
    op.drop_table("lexigram_schedule_firings")
    op.drop_table("lexigram_schedules")

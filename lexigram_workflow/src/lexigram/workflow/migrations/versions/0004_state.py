"""Transitions of state machines."""

import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    """One table."""
    op.create_table(
        "workflow_state_transitions",
        sa.Column("machine_id", sa.String(255), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("from_state", sa.String(255), nullable=False),
        sa.Column("event", sa.String(255), nullable=False),
        sa.Column("to_state", sa.String(255), nullable=False),
        sa.Column("transitioned_at", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Every machine is at its start again."""
    op.drop_table("workflow_state_transitions")

"""Sagas, and outputs of stages by content."""

import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    """Two tables."""
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


def downgrade() -> None:
    """Sagas that were cut off can no longer be gone on with."""
    op.drop_table("workflow_content_checkpoints")
    op.drop_table("lexigram_sagas")

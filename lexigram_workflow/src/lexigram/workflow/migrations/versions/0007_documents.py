"""Documents of durable runs: batches, contents, URIs with their history."""

import sqlalchemy as sa
from alembic import op

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_BATCHES = "lexigram_durable_batches"
_DOCUMENTS = "lexigram_durable_documents"
_URIS = "lexigram_durable_document_uris"
_HISTORY = "lexigram_durable_uri_history"
_MEMBERS = "lexigram_durable_batch_documents"
_GROUPS_INDEX = "ix_lexigram_durable_groups_batch"


def upgrade() -> None:
    """New tables only, and an index on a column that never changes."""
    where = sa.text("batch_id IS NOT NULL")
    op.create_index(
        _GROUPS_INDEX,
        "lexigram_durable_groups",
        ["batch_id"],
        postgresql_where=where,
        sqlite_where=where,
    )
    op.create_table(
        _BATCHES,
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(255)),
        sa.Column("source", sa.String(255), nullable=False),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("completed_at", sa.Double),
        sqlite_autoincrement=True,
    )
    op.create_table(
        _DOCUMENTS,
        sa.Column("hash", sa.String(80), primary_key=True),
        sa.Column("mime_type", sa.String(255), nullable=False),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_table(
        _URIS,
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("source", sa.String(255), nullable=False, index=True),
        sa.Column(
            "doc_hash",
            sa.String(80),
            sa.ForeignKey(f"{_DOCUMENTS}.hash"),
            nullable=False,
            index=True,
        ),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("batch_id", sa.BigInteger, sa.ForeignKey(f"{_BATCHES}.id")),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        _HISTORY,
        sa.Column(
            "uri_id",
            sa.BigInteger,
            sa.ForeignKey(f"{_URIS}.id"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("doc_hash", sa.String(80), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("batch_id", sa.BigInteger),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_table(
        _MEMBERS,
        sa.Column(
            "batch_id",
            sa.BigInteger,
            sa.ForeignKey(f"{_BATCHES}.id"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column(
            "uri_id",
            sa.BigInteger,
            sa.ForeignKey(f"{_URIS}.id"),
            primary_key=True,
            autoincrement=False,
            index=True,
        ),
        sa.Column(
            "doc_hash",
            sa.String(80),
            sa.ForeignKey(f"{_DOCUMENTS}.hash"),
            nullable=False,
            index=True,
        ),
    )


def downgrade() -> None:
    """All documents and batches are gone; their blobs stay."""
    for table in (_MEMBERS, _HISTORY, _URIS, _DOCUMENTS, _BATCHES):
        op.drop_table(table)
    op.drop_index(_GROUPS_INDEX, "lexigram_durable_groups")

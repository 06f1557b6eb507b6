"""The tables of documents and batches; the migrations create the same."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, String, Table, Text

from lexigram.workflow.durable.store.tables import SERIAL, groups, metadata, where

# The groups of a batch: they determine whether it is completed.
Index(
    "ix_lexigram_durable_groups_batch",
    groups.c.batch_id,
    **where("batch_id IS NOT NULL"),
)

batches = Table(
    "lexigram_durable_batches",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("name", String(255)),
    Column("source", String(255), nullable=False),
    # JSON
    Column("params", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    # kept for when retention has removed its groups; while there are some, they tell
    Column("completed_at", Double),
    sqlite_autoincrement=True,
)

# One row for each content, whatever it is called. Its blob was there before the row.
documents = Table(
    "lexigram_durable_documents",
    metadata,
    # "sha256-" and 64 digits
    Column("hash", String(80), primary_key=True),
    Column("mime_type", String(255), nullable=False),
    Column("file_size", BigInteger, nullable=False),
    # JSON
    Column("metadata", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

# What a source calls its documents, and the content that is there now.
document_uris = Table(
    "lexigram_durable_document_uris",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    # hash of source and URI: these are too long for an index
    Column("key", String(64), nullable=False, unique=True),
    Column("uri", Text, nullable=False),
    Column("source", String(255), nullable=False, index=True),
    Column(
        "doc_hash",
        String(80),
        ForeignKey("lexigram_durable_documents.hash"),
        nullable=False,
        index=True,
    ),
    # from 1; one more for each new content
    Column("version", Integer, nullable=False),
    # the last one that brought it
    Column("batch_id", BigInteger, ForeignKey("lexigram_durable_batches.id")),
    # JSON
    Column("metadata", Text, nullable=False),
    Column("updated_at", Double, nullable=False),
    sqlite_autoincrement=True,
)

# Insert only: which content a URI had when.
uri_history = Table(
    "lexigram_durable_uri_history",
    metadata,
    Column(
        "uri_id",
        BigInteger,
        ForeignKey("lexigram_durable_document_uris.id"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # the document may be gone
    Column("doc_hash", String(80), nullable=False),
    # create, update
    Column("action", String(16), nullable=False),
    Column("batch_id", BigInteger),
    Column("created_at", Double, nullable=False),
)

# What a batch brought, also when it was there before: its runs are made from this.
batch_documents = Table(
    "lexigram_durable_batch_documents",
    metadata,
    Column(
        "batch_id",
        BigInteger,
        ForeignKey("lexigram_durable_batches.id"),
        primary_key=True,
        autoincrement=False,
    ),
    Column(
        "uri_id",
        BigInteger,
        ForeignKey("lexigram_durable_document_uris.id"),
        primary_key=True,
        autoincrement=False,
        index=True,
    ),
    Column(
        "doc_hash",
        String(80),
        ForeignKey("lexigram_durable_documents.hash"),
        nullable=False,
        index=True,
    ),
)

# The last synced state of a source, for incremental syncs.
sync_states = Table(
    "lexigram_durable_sync_states",
    metadata,
    # what the caller names the source, as "gitea:admin:repo"
    Column("source_id", String(255), primary_key=True),
    Column("commit_sha", String(255)),
    Column("branch", String(255), nullable=False),
    # JSON
    Column("metadata", Text, nullable=False),
    Column("synced_at", Double, nullable=False),
)

"""The tables of the cache and of the idempotency store."""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()

# Values of all named caches: ``namespace`` tells them apart. Times are seconds since 1970 by the
# clock of the database (PostgreSQL) or of the machine (SQLite); no time means for ever.
cache = Table(
    "lexigram_cache",
    metadata,
    Column("namespace", String(128), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
    Column("expires_at", Double),
    # For the sweep alone; all other statements go by the primary key.
    Index("ix_lexigram_cache_expires_at", "expires_at"),
)

idempotency = Table(
    "lexigram_idempotency",
    metadata,
    Column("namespace", String(128), primary_key=True),
    Column("key", Text, primary_key=True),
    # in_progress: claimed, nothing known yet. completed: ``value`` is the outcome.
    Column("status", String(16), nullable=False),
    Column("value", LargeBinary),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Index("ix_lexigram_idempotency_expires_at", "expires_at"),
)

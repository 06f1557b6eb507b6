"""The tables of the locks; migrations/versions/0001_locks.py makes the same."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    event,
)

metadata = MetaData()

locks = Table(
    "lexigram_locks",
    metadata,
    Column("resource_key", String(255), primary_key=True),
    Column("holder_id", String(255), nullable=False),
    Column("holder_kind", String(32), nullable=False),
    Column("holder_meta", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("acquired_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    # For the sweep alone; all other statements go by the primary key.
    Index("ix_lexigram_locks_expires_at", "expires_at"),
)

# One row for all keys. It outlives the locks, so fences go on after a sweep.
fence = Table(
    "lexigram_lock_fence",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
)


@event.listens_for(fence, "after_create")
def _first_fence(table: Table, connection: Connection, **_: Any) -> None:
    connection.execute(table.insert().values(id=1, last=0))

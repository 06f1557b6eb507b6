"""The tables of schedules. Times are milliseconds since 1970 UTC: exact, and equal everywhere."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text, text

metadata = MetaData()

schedules = Table(
    "lexigram_schedules",
    metadata,
    Column("name", String(200), primary_key=True),
    # JSON, written by definition.py
    Column("definition", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("origin", String(16), nullable=False),
    # the application that declares it in code
    Column("owner", String(200), nullable=False),
    # the first tick that was neither fired nor dropped; it never goes back
    Column("next_tick", BigInteger),
    # when to fire it: the tick and its jitter, or the next try after a failure; NULL: never
    Column("due", BigInteger),
    Column("last_tick", BigInteger),
    Column("failures", Integer, nullable=False),
    Column("last_error", Text),
    # Finding what is due, and when the next one will be, reads this index from its start.
    Index("ix_lexigram_schedules_due", "due"),
)

firings = Table(
    "lexigram_schedule_firings",
    metadata,
    # The primary key is the promise: a tick of a schedule is recorded once.
    Column("schedule", String(200), primary_key=True),
    Column("tick", BigInteger, primary_key=True, autoincrement=False),
    # 1: asked for by a person; it may fall on the same millisecond as a tick
    Column("manual", Integer, primary_key=True, autoincrement=False),
    Column("fired", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reference", Text),
    Column("error", Text),
    # Of in-process callbacks: which one, who runs it, and until when that counts.
    Column("callback", String(200)),
    Column("holder", String(255)),
    # NULL unless a callback is unfinished; the index holds only those few.
    Column("lease", BigInteger),
    Index(
        "ix_lexigram_schedule_firings_lease",
        "lease",
        sqlite_where=text("lease IS NOT NULL"),
        postgresql_where=text("lease IS NOT NULL"),
    ),
    # For forgetting old ones.
    Index("ix_lexigram_schedule_firings_fired", "fired"),
)

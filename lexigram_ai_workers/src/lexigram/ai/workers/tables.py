"""The tables of the AI workers; times are seconds since 1970 by the clock of the process."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData()

_SERIAL = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers INTEGER keys only

# What the dead letter worker knows about each letter. The letter itself stays at its source.
dead_letters = Table(
    "lexigram_ai_dead_letters",
    metadata,
    # jobs, bus, or added: ids are unique in one of them only
    Column("source", String(32), primary_key=True),
    Column("id", Text, primary_key=True),
    # JSON; what failed
    Column("payload", Text, nullable=False),
    Column("failure_count", Integer, nullable=False),
    Column("first_failure", Double, nullable=False),
    Column("last_failure", Double, nullable=False),
    Column("last_error", Text, nullable=False),
    Column("category", String(16), nullable=False),
    # waiting, retrying or archived
    Column("state", String(12), nullable=False),
    Column("retry_count", Integer, nullable=False),
    Column("max_retries", Integer, nullable=False),
    # when a waiting one may be tried again
    Column("next_retry", Double, nullable=False),
    # when it was last sent again
    Column("retried_at", Double),
    # somebody was told that it will not be tried again
    Column("notified", Boolean, nullable=False),
    # JSON; what else is known
    Column("notes", Text, nullable=False),
    # Looks for due ones, and for those whose outcome is open.
    Index("ix_lexigram_ai_dead_letters_state", "state", "next_retry"),
    # The API goes by id alone, and lists the latest first.
    Index("ix_lexigram_ai_dead_letters_id", "id"),
    Index("ix_lexigram_ai_dead_letters_latest", "last_failure"),
)

# Sums by name: of one period (its first second), and since ever (period 0).
figures = Table(
    "lexigram_ai_figures",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("period", BigInteger, primary_key=True),
    Column("value", Double, nullable=False),
    # Reading back, and forgetting, goes by time.
    Index("ix_lexigram_ai_figures_period", "period"),
)

# How runs of maintenance tasks went.
maintenance_runs = Table(
    "lexigram_ai_maintenance_runs",
    metadata,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("task", String(200), nullable=False),
    Column("task_type", String(32), nullable=False),
    Column("status", String(16), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("completed_at", Double, nullable=False),
    Column("items_processed", BigInteger, nullable=False),
    Column("items_deleted", BigInteger, nullable=False),
    Column("error", Text),
    # JSON
    Column("notes", Text, nullable=False),
    # The history of one task, latest first.
    Index("ix_lexigram_ai_maintenance_runs_task", "task", "id"),
)

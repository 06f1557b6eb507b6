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

_SERIAL = BigInteger().with_variant(Integer, "sqlite")  # SQLite generates ids only for INTEGER

# State of each dead letter for the dead-letter worker; the dead letter itself stays at its source.
dead_letters = Table(
    "lexigram_ai_dead_letters",
    metadata,
    # jobs, bus or added; ids are unique per source
    Column("source", String(32), primary_key=True),
    Column("id", Text, primary_key=True),
    # the failed job or message, JSON
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
    # time of the next retry
    Column("next_retry", Double, nullable=False),
    # time of the last retry
    Column("retried_at", Double),
    # True after the notification that it is not retried any more
    Column("notified", Boolean, nullable=False),
    # further metadata, JSON
    Column("notes", Text, nullable=False),
    # For due retries, and retries without an outcome.
    Index("ix_lexigram_ai_dead_letters_state", "state", "next_retry"),
    # The API selects by id alone, and lists the latest first.
    Index("ix_lexigram_ai_dead_letters_id", "id"),
    Index("ix_lexigram_ai_dead_letters_latest", "last_failure"),
)

# Statistics by name and period (its first second; 0 for totals).
statistics = Table(
    "lexigram_ai_figures",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("period", BigInteger, primary_key=True),
    Column("value", Double, nullable=False),
    # Reading and deleting select by period.
    Index("ix_lexigram_ai_figures_period", "period"),
)

# Runs of maintenance tasks.
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
    # For the history of a task, latest first.
    Index("ix_lexigram_ai_maintenance_runs_task", "task", "id"),
)

"""The tables of jobs; times are seconds since 1970 by the clock of the store."""

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
    text,
)

metadata = MetaData()

_SERIAL = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers INTEGER keys only

jobs = Table(
    "lexigram_jobs",
    metadata,
    # The order of arrival.
    Column("seq", _SERIAL, primary_key=True, autoincrement=True),
    Column("id", String(512), nullable=False, unique=True),
    Column("name", String(512), nullable=False),
    Column("queue", String(512), nullable=False),
    Column("priority", Integer, nullable=False),
    # JSON with args and kwargs; empty when there are none.
    Column("payload", Text, nullable=False),
    Column("max_retries", Integer, nullable=False),
    Column("max_deliveries", Integer, nullable=False),
    Column("timeout", Double),
    Column("result_ttl", Double),
    Column("unique_key", String(512)),
    Column("idempotency_key", String(512)),
    # Ids, one a line, for people; lexigram_job_edges has what is still waited for.
    Column("depends_on", Text, nullable=False),
    Column("on_dependency_failure", String(16), nullable=False),
    Column("correlation_id", String(512)),
    Column("causation_id", String(512)),
    # ready, delayed, waiting, running, completed, failed, cancelled: see lexigram.tasks.store.
    Column("state", String(16), nullable=False),
    Column("scheduled_at", Double),
    # When it could be claimed, or can be.
    Column("available_at", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("completed_at", Double),
    Column("retry_count", Integer, nullable=False, server_default=text("0")),
    Column("lost_count", Integer, nullable=False, server_default=text("0")),
    Column("error", Text, nullable=False, server_default=text("''")),
    Column("reason", String(255), nullable=False, server_default=text("''")),
    # Metadata of a dead letter as JSON.
    Column("notes", Text, nullable=False, server_default=text("''")),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    # Unfinished jobs it waits for.
    Column("waits", Integer, nullable=False, server_default=text("0")),
    # Whether an edge leads to it: those who end a job look for edges only then.
    Column("is_awaited", Boolean, nullable=False, server_default=text("false")),
    Column("lease", String(255)),
    Column("lease_until", Double),
    # Grows with every claim: with the holder it names one lease.
    Column("fence", Integer, nullable=False, server_default=text("0")),
    Column("result", Text),
    Column("result_until", Double),
    # A number is never used again: a stale lease would name the new job that got it.
    sqlite_autoincrement=True,
)

# The claim of one queue: exactly the claimable rows, in the order they are handed out.
Index(
    "ix_lexigram_jobs_ready",
    jobs.c.queue,
    jobs.c.priority.desc(),
    jobs.c.available_at,
    jobs.c.seq,
    postgresql_where=text("state = 'ready'"),
    sqlite_where=text("state = 'ready'"),
)
# The claim of all queues.
Index(
    "ix_lexigram_jobs_ready_all",
    jobs.c.priority.desc(),
    jobs.c.available_at,
    jobs.c.seq,
    postgresql_where=text("state = 'ready'"),
    sqlite_where=text("state = 'ready'"),
)
# Which delayed jobs are due, and which one is next.
Index(
    "ix_lexigram_jobs_delayed",
    jobs.c.available_at,
    postgresql_where=text("state = 'delayed'"),
    sqlite_where=text("state = 'delayed'"),
)
# Whose holder died.
Index(
    "ix_lexigram_jobs_leased",
    jobs.c.lease_until,
    postgresql_where=text("state = 'running'"),
    sqlite_where=text("state = 'running'"),
)
# One unfinished job per key.
Index(
    "uq_lexigram_jobs_unique_key",
    jobs.c.unique_key,
    unique=True,
    postgresql_where=text(
        "unique_key IS NOT NULL AND state IN ('ready', 'delayed', 'waiting', 'running')"
    ),
    sqlite_where=text(
        "unique_key IS NOT NULL AND state IN ('ready', 'delayed', 'waiting', 'running')"
    ),
)
# One job per key, as long as it is kept.
Index(
    "uq_lexigram_jobs_idempotency_key",
    jobs.c.idempotency_key,
    unique=True,
    postgresql_where=text("idempotency_key IS NOT NULL"),
    sqlite_where=text("idempotency_key IS NOT NULL"),
)
# Retention goes through these from the old end.
Index(
    "ix_lexigram_jobs_ended",
    jobs.c.completed_at,
    postgresql_where=text("state IN ('completed', 'cancelled')"),
    sqlite_where=text("state IN ('completed', 'cancelled')"),
)
# Dead letters, latest first.
Index(
    "ix_lexigram_jobs_failed",
    jobs.c.completed_at.desc(),
    postgresql_where=text("state = 'failed'"),
    sqlite_where=text("state = 'failed'"),
)

# Dependencies between jobs, while both are unfinished.
edges = Table(
    "lexigram_job_edges",
    metadata,
    Column("depends_on", String(512), primary_key=True),
    Column("job_id", String(512), primary_key=True),
)

progress = Table(
    "lexigram_job_progress",
    metadata,
    Column("task_id", String(512), primary_key=True),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("message", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("updated_at", Double, nullable=False),
)
# Retention.
Index("ix_lexigram_job_progress_updated_at", progress.c.updated_at)

submissions = Table(
    "lexigram_job_submissions",
    metadata,
    Column("key", String(512), primary_key=True),
    Column("task_id", String(512), nullable=False),
    Column("task_name", String(512), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("is_completed", Boolean, nullable=False),
    Column("result", Text),
)
# Retention.
Index("ix_lexigram_job_submissions_created_at", submissions.c.created_at)

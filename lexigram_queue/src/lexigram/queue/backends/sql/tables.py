"""The tables of the bus, its outbox and its inbox; times are seconds since 1970.

A body is stored once, however many groups get it: a message row, and a small delivery row for
each group. PostgreSQL measures leases and delays by its own clock, SQLite by that of the machine.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

_SERIAL = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers INTEGER keys only

# Who gets which messages.
groups = Table(
    "lexigram_bus_groups",
    metadata,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("topic", Text, nullable=False),
    Column("name", Text, nullable=False),
    # For a pattern: what LIKE (PostgreSQL) or GLOB (SQLite) compares topics with.
    Column("matches", Text),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("temporary", Boolean, nullable=False, server_default=text("false")),
    # When a message was last received, roughly: an unused temporary group is dropped.
    Column("used_at", Double, nullable=False),
    UniqueConstraint("topic", "name", name="uq_lexigram_bus_groups_topic_name"),
    sqlite_autoincrement=True,  # the number of a dropped group is not given out again
)
# Publishing compares with all patterns.
Index(
    "ix_lexigram_bus_groups_patterns",
    groups.c.id,
    postgresql_where=text("matches IS NOT NULL"),
    sqlite_where=text("matches IS NOT NULL"),
)

messages = Table(
    "lexigram_bus_messages",
    metadata,
    # The order of arrival. Never given out twice: an old receipt must not fit a new message.
    Column("seq", _SERIAL, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    # A JSON object, text by text.
    Column("headers", Text, nullable=False),
    Column("sent_at", Double, nullable=False),
    Column("ttl", Double),
    Column("priority", Integer, nullable=False),
    Column("guarantee", String(16), nullable=False),
    Column("retry_count", Integer, nullable=False),
    Column("max_retries", Integer, nullable=False),
    # Not delivered earlier; the past for most.
    Column("due_at", Double, nullable=False),
    Column("ordering_key", Text),
    # Whose turn it takes: the fairness key, else the ordering key.
    Column("lane", Text),
    # Groups that got it; 0: it waits for the first group of its topic.
    Column("copies", Integer, nullable=False),
    # Groups that are not done with it, where there are several; the last one deletes the row.
    Column("remaining", Integer, nullable=False),
    sqlite_autoincrement=True,
)
# The backlog of a topic without a group.
Index(
    "ix_lexigram_bus_messages_backlog",
    messages.c.topic,
    messages.c.seq,
    postgresql_where=text("copies = 0"),
    sqlite_where=text("copies = 0"),
)
# What a crash between the last two statements of an acknowledgement left.
Index(
    "ix_lexigram_bus_messages_done",
    messages.c.seq,
    postgresql_where=text("remaining <= 0 AND copies > 0"),
    sqlite_where=text("remaining <= 0 AND copies > 0"),
)

deliveries = Table(
    "lexigram_bus_deliveries",
    metadata,
    Column("group_id", BigInteger, nullable=False),
    Column("message", BigInteger, nullable=False),
    Column("id", Text, nullable=False),
    # ready; delayed until due_at; leased until due_at; dead, with ``dead`` set.
    Column("state", String(8), nullable=False),
    Column("due_at", Double, nullable=False),
    # Order of delivery: priority first, then whose turn it is; equal ones by the time since when
    # they may be delivered, then by message.
    Column("rank", BigInteger, nullable=False),
    Column("queued_at", Double, nullable=False),
    Column("ordering_key", Text),
    Column("lane", Text),
    # Grows with every lease: with group and message it names one delivery.
    Column("fence", Integer, nullable=False, server_default=text("0")),
    # Since it was last settled.
    Column("delivery_count", Integer, nullable=False, server_default=text("0")),
    # Where this group's message differs by now (a retry, a redrive): its envelope as JSON, and
    # its body.
    Column("envelope", Text),
    Column("body", LargeBinary),
    # The error and the other details of a dead letter, as JSON.
    Column("dead", Text),
    # How often its handler was begun after it came back, since it was last settled.
    Column("begun", Integer, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("group_id", "message", name="pk_lexigram_bus_deliveries"),
)
# The claim: exactly the claimable rows, in the order they are handed out.
Index(
    "ix_lexigram_bus_deliveries_ready",
    deliveries.c.group_id,
    deliveries.c.rank,
    deliveries.c.queued_at,
    deliveries.c.message,
    postgresql_where=text("state = 'ready'"),
    sqlite_where=text("state = 'ready'"),
)
# Which delays and leases are over, and which is next.
Index(
    "ix_lexigram_bus_deliveries_due",
    deliveries.c.group_id,
    deliveries.c.due_at,
    postgresql_where=text("state IN ('delayed', 'leased')"),
    sqlite_where=text("state IN ('delayed', 'leased')"),
)
# The last turn of a lane.
Index(
    "ix_lexigram_bus_deliveries_lane",
    deliveries.c.group_id,
    deliveries.c.lane,
    deliveries.c.rank,
    postgresql_where=text("state = 'ready' AND lane IS NOT NULL"),
    sqlite_where=text("state = 'ready' AND lane IS NOT NULL"),
)
# Whether an earlier message of the key is not done.
Index(
    "ix_lexigram_bus_deliveries_key",
    deliveries.c.group_id,
    deliveries.c.ordering_key,
    deliveries.c.message,
    postgresql_where=text("ordering_key IS NOT NULL AND state <> 'dead'"),
    sqlite_where=text("ordering_key IS NOT NULL AND state <> 'dead'"),
)
# Whether a message of the key is being handled.
Index(
    "ix_lexigram_bus_deliveries_running",
    deliveries.c.group_id,
    deliveries.c.ordering_key,
    postgresql_where=text("ordering_key IS NOT NULL AND state = 'leased'"),
    sqlite_where=text("ordering_key IS NOT NULL AND state = 'leased'"),
)
# Dead letters by id, and in pages, oldest first (due_at is when they died).
Index(
    "uq_lexigram_bus_deliveries_dead",
    deliveries.c.group_id,
    deliveries.c.id,
    unique=True,
    postgresql_where=text("state = 'dead'"),
    sqlite_where=text("state = 'dead'"),
)
Index(
    "ix_lexigram_bus_deliveries_died",
    deliveries.c.group_id,
    deliveries.c.due_at,
    deliveries.c.message,
    postgresql_where=text("state = 'dead'"),
    sqlite_where=text("state = 'dead'"),
)

# Ids that were published within the dedup window.
seen = Table(
    "lexigram_bus_seen",
    metadata,
    Column("topic", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("seen_at", Double, nullable=False),
    PrimaryKeyConstraint("topic", "id", name="pk_lexigram_bus_seen"),
)
Index("ix_lexigram_bus_seen_seen_at", seen.c.seen_at)

# Messages that wait for the relay; a published one is deleted.
outbox = Table(
    "lexigram_bus_outbox",
    metadata,
    Column("seq", _SERIAL, primary_key=True, autoincrement=True),
    # The backend that publishes it.
    Column("queue", Text, nullable=False),
    # The outbox object that staged it, for clear() and flush().
    Column("owner", String(255), nullable=False),
    Column("id", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    # Everything but body and topic, as JSON of native headers.
    Column("envelope", Text, nullable=False),
    Column("ordering_key", Text),
    # Not before: the end of a lease of a relay, or of the pause after a failure.
    Column("due_at", Double, nullable=False),
    # The relay that has it; with due_at in the future nobody else takes it.
    Column("holder", String(255)),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("error", Text),
    sqlite_autoincrement=True,
)
# What is to be published, in the order it was staged.
Index("ix_lexigram_bus_outbox_queue", outbox.c.queue, outbox.c.seq)
# Whether an earlier message of the key must go first.
Index(
    "ix_lexigram_bus_outbox_key",
    outbox.c.queue,
    outbox.c.ordering_key,
    outbox.c.seq,
    postgresql_where=text("ordering_key IS NOT NULL"),
    sqlite_where=text("ordering_key IS NOT NULL"),
)

# What an exactly-once group has handled; written in the transaction of the handler.
inbox = Table(
    "lexigram_bus_inbox",
    metadata,
    Column("group_name", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("handled_at", Double, nullable=False),
    PrimaryKeyConstraint("group_name", "message_id", name="pk_lexigram_bus_inbox"),
)
# Retention.
Index("ix_lexigram_bus_inbox_handled_at", inbox.c.handled_at)

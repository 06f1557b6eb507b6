"""Start of the chain: groups, messages, deliveries, message ids, outbox and inbox.

The revisions 0001 and 0002 of development, in one file: a database that has 0002 has the same
tables.
"""

import sqlalchemy as sa
from alembic import op

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create six tables; claims and sweeps read the partial indexes."""
    op.create_table(
        "lexigram_bus_groups",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("matches", sa.Text),
        sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("temporary", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("used_at", sa.Double, nullable=False),
        sa.UniqueConstraint("topic", "name", name="uq_lexigram_bus_groups_topic_name"),
        sqlite_autoincrement=True,
    )
    _index("ix_lexigram_bus_groups_patterns", "lexigram_bus_groups", ["id"], "matches IS NOT NULL")
    op.create_table(
        "lexigram_bus_messages",
        sa.Column("seq", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("sent_at", sa.Double, nullable=False),
        sa.Column("ttl", sa.Double),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("guarantee", sa.String(16), nullable=False),
        sa.Column("retry_count", sa.Integer, nullable=False),
        sa.Column("max_retries", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("ordering_key", sa.Text),
        sa.Column("lane", sa.Text),
        sa.Column("copies", sa.Integer, nullable=False),
        sa.Column("remaining", sa.Integer, nullable=False),
        sqlite_autoincrement=True,
    )
    _index(
        "ix_lexigram_bus_messages_backlog", "lexigram_bus_messages", ["topic", "seq"], "copies = 0"
    )
    _index(
        "ix_lexigram_bus_messages_done",
        "lexigram_bus_messages",
        ["seq"],
        "remaining <= 0 AND copies > 0",
    )
    op.create_table(
        "lexigram_bus_deliveries",
        sa.Column("group_id", sa.BigInteger, nullable=False),
        sa.Column("message", sa.BigInteger, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("rank", sa.BigInteger, nullable=False),
        sa.Column("queued_at", sa.Double, nullable=False),
        sa.Column("ordering_key", sa.Text),
        sa.Column("lane", sa.Text),
        sa.Column("fence", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("delivery_count", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("begun", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("envelope", sa.Text),
        sa.Column("body", sa.LargeBinary),
        sa.Column("dead", sa.Text),
        sa.PrimaryKeyConstraint("group_id", "message", name="pk_lexigram_bus_deliveries"),
    )
    _index(
        "ix_lexigram_bus_deliveries_ready",
        "lexigram_bus_deliveries",
        ["group_id", "rank", "queued_at", "message"],
        "state = 'ready'",
    )
    _index(
        "ix_lexigram_bus_deliveries_due",
        "lexigram_bus_deliveries",
        ["group_id", "due_at"],
        "state IN ('delayed', 'leased')",
    )
    _index(
        "ix_lexigram_bus_deliveries_lane",
        "lexigram_bus_deliveries",
        ["group_id", "lane", "rank"],
        "state = 'ready' AND lane IS NOT NULL",
    )
    _index(
        "ix_lexigram_bus_deliveries_key",
        "lexigram_bus_deliveries",
        ["group_id", "ordering_key", "message"],
        "ordering_key IS NOT NULL AND state <> 'dead'",
    )
    _index(
        "ix_lexigram_bus_deliveries_running",
        "lexigram_bus_deliveries",
        ["group_id", "ordering_key"],
        "ordering_key IS NOT NULL AND state = 'leased'",
    )
    _index(
        "uq_lexigram_bus_deliveries_dead",
        "lexigram_bus_deliveries",
        ["group_id", "id"],
        "state = 'dead'",
        unique=True,
    )
    _index(
        "ix_lexigram_bus_deliveries_died",
        "lexigram_bus_deliveries",
        ["group_id", "due_at", "message"],
        "state = 'dead'",
    )
    op.create_table(
        "lexigram_bus_seen",
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("topic", "id", name="pk_lexigram_bus_seen"),
    )
    op.create_index("ix_lexigram_bus_seen_seen_at", "lexigram_bus_seen", ["seen_at"])
    op.create_table(
        "lexigram_bus_outbox",
        sa.Column("seq", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("envelope", sa.Text, nullable=False),
        sa.Column("ordering_key", sa.Text),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("holder", sa.String(255)),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("error", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_lexigram_bus_outbox_queue", "lexigram_bus_outbox", ["queue", "seq"])
    _index(
        "ix_lexigram_bus_outbox_key",
        "lexigram_bus_outbox",
        ["queue", "ordering_key", "seq"],
        "ordering_key IS NOT NULL",
    )
    op.create_table(
        "lexigram_bus_inbox",
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("handled_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("group_name", "message_id", name="pk_lexigram_bus_inbox"),
    )
    op.create_index("ix_lexigram_bus_inbox_handled_at", "lexigram_bus_inbox", ["handled_at"])


def downgrade() -> None:
    """Drop the tables, with messages that still wait in the outbox."""
    op.drop_table("lexigram_bus_inbox")
    op.drop_table("lexigram_bus_outbox")
    op.drop_table("lexigram_bus_seen")
    op.drop_table("lexigram_bus_deliveries")
    op.drop_table("lexigram_bus_messages")
    op.drop_table("lexigram_bus_groups")


def _index(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    op.create_index(
        name,
        table,
        columns,
        unique=unique,
        postgresql_where=sa.text(where),
        sqlite_where=sa.text(where),
    )

"""Which database there is, and how patient we are with it."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from attrs import field, frozen
from attrs.validators import ge, gt

from lexigram.config import BaseConfig, doc, secret


class Synchronous(StrEnum):
    """What a SQLite commit waits for."""

    # A killed process loses nothing; a power cut may lose the last commits, never consistency.
    NORMAL = "NORMAL"
    # A power cut loses nothing; every commit waits for the disk.
    FULL = "FULL"


class Isolation(StrEnum):
    """What PostgreSQL transactions see of each other."""

    READ_COMMITTED = "read committed"
    REPEATABLE_READ = "repeatable read"
    SERIALIZABLE = "serializable"


class Migrate(StrEnum):
    """Whether the start of an application may change tables; `lexigram db upgrade` always may."""

    # SQLite yes, PostgreSQL no.
    AUTO = "auto"
    ALWAYS = "always"
    # Pending migrations stop the start.
    NEVER = "never"


@frozen(kw_only=True)
class SqlConfig(BaseConfig):
    """Section ``sql``: the database of the application."""

    config_section: ClassVar[str] = "sql"

    url: str = field(
        default="sqlite:///lexigram.db",
        metadata=secret("sqlite:///file.db, sqlite:// or postgresql://user:password@host/name."),
    )
    migrate: Migrate = field(
        default=Migrate.AUTO,
        metadata=doc("Run migrations at the start: auto (SQLite only), always or never."),
    )
    statement_timeout: float = field(
        default=30.0, validator=gt(0), metadata=doc("Seconds a statement may run.")
    )
    max_transaction: float = field(
        default=60.0, validator=gt(0), metadata=doc("Seconds a transaction may stay open.")
    )
    retry_attempts: int = field(
        default=5, validator=ge(1), metadata=doc("Tries of work that failed for the moment.")
    )
    connect_timeout: float = field(
        default=10.0, validator=gt(0), metadata=doc("Seconds to wait for a connection.")
    )
    # SQLite
    busy_timeout: float = field(
        default=10.0, validator=ge(0), metadata=doc("Seconds to wait for another process.")
    )
    synchronous: Synchronous = field(
        default=Synchronous.NORMAL, metadata=doc("NORMAL, or FULL to survive a power cut.")
    )
    readers: int = field(default=2, validator=ge(1), metadata=doc("SQLite reader threads."))
    # PostgreSQL
    pool_size: int = field(default=10, validator=ge(1), metadata=doc("PostgreSQL connections."))
    isolation: Isolation = field(
        default=Isolation.READ_COMMITTED, metadata=doc("Of PostgreSQL transactions.")
    )

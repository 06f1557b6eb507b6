"""Migrations: one chain of files and one version table per distribution, run by alembic."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.sql.migrate.installed import installed_migrations
    from lexigram.sql.migrate.record import Migrations
    from lexigram.sql.migrate.runner import (
        check,
        downgrade,
        history,
        status,
        upgrade,
        upgrade_sql,
    )
    from lexigram.sql.migrate.schema import snapshot
    from lexigram.sql.migrate.scripts import Migration
    from lexigram.sql.migrate.versions import Status
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.sql.migrate.installed": ["installed_migrations"],
            "lexigram.sql.migrate.record": ["Migrations"],
            "lexigram.sql.migrate.runner": [
                "check",
                "downgrade",
                "history",
                "status",
                "upgrade",
                "upgrade_sql",
            ],
            "lexigram.sql.migrate.schema": ["snapshot"],
            "lexigram.sql.migrate.scripts": ["Migration"],
            "lexigram.sql.migrate.versions": ["Status"],
        },
    )

__all__ = [
    "Migration",
    "Migrations",
    "Status",
    "check",
    "downgrade",
    "history",
    "installed_migrations",
    "snapshot",
    "status",
    "upgrade",
    "upgrade_sql",
]

"""Where the migrations of the core are, and which tables they make.

A package of the core adds its tables by a file ``versions/NNNN_what.py`` with the next number,
``upgrade()`` and ``downgrade()``, and by the line of its MetaData below. Nothing else: the number
is the revision, and the files form one chain by their numbers. A test compares both ways.
"""

from lexigram.sql.migrate.record import Migrations

MIGRATIONS = Migrations(
    distribution="lexigram",
    versions="lexigram.migrations.versions",
    metadata=(
        "lexigram.sql.locks.tables:metadata",
        "lexigram.cache.tables:metadata",
        "lexigram.schedule.tables:metadata",
        "lexigram.tasks.tables:metadata",
    ),
)

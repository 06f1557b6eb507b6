"""Where the migrations of the bus are, and which tables they make.

New tables come by a file ``versions/NNNN_what.py`` with the next number, and stand in
``lexigram.queue.backends.sql.tables`` too. A test compares both ways.
"""

from lexigram.sql.migrate.record import Migrations

MIGRATIONS = Migrations(
    distribution="lexigram-queue",
    versions="lexigram.queue.migrations.versions",
    metadata=("lexigram.queue.backends.sql.tables:metadata",),
)

"""Where the migrations of the AI workers are, and which tables they make.

New tables come by a file ``versions/NNNN_what.py`` with the next number, and stand in
``lexigram.ai.workers.tables`` too. A test compares both ways.
"""

from lexigram.sql.migrate.record import Migrations

MIGRATIONS = Migrations(
    distribution="lexigram-ai-workers",
    versions="lexigram.ai.workers.migrations.versions",
    metadata=("lexigram.ai.workers.tables:metadata",),
)

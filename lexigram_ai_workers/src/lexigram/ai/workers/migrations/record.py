"""The registration of the migrations of the AI workers.

To add a table, add a file ``versions/NNNN_name.py`` with the next number, and the table to
``lexigram.ai.workers.tables``. A test compares both.
"""

from lexigram.sql.migrate.record import Migrations

MIGRATIONS = Migrations(
    distribution="lexigram-ai-workers",
    versions="lexigram.ai.workers.migrations.versions",
    metadata=("lexigram.ai.workers.tables:metadata",),
)

"""What this distribution says about its tables.

A new table is a file ``versions/NNNN_what.py`` with the next number and a Table in ``tables.py``.
"""

from __future__ import annotations

from lexigram.sql.migrate.record import Migrations

MIGRATIONS = Migrations(
    distribution="lexigram-workflow",
    versions="lexigram.workflow.migrations.versions",
    metadata=(
        "lexigram.workflow.tables:metadata",
        "lexigram.workflow.durable.store.document_tables:metadata",
    ),
)

"""Migrations of the AI workers; see ``record.py``."""

from lexigram.ai.workers.migrations.record import MIGRATIONS

__all__ = ["MIGRATIONS"]

"""The tables of the AI workers, in the order in which they came; ``record.py`` says how to add."""

from lexigram.ai.workers.migrations.record import MIGRATIONS

__all__ = ["MIGRATIONS"]

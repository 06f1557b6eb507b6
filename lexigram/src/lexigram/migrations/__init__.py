"""The tables of the core, in the order in which they came; ``record.py`` says how to add some."""

from lexigram.migrations.record import MIGRATIONS

__all__ = ["MIGRATIONS"]

"""The tables of the bus, in the order in which they came; ``record.py`` says how to add some."""

from lexigram.queue.migrations.record import MIGRATIONS

__all__ = ["MIGRATIONS"]

"""The tables of workflows, in the order in which they came; ``record.py`` says how to add some."""

from lexigram.workflow.migrations.record import MIGRATIONS

__all__ = ["MIGRATIONS"]

"""The import path of the persistence in the 0.1 line."""

from lexigram.workflow.state.store_sql import DatabaseStatePersistence

__all__ = ["DatabaseStatePersistence"]

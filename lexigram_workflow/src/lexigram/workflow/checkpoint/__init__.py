"""Stores of stage outputs, found by the content of their inputs.

The stores of runs can be imported from here too; they are in ``lexigram.workflow.runs``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.workflow.checkpoint.store_cache import CacheContentCheckpointStore
    from lexigram.workflow.checkpoint.store_database import DatabaseContentCheckpointStore
    from lexigram.workflow.checkpoint.store_memory import InMemoryContentCheckpointStore
    from lexigram.workflow.runs.memory import InMemoryCheckpointStore
    from lexigram.workflow.runs.store_sql import SqlCheckpointStore
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.workflow.runs.memory": ["InMemoryCheckpointStore"],
            "lexigram.workflow.checkpoint.store_cache": ["CacheContentCheckpointStore"],
            "lexigram.workflow.checkpoint.store_database": ["DatabaseContentCheckpointStore"],
            "lexigram.workflow.checkpoint.store_memory": ["InMemoryContentCheckpointStore"],
            "lexigram.workflow.runs.store_sql": ["SqlCheckpointStore"],
        },
    )

__all__ = [
    "CacheContentCheckpointStore",
    "DatabaseContentCheckpointStore",
    "InMemoryCheckpointStore",
    "InMemoryContentCheckpointStore",
    "SqlCheckpointStore",
]

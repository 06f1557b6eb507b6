"""Bulk work: many items through a bounded window, with retries, progress and resume."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.workflow.bulk.checkpoint_cache import CacheBulkCheckpoints
    from lexigram.workflow.bulk.combinators import bulk_filter, bulk_map, bulk_reduce
    from lexigram.workflow.bulk.errors import (
        BulkOperationBusyError,
        BulkOperationCancelledError,
        BulkOperationError,
        BulkOperationTimeoutError,
    )
    from lexigram.workflow.bulk.models import (
        BulkBatchResult,
        BulkItemError,
        BulkOperationMetrics,
        BulkOperationState,
    )
    from lexigram.workflow.bulk.operation import BulkOperation
    from lexigram.workflow.bulk.store_sql import SqlBulkCheckpoints
    from lexigram.workflow.config import BulkOperationConfig
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.workflow.bulk.checkpoint_cache": ["CacheBulkCheckpoints"],
            "lexigram.workflow.bulk.combinators": ["bulk_filter", "bulk_map", "bulk_reduce"],
            "lexigram.workflow.bulk.errors": [
                "BulkOperationBusyError",
                "BulkOperationCancelledError",
                "BulkOperationError",
                "BulkOperationTimeoutError",
            ],
            "lexigram.workflow.bulk.models": [
                "BulkBatchResult",
                "BulkItemError",
                "BulkOperationMetrics",
                "BulkOperationState",
            ],
            "lexigram.workflow.bulk.operation": ["BulkOperation"],
            "lexigram.workflow.bulk.store_sql": ["SqlBulkCheckpoints"],
            "lexigram.workflow.config": ["BulkOperationConfig"],
        },
    )

__all__ = [
    "BulkBatchResult",
    "BulkItemError",
    "BulkOperation",
    "BulkOperationBusyError",
    "BulkOperationCancelledError",
    "BulkOperationConfig",
    "BulkOperationError",
    "BulkOperationMetrics",
    "BulkOperationState",
    "BulkOperationTimeoutError",
    "CacheBulkCheckpoints",
    "SqlBulkCheckpoints",
    "bulk_filter",
    "bulk_map",
    "bulk_reduce",
]

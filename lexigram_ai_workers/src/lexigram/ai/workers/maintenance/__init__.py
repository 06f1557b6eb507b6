"""Maintenance: scheduled tasks, and the built-in tasks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.ai.workers.maintenance.aged_cache import AgedCache
    from lexigram.ai.workers.maintenance.worker import MaintenanceWorker
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.ai.workers.maintenance.aged_cache": ["AgedCache"],
            "lexigram.ai.workers.maintenance.worker": ["MaintenanceWorker"],
        },
    )

__all__ = ["AgedCache", "MaintenanceWorker"]

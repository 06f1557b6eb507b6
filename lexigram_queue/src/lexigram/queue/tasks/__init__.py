"""Jobs over any broker: the task queue of the core, with workers notified by the bus."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.redis.jobs import RedisJobs, RedisProgress, RedisSubmissions
    from lexigram.queue.tasks.config import BusJobsConfig
    from lexigram.queue.tasks.module import BusJobsModule, BusJobsProvider
    from lexigram.queue.tasks.queue import BusTaskQueue
    from lexigram.queue.tasks.store import BusJobs
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.redis.jobs": [
                "RedisJobs",
                "RedisProgress",
                "RedisSubmissions",
            ],
            "lexigram.queue.tasks.config": ["BusJobsConfig"],
            "lexigram.queue.tasks.module": ["BusJobsModule", "BusJobsProvider"],
            "lexigram.queue.tasks.queue": ["BusTaskQueue"],
            "lexigram.queue.tasks.store": ["BusJobs"],
        },
    )

__all__ = [
    "BusJobs",
    "BusJobsConfig",
    "BusJobsModule",
    "BusJobsProvider",
    "BusTaskQueue",
    "RedisJobs",
    "RedisProgress",
    "RedisSubmissions",
]

"""The task queue of the core over any driver of the bus."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.queue import QueueDriverProtocol
from lexigram.queue.tasks.store import TOPIC, BusJobs, StagingProtocol
from lexigram.tasks.queue import TaskQueue
from lexigram.tasks.store import JobStore


class BusTaskQueue(TaskQueue):
    """Implements TaskQueueProtocol, JobControlProtocol and JobLeasingProtocol over a broker.

    ``driver`` is connected, and it and ``state`` are closed, by their owner. ``state`` is a
    ``lexigram.tasks.store_sql.SqlStore``, a ``RedisJobs``, or a ``MemoryStore`` in tests.
    """

    def __init__(
        self,
        driver: QueueDriverProtocol,
        state: JobStore,
        *,
        topic: str = TOPIC,
        poll: float = 1.0,
        outbox: StagingProtocol | None = None,
        **settings: Any,
    ) -> None:
        jobs = BusJobs(state, driver, topic=topic, poll=poll, outbox=outbox)
        super().__init__(jobs, **settings)

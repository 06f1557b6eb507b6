"""The page of the consumers in this process."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.admin import PageContent, PageTable
from lexigram.queue.admin.statistics import control_of, unavailable

COLUMNS = ("backend", "name", "topics", "group", "active", "paused", "in flight", "handled")


class QueueConsumersPage:
    """Every consumer of this process; other processes have pages of their own."""

    def __init__(self, queue: object | None = None) -> None:
        self._control = control_of(queue)

    async def handle(self, request: Any) -> PageContent:
        """The consumers now."""
        if self._control is None:
            return PageContent("Consumers", (unavailable("Consumers"),))
        rows = tuple(
            (
                queue.name,
                one.consumer.consumer_id,
                ", ".join(one.consumer.topics),
                one.consumer.group,
                one.is_running,
                one.is_paused,
                one.in_flight,
                one.handled,
            )
            for queue in self._control.queues()
            for one in queue.subscriptions
        )
        return PageContent("Consumers", tables=(PageTable("Consumers", COLUMNS, rows),))

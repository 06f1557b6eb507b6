"""The page of the messages that failed."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.admin import PageContent, PageTable
from lexigram.queue.admin.statistics import control_of, unavailable
from lexigram.queue.operations.dead_letters import DeadLetters

COLUMNS = ("backend", "id", "topic", "group", "reason", "error", "attempts", "failed at")
SHOWN = 100


class QueueJobsPage:
    """The oldest dead letters of every backend."""

    def __init__(self, queue: object | None = None) -> None:
        self._control = control_of(queue)

    async def handle(self, request: Any) -> PageContent:
        """The dead letters; raises QueueError when a broker does not answer."""
        if self._control is None:
            return PageContent("Messages", (unavailable("Failed messages"),))
        rows = [
            (
                queue.name,
                entry.message.id,
                entry.message.topic,
                entry.group,
                entry.reason.value,
                entry.error,
                entry.attempts,
                entry.failed_at.isoformat(timespec="seconds"),
            )
            for queue in self._control.queues()
            for entry in await DeadLetters(queue).list(limit=SHOWN)
        ]
        return PageContent(
            "Messages", tables=(PageTable("Failed messages", COLUMNS, tuple(rows[:SHOWN])),)
        )

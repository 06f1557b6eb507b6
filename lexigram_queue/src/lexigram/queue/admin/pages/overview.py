"""The page of all topics and groups."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.admin import PageContent, PageTable, Stat, Tone
from lexigram.queue.admin.statistics import control_of, unavailable

COLUMNS = ("backend", "driver", "topic", "group", "depth", "lag", "dead letters", "state")


class QueueOverviewPage:
    """Every group with its statistics."""

    def __init__(self, queue: object | None = None) -> None:
        self._control = control_of(queue)

    async def handle(self, request: Any) -> PageContent:
        """The current statistics; raises QueueError when a broker does not answer."""
        if self._control is None:
            return PageContent("Queue", (unavailable("Groups"),))
        found = await self._control.groups()
        rows = tuple(
            (
                one.backend,
                one.driver,
                one.topic,
                one.group,
                one.depth,
                one.lag,
                one.dead_letters,
                "paused" if one.is_paused else "running",
            )
            for one in found
        )
        stats = (
            Stat("Messages waiting", sum(one.depth or 0 for one in found), Tone.INFO),
            Stat("Consumer lag", sum(one.lag or 0 for one in found), Tone.INFO),
            Stat("Failed messages", sum(one.dead_letters for one in found), Tone.INFO),
        )
        return PageContent("Queue", stats, (PageTable("Groups", COLUMNS, rows),))

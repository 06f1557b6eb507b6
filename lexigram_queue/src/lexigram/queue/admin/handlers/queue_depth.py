"""Queue depth: messages that are not handled yet, in all groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.contracts.admin import Stat, Tone
from lexigram.queue.admin.statistics import StatisticHandler


class QueueDepthWidgetHandler(StatisticHandler):
    """Messages waiting, being handled and delayed."""

    label = "Messages waiting"

    def stat(self, stats: Mapping[str, Any]) -> Stat | None:
        """``pending`` of the statistics."""
        if "pending" not in stats:
            return None
        hint = f"in {stats['groups']} groups" if "groups" in stats else None
        return Stat(self.label, stats["pending"], Tone.INFO, hint)

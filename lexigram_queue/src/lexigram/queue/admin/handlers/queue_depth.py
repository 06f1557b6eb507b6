"""How many messages all groups have not handled yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.contracts.admin import Stat, Tone
from lexigram.queue.admin.figures import FigureHandler


class QueueDepthWidgetHandler(FigureHandler):
    """Messages waiting, being handled and delayed."""

    label = "Messages waiting"

    def stat(self, stats: Mapping[str, Any]) -> Stat | None:
        """``pending`` of the figures."""
        if "pending" not in stats:
            return None
        hint = f"in {stats['groups']} groups" if "groups" in stats else None
        return Stat(self.label, stats["pending"], Tone.INFO, hint)

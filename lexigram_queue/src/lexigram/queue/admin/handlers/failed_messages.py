"""Number of dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.contracts.admin import Stat, Tone
from lexigram.queue.admin.statistics import StatisticHandler

NONE = "✓ No failures"


class FailedMessagesWidgetHandler(StatisticHandler):
    """Dead letters of all groups."""

    label = "Failed messages"

    def stat(self, stats: Mapping[str, Any]) -> Stat | None:
        """``dead_letter_count`` of the statistics."""
        failed = stats.get("dead_letter_count")
        if failed is None:
            return None
        return Stat(self.label, failed or NONE, Tone.DANGER if failed else Tone.SUCCESS)

"""Consumer lag: messages that are ready to be delivered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.contracts.admin import Stat, Tone
from lexigram.queue.admin.statistics import StatisticHandler

BEHIND = 100  # messages; from here on consumers do not keep up


class ConsumerLagWidgetHandler(StatisticHandler):
    """Consumer lag of all groups."""

    label = "Consumer lag"

    def stat(self, stats: Mapping[str, Any]) -> Stat | None:
        """``lag``; objects of the 0.1 line have ``processing`` only."""
        lag = stats.get("lag", stats.get("processing"))
        if lag is None:
            return None
        hint = f"{stats['paused']} groups are paused" if stats.get("paused") else None
        return Stat(self.label, lag, Tone.SUCCESS if lag < BEHIND else Tone.WARNING, hint)

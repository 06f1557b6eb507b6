"""How many messages could be delivered now and are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.contracts.admin import Stat, Tone
from lexigram.queue.admin.figures import FigureHandler

BEHIND = 100  # messages; from here on consumers do not keep up


class ConsumerLagWidgetHandler(FigureHandler):
    """How far consumers are behind."""

    label = "Consumer lag"

    def stat(self, stats: Mapping[str, Any]) -> Stat | None:
        """``lag`` of the figures; an object of the old line tells ``processing`` only."""
        lag = stats.get("lag", stats.get("processing"))
        if lag is None:
            return None
        hint = f"{stats['paused']} groups are paused" if stats.get("paused") else None
        return Stat(self.label, lag, Tone.SUCCESS if lag < BEHIND else Tone.WARNING, hint)

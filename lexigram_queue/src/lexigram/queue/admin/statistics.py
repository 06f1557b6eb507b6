"""The source of widgets and pages: the bus, or any object with statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from lexigram.concurrency import call
from lexigram.contracts.admin import AdminError, Stat, StatContent, Tone, WidgetParams
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.queue import QueueError
from lexigram.queue.bus import BusQueue
from lexigram.queue.operations.control import BusControl

UNAVAILABLE = "Unavailable"


class StatisticHandler(ABC):
    """A widget handler that shows one statistic; a subclass chooses it and its tone.

    Reads the control of the bus, a queue, or any object with ``get_stats()``.
    """

    label: str

    def __init__(self, queue: object | None = None) -> None:
        self._queue = queue

    async def get_data(self, params: WidgetParams) -> Result[StatContent, AdminError]:
        """The current value; Err when the broker does not answer."""
        del params  # the same value for all
        found = await stats_of(self._queue)
        if isinstance(found, Err):
            return found
        stat = None if found.value is None else self.stat(found.value)
        return Ok(StatContent((stat or unavailable(self.label),)))

    @abstractmethod
    def stat(self, stats: Mapping[str, Any]) -> Stat | None:
        """The value to show; None when the statistics do not have it."""


def control_of(source: object | None) -> BusControl | None:
    """The control of the bus, or of a single queue; None for anything else."""
    if isinstance(source, BusQueue):
        return BusControl({source.name: source}, health=source.health_check)
    return source if isinstance(source, BusControl) else None


async def stats_of(source: object | None) -> Result[Mapping[str, Any] | None, AdminError]:
    """The statistics of a source that has ``get_stats()``, sync or async; Ok(None) without.

    A broker that does not answer is an Err: no value is better than a stale one.
    """
    read = getattr(control_of(source) or source, "get_stats", None)
    if read is None:
        return Ok(None)
    try:
        return Ok(await call(read))
    except QueueError as error:
        return Err(AdminError(f"queue statistics are unavailable: {error.message}", cause=error))


def unavailable(label: str) -> Stat:
    """The placeholder for a statistic that is unavailable."""
    return Stat(label, UNAVAILABLE, Tone.WARNING)

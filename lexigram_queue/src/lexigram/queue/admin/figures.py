"""Where widgets and pages take their figures from: the bus, or whatever knows them."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from lexigram.contracts.admin import AdminError, Stat, StatContent, Tone, WidgetParams
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.queue import QueueError
from lexigram.queue.bus import BusQueue
from lexigram.queue.control import BusControl

UNAVAILABLE = "Unavailable"


class FigureHandler(ABC):
    """A widget handler that shows one figure; a subclass says which, and how it feels.

    Asks the control of the bus, a queue, or any object with ``get_stats()``.
    """

    label: str

    def __init__(self, queue: object | None = None) -> None:
        self._queue = queue

    async def get_data(self, params: WidgetParams) -> Result[StatContent, AdminError]:
        """The figure now; Err when the broker does not answer."""
        del params  # one figure for all
        found = await stats_of(self._queue)
        if isinstance(found, Err):
            return found
        stat = None if found.value is None else self.stat(found.value)
        return Ok(StatContent((stat or unavailable(self.label),)))

    @abstractmethod
    def stat(self, stats: Mapping[str, Any]) -> Stat | None:
        """The figure; None when it is not among them."""


def control_of(source: object | None) -> BusControl | None:
    """The control of the bus, or of a single queue; None for anything else."""
    if isinstance(source, BusQueue):
        return BusControl({source.name: source}, health=source.health_check)
    return source if isinstance(source, BusControl) else None


async def stats_of(source: object | None) -> Result[Mapping[str, Any] | None, AdminError]:
    """The figures of a source that has ``get_stats()``, sync or async; Ok(None) without.

    A broker that does not answer is an Err: no figure is better than an old one.
    """
    ask = getattr(control_of(source) or source, "get_stats", None)
    if ask is None:
        return Ok(None)
    try:
        found = ask()
        return Ok(await found if inspect.isawaitable(found) else found)
    except QueueError as error:
        return Err(AdminError(f"the bus tells no figures: {error.message}", cause=error))


def unavailable(label: str) -> Stat:
    """What is shown when nobody knows the figure."""
    return Stat(label, UNAVAILABLE, Tone.WARNING)

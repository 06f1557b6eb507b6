"""Tells metrics, the log and the event bus what became of ticks."""

from __future__ import annotations

from collections.abc import Callable

from lexigram.concurrency import as_failure
from lexigram.contracts.core.result import Err
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.observability import get_logger
from lexigram.schedule.events import ScheduleFired, ScheduleMissed
from lexigram.schedule.ticks import moment

logger = get_logger(__name__)


class Reporter:
    """Counts under ``schedule.*``; builds an event only when it reaches somebody.

    Names of schedules are no tags: there may be thousands. Log and events carry them.
    """

    def __init__(
        self, metrics: MetricsProtocol | None = None, events: EventBusProtocol | None = None
    ) -> None:
        self._metrics = metrics or NoOpMetrics()
        self._events = events

    async def fired(
        self, schedule: str, tick: int, late: int, *, manual: bool, reference: str | None
    ) -> None:
        """A tick was committed, ``late`` milliseconds after its time."""
        self._metrics.increment("schedule.fired", 1.0, {"manual": "yes" if manual else "no"})
        if not manual:
            self._metrics.histogram("schedule.lateness", late / 1000)
        await self._tell(
            ScheduleFired,
            lambda: ScheduleFired(
                schedule=schedule, tick=moment(tick), manual=manual, reference=reference
            ),
        )

    async def missed(self, schedule: str, first: int, last: int, count: int) -> None:
        """Ticks were dropped."""
        logger.warning(
            "ticks missed", schedule=schedule, first=moment(first), last=moment(last), count=count
        )
        self._metrics.increment("schedule.missed", float(count))
        await self._tell(
            ScheduleMissed,
            lambda: ScheduleMissed(
                schedule=schedule, first=moment(first), last=moment(last), count=count
            ),
        )

    def failed(self, schedule: str, error: BaseException, retry_in: float) -> None:
        """A tick could not be fired; it is tried again."""
        self._metrics.increment("schedule.failed")
        logger.error("tick not fired", schedule=schedule, error=str(error), retry_in=retry_in)

    def called(self, schedule: str, seconds: float, error: BaseException | None) -> None:
        """A callback has ended."""
        outcome = "done" if error is None else "failed"
        self._metrics.histogram("schedule.callback_seconds", seconds, {"outcome": outcome})
        if error is not None:
            logger.error("callback failed", schedule=schedule, exc_info=error)

    async def _tell(self, kind: type[DomainEvent], build: Callable[[], DomainEvent]) -> None:
        if self._events is None or not self._events.has_subscribers(kind):
            return
        try:
            told = await self._events.publish(build())
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            logger.warning("a listener failed", exc_info=failure)
            return
        if isinstance(told, Err):  # who watches a schedule must not stop it
            logger.warning("a listener failed", error=str(told.error))

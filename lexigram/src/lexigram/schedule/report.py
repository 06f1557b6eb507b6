"""Reports what became of ticks: metrics ``schedule.*``, log lines and events."""

from __future__ import annotations

from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.events import EventEmitter
from lexigram.observability import get_logger
from lexigram.schedule.events import ScheduleFired, ScheduleMissed
from lexigram.schedule.ticks import moment

logger = get_logger(__name__)


class Reporter(EventEmitter):
    """The emitter of a scheduler.

    Names of schedules are no tags: there may be thousands. Log and events carry them.
    """

    def __init__(
        self, metrics: MetricsProtocol | None = None, events: EventBusProtocol | None = None
    ) -> None:
        super().__init__(metrics=metrics, events=events, prefix="schedule.")

    async def fired(
        self, schedule: str, tick: int, late: int, *, manual: bool, reference: str | None
    ) -> None:
        """A tick was committed, ``late`` milliseconds after its time."""
        self.count("fired", manual="yes" if manual else "no")
        if not manual:
            self.observe("lateness", late / 1000)
        await self.publish(
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
        self.count("missed", float(count))
        await self.publish(
            ScheduleMissed,
            lambda: ScheduleMissed(
                schedule=schedule, first=moment(first), last=moment(last), count=count
            ),
        )

    def failed(self, schedule: str, error: BaseException, retry_in: float) -> None:
        """A tick could not be fired; it is tried again."""
        self.count("failed")
        logger.error("tick not fired", schedule=schedule, error=str(error), retry_in=retry_in)

    def called(self, schedule: str, seconds: float, error: BaseException | None) -> None:
        """A callback has ended."""
        outcome = "done" if error is None else "failed"
        self.observe("callback_seconds", seconds, outcome=outcome)
        if error is not None:
            logger.error("callback failed", schedule=schedule, exc_info=error)

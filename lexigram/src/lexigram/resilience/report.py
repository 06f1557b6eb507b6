"""Reports what one protection did: metrics ``resilience.*`` and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lexigram.events import EventEmitter

if TYPE_CHECKING:
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol


class Reporter(EventEmitter):
    """Reports in the name of one protection; without metrics and bus it does nothing."""

    def __init__(
        self,
        kind: str,
        name: str,
        metrics: MetricsProtocol | None,
        events: EventBusProtocol | None,
    ) -> None:
        super().__init__(
            metrics=metrics, events=events, prefix=f"resilience.{kind}.", tags={"name": name}
        )
        self.name = name

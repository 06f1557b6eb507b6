"""Limits how long a call takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import anyio

from lexigram.contracts.infra.resilience.types import TimeoutConfig
from lexigram.resilience.checks import require
from lexigram.resilience.events import CallTimedOut
from lexigram.resilience.report import Reporter

if TYPE_CHECKING:
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol

P = ParamSpec("P")
T = TypeVar("T")


class Timeout:
    """Cancels a call that takes too long; an own TimeoutError of the call passes as it is."""

    def __init__(
        self,
        config: TimeoutConfig | float | None = None,
        *,
        name: str = "",
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
    ) -> None:
        if isinstance(config, int | float):
            config = TimeoutConfig(timeout=config)
        self.config = config or TimeoutConfig()
        require(self.config.timeout > 0, "timeout", self.config.timeout, "more than 0")
        self._report = Reporter("timeout", name, metrics, events)

    async def execute(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result, or TimeoutError with the configured message."""
        seconds = self.config.timeout
        with anyio.move_on_after(seconds):
            return await func(*args, **kwargs)
        self._report.count("expired")
        await self._report.publish(
            CallTimedOut,
            lambda: CallTimedOut(by="timeout", name=self._report.name, seconds=seconds),
        )
        raise TimeoutError(self.config.timeout_message)

"""One breaker per name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lexigram.contracts.infra.resilience.types import CircuitBreakerConfig
from lexigram.resilience.breaker import CircuitBreaker

if TYPE_CHECKING:
    from lexigram.contracts.core.clock import ClockProtocol
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol
    from lexigram.resilience.redis import RedisState


class CircuitBreakerRegistry:
    """Makes breakers on demand; the name given here is the name of the breaker."""

    def __init__(
        self,
        *,
        shared: RedisState | None = None,
        clock: ClockProtocol | None = None,
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
    ) -> None:
        self._shared, self._clock = shared, clock
        self._metrics, self._events = metrics, events
        self._breakers: dict[str, CircuitBreaker] = {}

    def get(self, name: str) -> CircuitBreaker | None:
        """The breaker, or None when nobody made it yet."""
        return self._breakers.get(name)

    async def get_or_create(
        self, name: str, config: CircuitBreakerConfig | None = None
    ) -> CircuitBreaker:
        """The breaker; ``config`` counts at creation only."""
        return self.ensure(name, config)

    def ensure(self, name: str, config: CircuitBreakerConfig | None = None) -> CircuitBreaker:
        """The same without ``await``, for code that wires objects together."""
        found = self._breakers.get(name)
        if found is None:
            found = self._breakers[name] = CircuitBreaker(
                replace(config or CircuitBreakerConfig(), name=name),
                shared=self._shared,
                clock=self._clock,
                metrics=self._metrics,
                events=self._events,
            )
        return found

    def list_breakers(self) -> Sequence[str]:
        """The names, in the order of creation."""
        return list(self._breakers)

"""Limits how many permits are given per time: a token bucket, here or shared over Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import anyio

from lexigram import clock as ambient
from lexigram.contracts.core.errors import InfrastructureError
from lexigram.resilience.checks import require
from lexigram.resilience.events import CallDelayed
from lexigram.resilience.report import Reporter

if TYPE_CHECKING:
    from lexigram.contracts.core.clock import ClockProtocol
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol
    from lexigram.resilience.redis import RedisState

P = ParamSpec("P")
T = TypeVar("T")


class RateLimiter:
    """``rate`` permits per ``per`` seconds, of which up to ``burst`` may be taken at once.

    Given ``shared``, all limiters of that name share one bucket in Redis. While Redis does not
    answer, each process goes by a bucket of its own.
    """

    def __init__(
        self,
        rate: float,
        per: float = 1.0,
        *,
        burst: int | None = None,
        name: str = "",
        shared: RedisState | None = None,
        clock: ClockProtocol | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
    ) -> None:
        require(rate > 0, "rate", rate, "more than 0")
        require(per > 0, "per", per, "more than 0")
        self.rate, self.per = rate, per
        self.burst = max(1, int(rate)) if burst is None else burst
        require(self.burst >= 1, "burst", self.burst, "at least 1")
        require(shared is None or bool(name), "name", name, "given for a shared limiter")
        self._local = _Bucket(rate / per, self.burst, clock)
        self._shared = shared
        self._sleep = sleep
        self._turn = anyio.Lock()
        self._waiting = 0
        self._report = Reporter("rate_limiter", name, metrics, events)

    async def acquire(self, permits: int = 1) -> None:
        """Wait for the permits."""
        self._check(permits)
        if not self._waiting and not await self._take(permits):
            self._report.count("acquired")
            return
        waited = await self._wait(permits)
        self._report.count("acquired")
        self._report.observe("waited", waited)
        await self._report.publish(
            CallDelayed,
            lambda: CallDelayed(limiter=self._report.name, permits=permits, seconds=waited),
        )

    async def try_acquire(self, permits: int = 1) -> bool:
        """Take the permits now or not at all; those who wait already come first."""
        self._check(permits)
        taken = not self._waiting and not await self._take(permits)
        self._report.count("acquired" if taken else "refused")
        return taken

    async def execute(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Wait for one permit, then call."""
        await self.acquire()
        return await func(*args, **kwargs)

    def get_stats(self) -> Mapping[str, Any]:
        """The limit, what is left, how many wait.

        ``available`` is None for a shared limiter: only Redis knows.
        """
        return {
            "rate": self.rate,
            "per": self.per,
            "burst": self.burst,
            "available": self._local.available() if self._shared is None else None,
            "waiting": self._waiting,
        }

    async def _wait(self, permits: int) -> float:
        """Seconds slept until the permits were there."""
        slept = 0.0
        self._waiting += 1
        try:
            # One waiter at a time asks for tokens, so that one who wants many is not starved.
            async with self._turn:
                while missing := await self._take(permits):
                    await self._sleep(missing)
                    slept += missing
        finally:
            self._waiting -= 1
        return slept

    async def _take(self, permits: int) -> float:
        """0 when the permits were taken, else seconds until they may be there."""
        if self._shared is None:
            return self._local.take(permits)
        try:
            return await self._shared.take(
                self._report.name, self.rate / self.per, self.burst, permits
            )
        except InfrastructureError:  # logged by the connection, once
            return self._local.take(permits)

    def _check(self, permits: int) -> None:
        if not 1 <= permits <= self.burst:
            raise ValueError(f"permits must be 1 to {self.burst} (the burst), not {permits}")


class _Bucket:
    __slots__ = ("_at", "_burst", "_clock", "_speed", "_tokens")

    def __init__(self, speed: float, burst: int, clock: ClockProtocol | None) -> None:
        self._speed, self._burst, self._clock = speed, burst, clock
        self._tokens = float(burst)
        self._at = self._now()

    def take(self, permits: int) -> float:
        now = self._now()
        self._tokens, self._at = self._refill(now), now
        # A sleep that ends a rounding error early must not cost another round.
        missing = permits - self._tokens
        if missing > 1e-9:
            return missing / self._speed
        self._tokens = max(0.0, -missing)
        return 0.0

    def available(self) -> float:
        return self._refill(self._now())

    def _refill(self, now: float) -> float:
        # never below zero: a test may install a clock that is behind the one before it
        passed = max(0.0, now - self._at)
        return min(float(self._burst), self._tokens + passed * self._speed)

    def _now(self) -> float:
        return (self._clock or ambient.current()).monotonic()

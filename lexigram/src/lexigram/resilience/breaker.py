"""Stops calling what keeps failing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import anyio

from lexigram.concurrency import as_failure
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.infra.resilience.errors import CircuitOpenError
from lexigram.contracts.infra.resilience.types import CircuitBreakerConfig, CircuitState
from lexigram.resilience.checks import require
from lexigram.resilience.circuit import Circuit, MemoryCircuit, Outcome, Permit, Refusal
from lexigram.resilience.events import CallRejected, CallTimedOut, CircuitChanged
from lexigram.resilience.report import Reporter

if TYPE_CHECKING:
    from lexigram.contracts.core.clock import ClockProtocol
    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol
    from lexigram.resilience.redis import RedisState

P = ParamSpec("P")
T = TypeVar("T")


class CircuitBreaker:
    """One breaker for all callers of one thing.

    The circuit opens with ``failure_threshold`` failures in a row, or when that many failures
    are in the sliding window and make up ``failure_rate_threshold`` of its calls. An exception
    that is not expected is an answer of the thing called and counts as a success.
    """

    def __init__(
        self,
        config: CircuitBreakerConfig | None = None,
        *,
        shared: RedisState | None = None,
        clock: ClockProtocol | None = None,
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
    ) -> None:
        self.config = config or CircuitBreakerConfig()
        _check(self.config)
        self._circuit = _circuit_for(self.config, shared, clock)
        self._seen = self._circuit.state
        self._report = Reporter("breaker", self.config.name, metrics, events)

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.config.name

    @property
    def state(self) -> CircuitState:
        """The state as last known here."""
        return self._circuit.state

    async def call(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call through the breaker and count the outcome."""
        async with _Protected(self):
            return await func(*args, **kwargs)

    async def execute(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same as ``call``, by the name the other protections have."""
        return await self.call(func, *args, **kwargs)

    def protect(self) -> AbstractAsyncContextManager[None]:
        """The same for a block: ``async with breaker.protect(): ...``."""
        return _Protected(self)

    async def reset(self) -> None:
        """Close the circuit and forget the counts."""
        await self._circuit.reset()
        await self._notice()

    async def force_open(self) -> None:
        """Open the circuit until ``reset``."""
        await self._circuit.force_open()
        await self._notice()

    async def enter(self) -> Permit:
        """A permit for one call, or CircuitOpenError; for ``protect``."""
        answer = await self._circuit.enter()
        if self._seen is not self._circuit.state:
            await self._notice_for(answer)
        if isinstance(answer, Refusal):
            self._report.count("calls", outcome="rejected")
            await self._report.publish(
                CallRejected, lambda: CallRejected(by="breaker", name=self.name)
            )
            raise _open_error(self.name, self.state, answer)
        return answer

    async def leave(self, permit: Permit, outcome: Outcome, error: Exception | None) -> None:
        """Give the permit back with the outcome; for ``protect``."""
        await self._circuit.leave(permit, outcome, error)
        self._report.count("calls", outcome=outcome.value)
        if self._seen is not self._circuit.state:
            await self._notice()

    async def tell_timeout(self, seconds: float) -> None:
        """Report a call that took too long; for ``protect``."""
        await self._report.publish(
            CallTimedOut, lambda: CallTimedOut(by="breaker", name=self.name, seconds=seconds)
        )

    async def _notice_for(self, answer: Permit | Refusal) -> None:
        try:
            await self._notice()
        except BaseException:
            # Nobody will make the call this permit was given for.
            if isinstance(answer, Permit):
                await self._circuit.leave(answer, Outcome.CANCELLED, None)
            raise

    async def _notice(self) -> None:
        old, new = self._seen, self._circuit.state
        if old is new:
            return
        self._seen = new
        self._report.gauge("state", _STATE_NUMBERS[new])
        await self._report.publish(
            CircuitChanged, lambda: CircuitChanged(breaker=self.name, old=old, new=new)
        )


# The states as a gauge: the higher, the worse.
_STATE_NUMBERS = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}


class _Protected(AbstractAsyncContextManager[None]):
    """One call through the breaker."""

    __slots__ = ("_breaker", "_permit", "_scope")

    _permit: Permit

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        self._scope: anyio.CancelScope | None = None

    async def __aenter__(self) -> None:
        self._permit = await self._breaker.enter()
        seconds = self._breaker.config.timeout
        if seconds is not None:
            self._scope = anyio.move_on_after(seconds)
            self._scope.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The scope swallows the cancellation only if it was its own: the call took too long.
        if self._scope is not None and self._scope.__exit__(exc_type, exc, traceback):
            await self._time_out()
        elif exc is None:
            await self._breaker.leave(self._permit, Outcome.SUCCESS, None)
        elif (failure := as_failure(exc)) is None:
            await self._breaker.leave(self._permit, Outcome.CANCELLED, None)
        else:
            expected = isinstance(failure, self._breaker.config.expected_exception)
            outcome = Outcome.FAILURE if expected else Outcome.SUCCESS
            await self._breaker.leave(self._permit, outcome, failure)

    async def _time_out(self) -> None:
        seconds = self._breaker.config.timeout or 0.0
        error = TimeoutError(f"call through breaker {self._breaker.name!r} took over {seconds:g} s")
        await self._breaker.leave(self._permit, Outcome.FAILURE, error)
        await self._breaker.tell_timeout(seconds)
        raise error from None


def _circuit_for(
    config: CircuitBreakerConfig, shared: RedisState | None, clock: ClockProtocol | None
) -> Circuit:
    if config.backend == "memory":
        return MemoryCircuit(config, clock)
    if shared is None or not config.name:
        raise ConfigurationError(
            f"breaker {config.name!r} shares its state over redis, but has no"
            f" {'name' if shared else 'connection'}",
            hint="give the breaker a name and a RedisState, or take backend 'memory'",
        )
    from lexigram.resilience.shared import SharedCircuit

    return SharedCircuit(config, shared, MemoryCircuit(replace(config, backend="memory"), clock))


def _open_error(name: str, state: CircuitState, refusal: Refusal) -> CircuitOpenError:
    left = refusal.retry_after
    when = "" if left is None else f" for another {left:.3g} s"
    why = "half open and its probes are taken" if state is CircuitState.HALF_OPEN else f"open{when}"
    return CircuitOpenError(
        f"circuit {name!r} is {why}; the call was not made",
        details={"name": name, "state": state.value, "retry_after": left},
        hint="answer without the thing that fails, or try again later",
    )


def _check(config: CircuitBreakerConfig) -> None:
    for field in ("failure_threshold", "success_threshold", "half_open_max"):
        require(getattr(config, field) >= 1, field, getattr(config, field), "at least 1")
    seconds = config.recovery_timeout
    require(seconds >= 0, "recovery_timeout", seconds, "0 or more")
    window = config.sliding_window_seconds
    require(window > 0, "sliding_window_seconds", window, "more than 0")
    rate = config.failure_rate_threshold
    require(0 < rate <= 1, "failure_rate_threshold", rate, "more than 0 and at most 1")
    require(config.timeout is None or config.timeout > 0, "timeout", config.timeout, "more than 0")
    known = config.backend in ("memory", "redis")
    require(known, "backend", config.backend, "'memory' or 'redis'")

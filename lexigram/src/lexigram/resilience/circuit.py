"""The states of one circuit, kept by pybreaker in this process."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

from lexigram import clock as ambient
from lexigram.contracts.infra.resilience.types import CircuitBreakerConfig, CircuitState
from lexigram.resilience.window import SlidingWindow

if TYPE_CHECKING:
    from lexigram.contracts.core.clock import ClockProtocol


class Outcome(StrEnum):
    """How a call ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    # Not a verdict on what was called: the caller went away.
    CANCELLED = "cancelled"


@frozen
class Permit:
    """The right to make one call, given in one period of one state."""

    # The period; an outcome counts only while it lasts.
    generation: int
    # Names the permit where it is shared; None for a permit of this process.
    token: str | None = None


@frozen
class Refusal:
    """The call must not be made; seconds until the next probe, None when nobody can tell."""

    retry_after: float | None


class Circuit(Protocol):
    """What keeps the state of a breaker: in memory, or shared."""

    @property
    def state(self) -> CircuitState:
        """The state as last known here."""
        ...

    async def enter(self) -> Permit | Refusal:
        """Ask to make a call."""
        ...

    async def leave(self, permit: Permit, outcome: Outcome, error: Exception | None) -> None:
        """Give the permit back with the outcome of the call."""
        ...

    async def reset(self) -> None:
        """Close and forget the counts."""
        ...

    async def force_open(self) -> None:
        """Open until ``reset``."""
        ...


class MemoryCircuit:
    """A circuit of this process.

    pybreaker holds state, counters and reset time-out. Outcomes are recorded after the await; it
    never wraps the await, as it would let every concurrent call through a half-open circuit and take a
    cancelled call for a failed one.
    """

    def __init__(self, config: CircuitBreakerConfig, clock: ClockProtocol | None = None) -> None:
        import pybreaker

        self._config = config
        self._clock = clock
        self._window = SlidingWindow(config.sliding_window_seconds)
        # pybreaker's state as an enum, set by its listener
        self._state = CircuitState.CLOSED
        self._generation = 0
        self._probes = 0
        self._opened_at = 0.0
        self._forced = False
        self._machine = pybreaker.CircuitBreaker(
            fail_max=config.failure_threshold,
            reset_timeout=config.recovery_timeout,
            success_threshold=config.success_threshold,
            listeners=[_Listener(self)],  # type: ignore[type-var]  # by its methods
            name=config.name,
            throw_new_error_on_trip=False,
        )

    @property
    def state(self) -> CircuitState:
        """The state; an open circuit becomes half open with the first call after its time."""
        return self._state

    async def enter(self) -> Permit | Refusal:
        """Ask to make a call; half open, as many as ``half_open_max`` may be under way."""
        if self._state is CircuitState.OPEN:
            left = self._seconds_left()
            if left is None or left > 0:
                return Refusal(left)
            self._machine.half_open()
        if self._state is CircuitState.HALF_OPEN:
            if self._probes >= self._config.half_open_max:
                return Refusal(None)
            self._probes += 1
        return Permit(self._generation)

    async def leave(self, permit: Permit, outcome: Outcome, error: Exception | None) -> None:
        """Tell pybreaker, unless the state the call was made in is over."""
        if permit.generation != self._generation:
            return
        if self._state is CircuitState.HALF_OPEN:
            self._probes -= 1
        if outcome is Outcome.CANCELLED:
            return
        failed = outcome is Outcome.FAILURE
        self._window.add(self._now(), failed=failed)
        if failed:
            self._fail(error)
        else:
            self._machine.call(_succeed)

    async def reset(self) -> None:
        """Close and forget the counts."""
        self._forced = False
        self._machine.close()

    async def force_open(self) -> None:
        """Open until ``reset``."""
        self._forced = True
        if self._state is not CircuitState.OPEN:
            self._machine.open()

    def change_state(self, state: str) -> None:
        """Begin a new period; called by pybreaker with every change of state."""
        self._state = _STATES[state]
        self._generation += 1
        self._probes = 0
        self._opened_at = self._now()
        self._window.clear()

    def _fail(self, error: Exception | None) -> None:
        failure = error or Exception()
        trace = failure.__traceback__
        try:
            self._machine.call(_fail, failure)
        except Exception as raised:
            if raised is not failure:
                raise
        finally:
            # The caller's error keeps the trace of the call, not ours.
            failure.__traceback__ = trace
        if self._state is CircuitState.CLOSED and self._too_many():
            self._machine.open()

    def _too_many(self) -> bool:
        many = self._window.failures >= self._config.failure_threshold
        return many and self._window.share() >= self._config.failure_rate_threshold

    def _seconds_left(self) -> float | None:
        if self._forced:
            return None
        return self._opened_at + self._machine.reset_timeout - self._now()

    def _now(self) -> float:
        return (self._clock or ambient.current()).monotonic()


_STATES = {
    "closed": CircuitState.CLOSED,
    "open": CircuitState.OPEN,
    "half-open": CircuitState.HALF_OPEN,
}


class _Listener:
    """Has the methods of ``pybreaker.CircuitBreakerListener``, which is imported late."""

    def __init__(self, circuit: MemoryCircuit) -> None:
        self._circuit = circuit

    def before_call(self, *_: Any, **__: Any) -> None:
        """Nothing to do."""

    def failure(self, *_: Any) -> None:
        """Nothing to do."""

    def success(self, *_: Any) -> None:
        """Nothing to do."""

    def state_change(self, _breaker: Any, _old: Any, new: Any) -> None:
        """Tell the circuit."""
        self._circuit.change_state(new.name)


def _succeed() -> None:
    return None


def _fail(error: Exception) -> None:
    raise error

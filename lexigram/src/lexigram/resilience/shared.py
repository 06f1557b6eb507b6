"""The states of one circuit, kept in Redis for all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import anyio

from lexigram.contracts.core.errors import InfrastructureError
from lexigram.contracts.infra.resilience.types import CircuitBreakerConfig, CircuitState
from lexigram.resilience.circuit import MemoryCircuit, Outcome, Permit, Refusal
from lexigram.resilience.redis import CIRCUIT
from lexigram.resilience.window import BUCKETS

if TYPE_CHECKING:
    from lexigram.resilience.redis import RedisState


class SharedCircuit:
    """A circuit that all breakers of its name share; one script does every step at once.

    While Redis does not answer, the calls of this process go by a circuit of its own. A probe
    whose process died gives its place free after ``timeout`` (without one: ``recovery_timeout``).
    """

    def __init__(
        self, config: CircuitBreakerConfig, redis: RedisState, local: MemoryCircuit
    ) -> None:
        self._redis = redis
        self._local = local
        self._state = CircuitState.CLOSED
        self._generation = 0
        self._alone = False
        tag = f"{redis.prefix}:circuit:{{{config.name}}}"
        self._keys = [tag, f"{tag}:probes"]
        self._settings = _settings(config)

    @property
    def state(self) -> CircuitState:
        """The last known state in Redis, or that of the local fallback."""
        return self._local.state if self._alone else self._state

    async def enter(self) -> Permit | Refusal:
        """Ask Redis for a permit."""
        token = uuid4().hex
        try:
            allowed, generation, wait = await self._run("enter", token)
        except InfrastructureError:  # logged by the connection, once
            self._alone = True
            return await self._local.enter()
        except BaseException:
            # Cancelled on the way: Redis may have given the permit already.
            await self.leave(Permit(0, token), Outcome.CANCELLED, None)
            raise
        if allowed:
            return Permit(generation, token)
        return Refusal(None if wait < 0 else wait / 1000)

    async def leave(self, permit: Permit, outcome: Outcome, error: Exception | None) -> None:
        """Tell Redis the outcome; the caller's result or error does not depend on the answer."""
        if permit.token is None:
            await self._local.leave(permit, outcome, error)
            return
        # Shielded: a cancelled caller still gives its permit back. The connection has a time-out.
        with anyio.CancelScope(shield=True):
            try:
                await self._run(outcome.value, permit.token, permit.generation)
            except InfrastructureError:  # logged by the connection, once
                self._alone = True

    async def reset(self) -> None:
        """Close for all processes; InfrastructureError when Redis does not answer."""
        await self._local.reset()
        await self._run("reset")

    async def force_open(self) -> None:
        """Open for all processes; without an answer of Redis for this one, and the error."""
        await self._local.force_open()
        await self._run("open")
        # Redis keeps it open; the circuit in its place must not outlast a reset elsewhere.
        await self._local.reset()

    async def _run(
        self, action: str, token: str = "", generation: int = 0
    ) -> tuple[bool, int, int]:
        answer = await self._redis.run(
            CIRCUIT, self._keys, [action, token, generation, *self._settings]
        )
        allowed, state, period, wait = answer
        if int(period) >= self._generation:  # answers may arrive in another order than given
            self._generation = int(period)
            self._state = CircuitState(_text(state))
        self._alone = False
        return bool(allowed), int(period), int(wait)


def _settings(config: CircuitBreakerConfig) -> list[int | float]:
    lease = config.timeout if config.timeout is not None else config.recovery_timeout
    return [
        config.failure_threshold,
        _milliseconds(config.recovery_timeout),
        config.success_threshold,
        max(1, _milliseconds(config.sliding_window_seconds / BUCKETS)),
        config.failure_rate_threshold,
        config.half_open_max,
        # One second more: a call that ends just in time must be able to say so.
        _milliseconds(lease) + 1000,
    ]


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value

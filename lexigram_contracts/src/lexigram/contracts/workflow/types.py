"""Values of sagas and state machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lexigram.contracts.core.result import Result


class SagaState(StrEnum):
    """Where a saga is; COMPLETED and FAILED are final, FAILED means compensated."""

    PENDING = "pending"
    RUNNING = "running"
    COMPENSATING = "compensating"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True)
class SagaStep:
    """One step of a saga and how to undo it. An Err or an exception is a failure."""

    name: str
    action: Callable[[], Awaitable[Result[Any, Any]]]
    # undoes the action; may be called after a crash for an action that half happened
    compensation: Callable[[], Awaitable[Any]] | None = None
    # retries after the first attempt
    max_retries: int = 1
    # seconds between attempts
    retry_delay: float = 1.0
    # whether the compensation may be tried again
    idempotent: bool = True
    # seconds for each call of the action, the compensation and the hooks; None: no limit
    timeout: float | None = None


@dataclass(frozen=True)
class StateTransitionRecord:
    """One move of a state machine, as it is stored."""

    machine_id: str
    version: int
    from_state: str
    event: str
    to_state: str
    # seconds since 1970-01-01 UTC
    transitioned_at: float

"""What a saga tells those who watch it. What a watcher raises is logged and changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from attrs import frozen


@frozen
class SagaStepContext:
    """One attempt of a step."""

    saga_id: str
    step_name: str
    # counted from 1
    attempt: int


@frozen
class SagaCompensationContext:
    """One compensation; ``original_error`` is why the saga failed."""

    saga_id: str
    step_name: str
    original_error: str


# after a step is done and stored
SagaStepExecutedHook: TypeAlias = Callable[[SagaStepContext], Awaitable[None]]
# after each attempt that failed, with what it raised or gave as Err
SagaStepFailedHook: TypeAlias = Callable[[SagaStepContext, object], Awaitable[None]]
# before a compensation is called
SagaCompensationTriggeredHook: TypeAlias = Callable[[SagaCompensationContext], Awaitable[None]]
# after a compensation worked and that is stored
SagaCompensationCompletedHook: TypeAlias = Callable[[SagaCompensationContext], Awaitable[None]]

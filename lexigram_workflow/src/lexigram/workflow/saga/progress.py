"""How far a saga is: the part of it that is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

from attrs import define, field, fields

from lexigram.contracts.workflow.types import SagaState
from lexigram.workflow.saga.errors import SagaDefinitionError


@define(kw_only=True)
class Progress:
    """Everything another process needs to go on."""

    version: int
    # steps that are done, in their order
    done: list[str] = field(factory=list[str])
    # steps still to undo, the next one first
    undo: list[str] = field(factory=list[str])
    undone: list[str] = field(factory=list[str])
    # a compensation that must not be called twice, written down before the call
    undoing: str | None = None
    # compensations that failed, and why
    not_undone: dict[str, str] = field(factory=dict[str, str])
    # where it failed, and why
    failed_step: str | None = None
    error: str | None = None
    # ids of events it reacted to
    handled: list[str] = field(factory=list[str])
    # what ``AbstractSaga.snapshot()`` gave
    snapshot: dict[str, Any] = field(factory=dict[str, Any])
    state: SagaState = SagaState.PENDING

    def to_data(self) -> dict[str, Any]:
        """As JSON-ready data; the state is stored beside it."""
        return {name: getattr(self, name) for name in _STORED}

    @classmethod
    def from_data(cls, saga_id: str, state: SagaState, data: Mapping[str, Any]) -> Self:
        """What ``to_data`` gave. Raises SagaDefinitionError for something else."""
        if state is not SagaState.PENDING and "done" not in data:
            raise SagaDefinitionError(
                f"what is stored of saga {saga_id!r} does not say which steps are done",
                hint="it was written by another program: check by hand, then delete it",
            )
        kept = {name: value for name, value in data.items() if name in _STORED}
        return cls(**kept, state=state)


_STORED = tuple(item.name for item in fields(Progress) if item.name != "state")


def json_text(saga_id: str, data: dict[str, Any]) -> str:
    """The data as JSON. Raises SagaDefinitionError, a ValueError, for what JSON cannot hold."""
    try:
        return json.dumps(data, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SagaDefinitionError(
            f"the data of saga {saga_id!r} cannot be stored: {error}",
            hint="keep plain JSON values in snapshot()",
            cause=error,
        ) from error

"""How far a saga is: the part of it that is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Self, cast

import orjson
from attrs import define, field, fields

from lexigram.contracts.core.result import Err
from lexigram.contracts.workflow.types import SagaState
from lexigram.workflow.saga.errors import SagaDefinitionError, describe

# The failure of a compensation that a crash cut off and that must not be called twice.
CUT_OFF = "it was cut off by a crash and must not be called twice: look whether it happened"


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

    def begin_undo(self, step: str, error: object, *, was_cut_off: bool) -> None:
        """Undo what is done because a step failed; also the step itself when it was cut off, since
        its first call may have happened.
        """
        self.undo = ([step] if was_cut_off else []) + self.done[::-1]
        self.failed_step, self.error = step, describe(error)

    def end_undo(self, step: str, failure: Err[Any] | None) -> None:
        """Note how the compensation of a step went, which is not called any more now."""
        self.undo = [name for name in self.undo if name != step]
        self.undoing = None
        if failure is None:
            self.not_undone.pop(step, None)
            self.undone.append(step)
        else:
            self.not_undone[step] = describe(failure.error)

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
        text = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SagaDefinitionError(
            f"the data of saga {saga_id!r} cannot be stored: {error}",
            hint="keep plain JSON values in snapshot()",
            cause=error,
        ) from error
    try:
        # 3 µs for 100 steps, where a look at each key in Python takes 35. It refuses other things
        # too, so that those keys are looked for only then.
        orjson.dumps(data)
    except TypeError:
        for path, key in _keys_that_change(data, "data"):
            raise SagaDefinitionError(
                f"the data of saga {saga_id!r} cannot be stored: {path} has the key {key!r},"
                " which would come back as text",
                hint="convert keys with str(...) in snapshot()",
            ) from None
    return text


def _keys_that_change(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                yield path, key
            yield from _keys_that_change(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(cast("list[object]", value)):
            yield from _keys_that_change(item, f"{path}[{number}]")

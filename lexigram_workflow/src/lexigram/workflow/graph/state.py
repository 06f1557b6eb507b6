"""The state of a run: what users hold, and what nodes are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from lexigram.workflow.errors import WorkflowStateError

ITERATION = "_iteration"
HISTORY = "_history"
VERSION = "_definition_version"
RUN_ID = "_run_id"


# The engine changes a SharedState by these; the object itself refuses.
changed = dict[str, Any].update
put = dict[str, Any].__setitem__


class WorkflowState:
    """The state as a user makes it and gets it back; keys with ``_`` belong to the engine.

    Given to ``execute`` it is brought up to date when the run ends or pauses.
    """

    def __init__(self, input: Any = "", *, initial: Mapping[str, Any] | None = None) -> None:  # noqa: A002 - the known name
        self._data: dict[str, Any] = {
            "input": input,
            "output": "",
            ITERATION: 0,
            HISTORY: [],
            **(initial or {}),
        }

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._data[key] = value

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default."""
        return self._data.get(key, default)

    def as_dict(self) -> dict[str, Any]:
        """A shallow copy."""
        return dict(self._data)

    def merge(self, update: Mapping[str, Any]) -> None:
        """Take over the values; keys with ``_`` are left out."""
        self._data.update((key, value) for key, value in update.items() if key[:1] != "_")

    def record(self, node_name: str, output: Mapping[str, Any]) -> None:
        """Note that a node ran."""
        self._data[HISTORY].append({"node": node_name, "output": dict(output)})
        self._data[ITERATION] += 1

    @property
    def iteration(self) -> int:
        """How many nodes ran."""
        return int(self._data[ITERATION])

    @property
    def history(self) -> list[dict[str, Any]]:
        """What ran, in order, with what each returned."""
        return list(self._data[HISTORY])

    def __repr__(self) -> str:
        return f"WorkflowState({', '.join(key for key in self._data if key[:1] != '_')})"


class SharedState(dict[str, Any]):
    """What nodes and conditions are shown: a dict that they cannot change.

    All nodes of a step look at the same object, without a copy. The engine changes it with the
    methods of dict itself.
    """

    __slots__ = ()

    def copy(self) -> dict[str, Any]:
        """A plain dict, free to change."""
        return dict(self)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _refuse(_self: SharedState, *_: Any, **__: Any) -> NoReturn:
    raise WorkflowStateError(
        "the state cannot be changed in place", hint="return what changes from the node"
    )


# Not in the class body: their many forms would each need a signature that never returns.
for _name in (
    *("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem"),
    *("setdefault", "update"),
):
    setattr(SharedState, _name, _refuse)

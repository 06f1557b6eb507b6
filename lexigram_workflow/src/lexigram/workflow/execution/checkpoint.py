"""The last state of some runs, in this process."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any


class WorkflowCheckpoint:
    """Keeps copies of states by run id; the oldest goes when there are more than ``max_size``.

    0 keeps all. For runs that survive their process give the runner a checkpoint store instead.
    """

    def __init__(self, max_size: int = 512) -> None:
        if max_size < 0:
            raise ValueError("max_size is 0 (no limit) or more")
        self._max_size = max_size
        self._states: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def save(self, checkpoint_id: str, state: Mapping[str, Any]) -> None:
        """Keep a state; a second call replaces it."""
        self._states.pop(checkpoint_id, None)
        self._states[checkpoint_id] = copy.deepcopy(dict(state))
        while self._max_size and len(self._states) > self._max_size:
            self._states.popitem(last=False)

    def load(self, checkpoint_id: str) -> dict[str, Any] | None:
        """The state, or None."""
        return copy.deepcopy(self._states.get(checkpoint_id))

    def delete(self, checkpoint_id: str) -> bool:
        """Forget it; False when unknown."""
        return self._states.pop(checkpoint_id, None) is not None

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, checkpoint_id: object) -> bool:
        return checkpoint_id in self._states

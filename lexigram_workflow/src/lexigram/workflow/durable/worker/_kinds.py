"""The kinds of steps that a worker claims: those whose pool and handler it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import anyio.to_thread

from lexigram import clock
from lexigram.observability import get_logger
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.store.records import StepKind

logger = get_logger(__name__)

_LOOK_SECONDS = 1.0  # between looks for handlers that came later, while runs wait for some


class StepKinds:
    """The kinds in the database, and those for which ``handlers`` has a function.

    A handler is looked up when a run waits for it, so that nothing unused is imported. A function
    with an attribute ``serves`` decides itself which requirements it meets.
    """

    def __init__(self, engine: DurableEngine, handlers: Mapping[str, Callable[..., Any]]) -> None:
        self._engine = engine
        self._handlers = handlers
        self._all: dict[int, StepKind] = {}
        # what steps require: whether it is here
        self._known: dict[str, bool] = {}
        self._lock = asyncio.Lock()
        self._next_look = 0.0
        self._is_loaded = False

    @property
    def count(self) -> int:
        """How many kinds it has seen."""
        return len(self._all) if self._is_loaded else -1

    @property
    def here(self) -> Sequence[StepKind]:
        """Those whose handler is here."""
        return [kind for kind in self._all.values() if self._known.get(kind.handler)]

    def lacking(self, takes: Callable[[str], bool]) -> Sequence[int]:
        """Those whose handler is not here, and those of pools that ``takes`` refuses."""
        return [
            kind.id
            for kind in self._all.values()
            if self._known.get(kind.handler) is False or not takes(kind.queue)
        ]

    def knows(self, required: str) -> bool:
        """Whether what a step requires is known to be here."""
        return self._known.get(required, False)

    def forget(self, required: str) -> None:
        """The handler is not here after all."""
        self._known[required] = False
        self._next_look = clock.monotonic() + _LOOK_SECONDS

    def wants_look(self, count: int) -> bool:
        """Whether there may be more: the database has another number of kinds, or some are unknown."""
        if count != self.count:
            return True
        is_open = any(not self._known.get(kind.handler) for kind in self._all.values())
        return is_open and clock.monotonic() >= self._next_look

    async def look(self, count: int) -> bool:
        """Look again, unless another task just has; True when it did."""
        async with self._lock:
            if not self.wants_look(count):
                return False
            kinds = await self._engine.store.kinds()
            self._all = {kind.id: kind for kind in kinds}
            waiting = {kind.handler for kind in kinds if kind.waits_since is not None}
            wanted = sorted(name for name in waiting if not self._known.get(name))
            if wanted:  # a handler may have to be imported
                self._known |= await anyio.to_thread.run_sync(self._check_here, wanted)
            self._next_look, self._is_loaded = clock.monotonic() + _LOOK_SECONDS, True
            return True

    def _check_here(self, required: Collection[str]) -> dict[str, bool]:
        return {name: self._is_here(name) for name in required}

    def _is_here(self, required: str) -> bool:
        """In a thread."""
        function = self._handlers.get(required)
        if function is not None:
            return True
        name, _, of = required.partition(":")
        serves = getattr(self._handlers.get(name), "serves", None) if of else None
        is_here = serves is not None and bool(serves(of))
        if not is_here and required not in self._known:
            logger.warning("no handler %s here: its steps are left to other workers", required)
        return is_here

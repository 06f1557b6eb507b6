"""The pools of a worker: their sizes, the kinds of steps they claim, the runs they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread
from attrs import field, frozen
from attrs.validators import optional

from lexigram import clock
from lexigram.contracts.workflow.limits import (
    check_consumers,
    check_name,
    check_seconds,
    check_timeout,
)
from lexigram.observability import get_logger
from lexigram.workflow.durable.errors import PlanInvalidError
from lexigram.workflow.durable.plan import validate_with
from lexigram.workflow.durable.store.records import Claim, End, Selection, StepKind

if TYPE_CHECKING:
    from lexigram.workflow.durable.engine import DurableEngine
    from lexigram.workflow.durable.worker.steps import StepContext

logger = get_logger(__name__)

CATCH_ALL = "*"
_LOOK_SECONDS = 1.0  # between looks for handlers that came later, while runs wait for some


@frozen(kw_only=True)
class WorkerConfig:
    """How many steps of which type at once; ``"*"`` takes every type that no pool names."""

    consumers: Mapping[str, int] = field(factory=lambda: {CATCH_ALL: 5})
    # poll interval of an idle pool in seconds; notifications wake it earlier
    poll_interval: float = field(default=1.0, validator=validate_with(check_timeout))
    # seconds between heartbeats; None is a fifth of the lease
    checkin_interval: float | None = field(
        default=None, validator=optional(validate_with(check_timeout))
    )
    # seconds that ended groups are kept; 0 keeps them for ever
    retention: float = field(default=30 * 24 * 3600.0, validator=validate_with(check_seconds))
    # seconds that a call of a listener may take; None is no limit
    listener_timeout: float | None = field(
        default=None, validator=optional(validate_with(check_timeout))
    )

    def __attrs_post_init__(self) -> None:
        if not self.consumers:
            raise PlanInvalidError(
                "consumers names no pool", hint='give types and sizes: {"parse": 3, "*": 5}'
            )
        for pool, size in self.consumers.items():
            check_name("consumers", pool)
            check_consumers("consumers", size)

    def selection(self, pool: str) -> Selection:
        """The step types of a pool."""
        if pool != CATCH_ALL:
            return Selection(types=(pool,))
        return Selection(types=tuple(n for n in self.consumers if n != CATCH_ALL), excluded=True)


class Pool:
    """Consumers of the same types."""

    def __init__(self, name: str, size: int, selection: Selection) -> None:
        self.name = name
        self.size = size
        # with the kinds of steps that it claims
        self.selection = selection
        # how many kinds the database had at the last claim
        self.kinds_there = 0
        self.busy = 0
        self.waiting: asyncio.Queue[HeldRun] = asyncio.Queue()
        # there may be work, or a free consumer
        self.changed = asyncio.Event()
        # no more claims will come
        self.closed = asyncio.Event()


class HeldRun:
    """A claimed run on its way through a pool."""

    __slots__ = ("claim", "context", "end", "is_reported", "key", "pool", "scope", "taken", "why")

    def __init__(self, claim: Claim, pool: Pool) -> None:
        self.claim = claim
        self.key = (claim.run_id, claim.lease)
        self.pool = pool
        # around all of its steps
        self.scope = anyio.CancelScope()
        self.why: StopReason | None = None
        self.context: StepContext | None = None
        # of a handler that continued after it was asked to stop
        self.end: End | None = None
        self.is_reported = False
        # steps in a row under this lease
        self.taken = 1

    def again(self, claim: Claim) -> None:
        """The next step under the same lease."""
        self.claim, self.context, self.is_reported = claim, None, False
        self.taken += 1

    def stop(self, why: StopReason) -> None:
        """Cancel the handler, but not the report of its end; the first reason counts."""
        if self.why is None:
            self.why = why
            if self.context is not None:
                self.context.cancelled = why is StopReason.CANCELLED
            if not self.is_reported:
                self.scope.cancel()


class StopReason(Enum):
    """Why a handler was asked to stop."""

    CANCELLED = auto()  # the run was cancelled
    LOST = auto()  # the lease or the lock is over
    STOPPED = auto()  # the worker stops


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


class Isolation:
    """Handlers run side by side, a suspect alone: ``await enter(alone=...)``, ``leave(alone=...)``.

    A suspect is a step or event whose process ended while its handler ran. What runs beside it
    when that happens again would be suspected with it. A suspect that waits comes before those that have not begun. ``on_end`` is called when the last
    suspect has left.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        # handlers that run side by side
        self.together = 0
        # that wait to run alone, or do
        self._suspects = 0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        """True while a suspect runs or waits: nothing else may begin."""
        return self._suspects > 0

    async def enter(self, *, alone: bool) -> None:
        """Wait until the handler may begin."""
        if alone:
            await self._enter_alone()
            return
        while self._suspects:
            await self._changed.wait()
        self.together += 1

    def leave(self, *, alone: bool) -> None:
        """The handler has ended."""
        if alone:
            self._turn.release()
            self._end_suspect()
        else:
            self.together -= 1
        self._notify()

    async def _enter_alone(self) -> None:
        self._suspects += 1
        try:
            await self._turn.acquire()
            try:
                while self.together:
                    await self._changed.wait()
            except BaseException:
                self._turn.release()
                raise
        except BaseException:
            self._end_suspect()
            self._notify()
            raise

    def _end_suspect(self) -> None:
        self._suspects -= 1
        if not self._suspects:
            self._on_end()

    def _notify(self) -> None:
        # Each waiter looks again; those that come later wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()


class Metrics(Protocol):
    """Takes the statistics of a worker."""

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        ...


class LoggingMetrics:
    """Statistics as lines of the log, at DEBUG."""

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """One line."""
        logger.debug("metric", metric=name, value=value, labels=labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """One line."""
        logger.debug("metric", metric=name, seconds=value, labels=labels)

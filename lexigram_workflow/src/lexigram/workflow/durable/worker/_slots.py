"""What a worker holds: its pools, and the runs that it has claimed for them."""

from __future__ import annotations

import asyncio
from enum import Enum, auto

import anyio

from lexigram.workflow.durable.store.records import Claim, End, Selection
from lexigram.workflow.durable.worker.handlers import StepContext


class StopReason(Enum):
    """Why a handler was asked to stop."""

    CANCELLED = auto()  # the run was cancelled
    LOST = auto()  # the lease or the lock is over
    STOPPED = auto()  # the worker stops


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

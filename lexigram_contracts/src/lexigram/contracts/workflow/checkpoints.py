"""Where the runs of graphs are kept, so that another process can go on with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class GraphRunStatus(StrEnum):
    """Where a run of a graph is; COMPLETED and CANCELLED are final, FAILED may be recovered."""

    RUNNING = "running"  # a process works on it, or died doing so
    PAUSED = "paused"  # waits for a person; nothing is held
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class GraphRun:
    """One run of a graph: whose, in which version, and how it stands."""

    run_id: str
    graph: str
    version: int
    status: GraphRunStatus
    # seconds since 1970-01-01 UTC
    created_at: float
    updated_at: float
    # when a pause is over without an answer; None: it waits for ever
    due_at: float | None = None
    # why it failed
    error: str | None = None
    # the run and checkpoint it was forked from
    parent_run: str | None = None
    parent_seq: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """One step of a run. The bytes belong to the engine; a store does not read them."""

    run_id: str
    # 0 is the start; no number is missing
    seq: int
    # True: ``data`` is the state as a whole; False: what changed since ``seq - 1``
    whole: bool
    data: bytes
    # the nodes that finished with it
    nodes: tuple[str, ...]
    created_at: float


@dataclass(frozen=True)
class StoredRun:
    """A run with what is needed to build its state: one whole checkpoint, then the changes."""

    run: GraphRun
    checkpoints: tuple[Checkpoint, ...]


@runtime_checkable
class CheckpointStoreProtocol(Protocol):
    """Keeps runs and their checkpoints, append only.

    Guaranteed: what a call wrote when it returned survives as far as the store does, and of
    two callers that append the same number one gets CheckpointConflictError: a run has one
    owner at a time. Not guaranteed: order between runs. Methods raise when the store fails.
    """

    async def create(self, run: GraphRun, first: Checkpoint) -> None:
        """Keep a new run and its checkpoint 0, both or none.

        Raises CheckpointConflictError when there is a run with this id.
        """
        ...

    async def append(self, checkpoint: Checkpoint, run: GraphRun | None = None) -> None:
        """Keep the next checkpoint and, when given, how the run stands now; both or none.

        Raises CheckpointConflictError when the number is taken, and WorkflowNotFoundError, a
        LookupError, when there is no such run. Nothing is written then.
        """
        ...

    async def update(self, run: GraphRun, expected: GraphRunStatus) -> bool:
        """Change how a run stands; False, and nothing changed, unless it stands at ``expected``.

        Of two concurrent callers with the same ``expected`` status one gets True, unless the
        status stays as it is.
        """
        ...

    async def load(self, run_id: str, seq: int | None = None) -> StoredRun | None:
        """The run up to checkpoint ``seq``, or up to its last; None when either is unknown.

        The first checkpoint given is the latest whole one at or before ``seq``.
        """
        ...

    async def history(self, run_id: str) -> Sequence[Checkpoint]:
        """All checkpoints that are kept, oldest first; empty when the run is unknown."""
        ...

    async def runs(
        self,
        *,
        graph: str | None = None,
        status: GraphRunStatus | None = None,
        due_before: float | None = None,
        limit: int = 100,
    ) -> Sequence[GraphRun]:
        """Runs that match, the latest change first; ``due_before`` means paused and overdue."""
        ...

    async def prune(self, run_id: str, keep: int) -> int:
        """Forget old checkpoints of a run but keep the last ``keep`` usable; how many went.

        More are kept where the oldest of them needs them. Unknown: 0.
        """
        ...

    async def expire(self, before: float, *, limit: int = 1000) -> int:
        """Forget up to ``limit`` runs that ended before a moment; how many. Others stay."""
        ...

    async def delete(self, run_id: str) -> bool:
        """Forget a run, whatever its state; False when unknown."""
        ...

"""Runs kept in this process, with all promises of the contract but survival."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from attrs import define, field

from lexigram.contracts.workflow.checkpoints import (
    Checkpoint,
    GraphRun,
    GraphRunStatus,
    StoredRun,
)
from lexigram.contracts.workflow.errors import CheckpointConflictError, WorkflowNotFoundError

ENDED = frozenset({GraphRunStatus.COMPLETED, GraphRunStatus.FAILED, GraphRunStatus.CANCELLED})


@define
class _Kept:
    run: GraphRun
    checkpoints: list[Checkpoint] = field(factory=list[Checkpoint])


class InMemoryCheckpointStore:
    """Implements ``CheckpointStoreProtocol``; the oldest ended runs go when there are too many.

    ``max_runs`` counts ended runs only (0: no limit): a run that is paused or running is never
    forgotten by itself.
    """

    def __init__(self, max_runs: int = 512) -> None:
        self._max_runs = max_runs
        self._runs: dict[str, _Kept] = {}
        # Ids of ended runs, the oldest first.
        self._ended: OrderedDict[str, None] = OrderedDict()

    async def create(self, run: GraphRun, first: Checkpoint) -> None:
        """See the contract."""
        if run.run_id in self._runs:
            raise CheckpointConflictError(run.run_id, 0)
        self._runs[run.run_id] = _Kept(run, [first])
        self._note(run)

    async def append(self, checkpoint: Checkpoint, run: GraphRun | None = None) -> None:
        """See the contract."""
        kept = self._runs.get(checkpoint.run_id)
        if kept is None:
            raise WorkflowNotFoundError(checkpoint.run_id)
        if checkpoint.seq <= kept.checkpoints[-1].seq:
            raise CheckpointConflictError(checkpoint.run_id, checkpoint.seq)
        kept.checkpoints.append(checkpoint)
        if run is not None:
            kept.run = run
            self._note(run)

    async def update(self, run: GraphRun, expected: GraphRunStatus) -> bool:
        """See the contract."""
        kept = self._runs.get(run.run_id)
        if kept is None or kept.run.status is not expected:
            return False
        kept.run = run
        self._note(run)
        return True

    async def load(self, run_id: str, seq: int | None = None) -> StoredRun | None:
        """See the contract."""
        kept = self._runs.get(run_id)
        if kept is None:
            return None
        wanted = [item for item in kept.checkpoints if seq is None or item.seq <= seq]
        if not wanted or (seq is not None and wanted[-1].seq != seq):
            return None
        whole = [at for at, item in enumerate(wanted) if item.whole]
        return StoredRun(kept.run, tuple(wanted[whole[-1] :])) if whole else None

    async def history(self, run_id: str) -> Sequence[Checkpoint]:
        """See the contract."""
        kept = self._runs.get(run_id)
        return tuple(kept.checkpoints) if kept is not None else ()

    async def runs(
        self,
        *,
        graph: str | None = None,
        status: GraphRunStatus | None = None,
        due_before: float | None = None,
        limit: int = 100,
    ) -> Sequence[GraphRun]:
        """See the contract."""
        found = [
            run
            for run in (kept.run for kept in self._runs.values())
            if (graph is None or run.graph == graph)
            and (status is None or run.status is status)
            and (due_before is None or _is_due(run, due_before))
        ]
        found.sort(key=lambda run: (-run.updated_at, run.run_id))
        return found[:limit]

    async def prune(self, run_id: str, keep: int) -> int:
        """See the contract."""
        kept = self._runs.get(run_id)
        if kept is None or len(kept.checkpoints) <= keep:
            return 0
        oldest = kept.checkpoints[-max(keep, 1)].seq
        whole = [
            at for at, item in enumerate(kept.checkpoints) if item.whole and item.seq <= oldest
        ]
        cut = whole[-1] if whole else 0
        del kept.checkpoints[:cut]
        return cut

    async def expire(self, before: float, *, limit: int = 1000) -> int:
        """See the contract."""
        old = [run_id for run_id in self._ended if self._runs[run_id].run.updated_at < before]
        for run_id in old[:limit]:
            await self.delete(run_id)
        return len(old[:limit])

    async def delete(self, run_id: str) -> bool:
        """See the contract."""
        self._ended.pop(run_id, None)
        return self._runs.pop(run_id, None) is not None

    def _note(self, run: GraphRun) -> None:
        self._ended.pop(run.run_id, None)
        if run.status in ENDED:
            self._ended[run.run_id] = None
            while self._max_runs and len(self._ended) > self._max_runs:
                oldest, _ = self._ended.popitem(last=False)
                del self._runs[oldest]


def _is_due(run: GraphRun, before: float) -> bool:
    paused = run.status is GraphRunStatus.PAUSED
    return paused and run.due_at is not None and run.due_at < before

"""Runs kept in any cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lexigram.contracts.infra.cache.protocols import CacheBackendProtocol
from lexigram.contracts.workflow.checkpoints import (
    Checkpoint,
    GraphRun,
    GraphRunStatus,
    StoredRun,
)
from lexigram.contracts.workflow.errors import CheckpointConflictError, WorkflowNotFoundError
from lexigram.workflow._results import value_or_raise
from lexigram.workflow.runs._recorder import PIPELINE_PREFIX

KEY_PREFIX = "pipeline:checkpoint:"


class CacheCheckpointStore:
    """Implements ``CheckpointStoreProtocol`` for the runs of one pipeline, whole checkpoints only.

    A run is one value, its last checkpoint, and is deleted when it completed. A cache may forget,
    it cannot keep two processes from resuming one run, and pauses in it do not time out, since
    nobody can list them: a database has none of these limits.
    """

    def __init__(self, cache: CacheBackendProtocol, graph: str) -> None:
        self._cache = cache
        self._prefix = f"{KEY_PREFIX}{graph.removeprefix(PIPELINE_PREFIX)}:"

    async def create(self, run: GraphRun, first: Checkpoint) -> None:
        """See the contract."""
        if await self.load(run.run_id) is not None:
            raise CheckpointConflictError(run.run_id, 0)
        await self._set(run, first.seq, first.data.decode())

    async def append(self, checkpoint: Checkpoint, run: GraphRun | None = None) -> None:
        """See the contract."""
        if run is None:
            stored = await self.load(checkpoint.run_id)
            if stored is None:
                raise WorkflowNotFoundError(checkpoint.run_id)
            run = stored.run
        if run.status is GraphRunStatus.COMPLETED:
            await self.delete(run.run_id)
        else:
            await self._set(run, checkpoint.seq, checkpoint.data.decode())

    async def update(self, run: GraphRun, expected: GraphRunStatus) -> bool:
        """See the contract."""
        stored = await self.load(run.run_id)
        if stored is None or stored.run.status is not expected:
            return False
        (last,) = stored.checkpoints
        await self._set(run, last.seq, last.data.decode())
        return True

    async def load(self, run_id: str, seq: int | None = None) -> StoredRun | None:
        """See the contract."""
        value: Any = value_or_raise(await self._cache.get(self._prefix + run_id))
        if value is None or seq not in (None, value.get("seq", 0)):
            return None
        facts: dict[str, Any] = dict(value["run"])
        facts["status"] = GraphRunStatus(facts["status"])
        run = GraphRun(**facts)
        data = value["data"].encode()
        last = Checkpoint(run_id, value.get("seq", 0), True, data, (), run.updated_at)
        return StoredRun(run, (last,))

    async def history(self, run_id: str) -> Sequence[Checkpoint]:
        """The last checkpoint."""
        stored = await self.load(run_id)
        return () if stored is None else stored.checkpoints

    async def runs(
        self,
        *,
        graph: str | None = None,
        status: GraphRunStatus | None = None,
        due_before: float | None = None,
        limit: int = 100,
    ) -> Sequence[GraphRun]:
        """Empty: a cache cannot list what it has."""
        return ()

    async def prune(self, run_id: str, keep: int) -> int:
        """0: there is only the last checkpoint."""
        return 0

    async def expire(self, before: float, *, limit: int = 1000) -> int:
        """0: a cache cannot list what it has."""
        return 0

    async def delete(self, run_id: str) -> bool:
        """See the contract."""
        return bool(value_or_raise(await self._cache.delete(self._prefix + run_id)))

    async def _set(self, run: GraphRun, seq: int, data: str) -> None:
        facts = {**asdict(run), "status": run.status.value}
        value = {"run": facts, "seq": seq, "data": data}
        value_or_raise(await self._cache.set(self._prefix + run.run_id, value))

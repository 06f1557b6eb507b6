"""Keeps the runs of pipelines by their id, in a checkpoint store or in any cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import anyio
from attrs import define, field

from lexigram import clock
from lexigram.contracts.core.result import Err
from lexigram.contracts.infra.cache.protocols import CacheBackendProtocol
from lexigram.contracts.workflow.checkpoints import (
    Checkpoint,
    CheckpointStoreProtocol,
    GraphRun,
    GraphRunStatus,
)
from lexigram.serialization import SerializationError
from lexigram.workflow.checkpoint import codec
from lexigram.workflow.errors import (
    CheckpointConflictError,
    StateNotStorableError,
    WorkflowStateError,
)
from lexigram.workflow.graph.recorder import is_inner
from lexigram.workflow.pipeline.context import STEP_RESULTS, TOTAL_DURATION, PipelineContext

# How a pipeline is called in a checkpoint store, where graphs may have the same names.
PREFIX = "pipeline:"
CACHE_PREFIX = "pipeline:checkpoint:"

# Steps between two checkpoints that hold everything.
CHANGES_PER_WHOLE = 32


@define
class StoredPipelineRun:
    """A run as it was kept."""

    run: GraphRun
    results: dict[str, Any] = field(factory=dict[str, Any])
    finished: dict[str, str] = field(factory=dict[str, str])
    ways: dict[str, bool] = field(factory=dict[str, bool])
    # the steps that wait for an answer
    waiting: list[str] = field(factory=list[str])
    # until when, for those that do not wait for ever
    dues: dict[str, float] = field(factory=dict[str, float])
    metadata: dict[str, Any] = field(factory=dict[str, Any])
    seq: int = 0
    since_whole: int = 0

    def take(self, document: Mapping[str, Any]) -> None:
        """Add what a checkpoint holds; one that holds everything goes over all of it."""
        self.results.update(document.get("v", {}))
        self.finished.update(document.get("f", {}))
        self.ways.update(document.get("w", {}))
        self.waiting = document.get("p", [])
        self.dues = document.get("d", {})
        if "m" in document:
            self.metadata = document["m"]


class Keeper(Protocol):
    """Where runs of pipelines are kept. Methods raise when it fails."""

    # True: every write holds everything
    writes_whole: bool

    async def create(self, run: GraphRun, data: bytes) -> None:
        """Keep a new run; CheckpointConflictError when its id is taken."""
        ...

    async def append(self, item: Checkpoint, run: GraphRun, *, moved: bool) -> None:
        """Keep the next checkpoint of a run, and how it stands when that changed."""
        ...

    async def stand(self, run: GraphRun, expected: GraphRunStatus) -> bool:
        """Keep how the run stands; False when it did not stand at ``expected``."""
        ...

    async def load(self, name: str, run_id: str) -> StoredPipelineRun | None:
        """The run of this pipeline, or None."""
        ...

    async def overdue(self, name: str, limit: int) -> list[str]:
        """Runs of this pipeline, not inside another, whose pause is over; their ids."""
        ...


class PipelineRecorder:
    """The checkpoints of one run. ``every_step=False`` keeps it only when it pauses."""

    def __init__(
        self, keeper: Keeper, run: GraphRun, context: PipelineContext, *, every_step: bool
    ) -> None:
        self.run = run
        self.every_step = every_step
        self.is_stored = False
        self._keeper = keeper
        self._context = context
        self._seq = 0
        self._since_whole = 0
        # the facts as they were kept last
        self._facts = b""
        self._pending: list[str] = []
        self._turn = anyio.Lock()

    @property
    def seq(self) -> int:
        """The number of the last checkpoint."""
        return self._seq

    def continues(self, stored: StoredPipelineRun) -> None:
        """Go on after the last checkpoint."""
        self.is_stored = True
        self._seq, self._since_whole = stored.seq, stored.since_whole

    async def start(self) -> None:
        """Keep a new run, with what it begins with."""
        await self._keeper.create(self.run, self._whole(()))
        self.is_stored = True

    async def finished(self, name: str) -> None:
        """Keep that a step is over. Those that end while one is written share the next write."""
        if not self.every_step:
            return
        self._pending.append(name)
        async with self._turn:
            names, self._pending = self._pending, []
            if names:
                await self._write(names)

    async def decided(self) -> None:
        """Keep which way a choice went, before anything is done about it."""
        if self.every_step:
            async with self._turn:
                await self._write(())

    async def paused(self) -> None:
        """Keep everything; nothing is held after this."""
        self._stand(GraphRunStatus.PAUSED, due_at=min(_dues(self._context).values(), default=None))
        if self.is_stored:
            await self._write((), moved=True)
        else:
            await self.start()

    async def resumed(self) -> None:
        """Take a run that stood still; WorkflowStateError when somebody else was quicker."""
        expected = self.run.status
        self._stand(GraphRunStatus.RUNNING)
        if not await self._keeper.stand(self.run, expected):
            raise WorkflowStateError(
                f"somebody else went on with run {self.run.run_id!r} at the same moment"
            )

    async def ended(self, status: GraphRunStatus, error: str | None = None) -> None:
        """Keep how the run ended."""
        if not self.is_stored:
            return
        expected = self.run.status
        self._stand(status, error)
        if status is GraphRunStatus.COMPLETED:
            await self._write((), moved=True)
        else:
            await self._keeper.stand(self.run, expected)

    # --- how ---

    def _stand(
        self, status: GraphRunStatus, error: str | None = None, *, due_at: float | None = None
    ) -> None:
        now = clock.timestamp()
        self.run = replace(self.run, status=status, updated_at=now, due_at=due_at, error=error)

    async def _write(self, names: Sequence[str], *, moved: bool = False) -> None:
        whole = moved or self._keeper.writes_whole or self._since_whole >= CHANGES_PER_WHOLE
        data = self._whole(names) if whole else self._some(names)
        self._seq += 1
        self._since_whole = 0 if whole else self._since_whole + 1
        now = clock.timestamp()
        item = Checkpoint(self.run.run_id, self._seq, whole, data, tuple(names), now)
        await self._keeper.append(item, self.run, moved=moved)

    def _whole(self, names: Sequence[str]) -> bytes:
        context = self._context
        facts = _facts(context)
        self._facts = self._encoded({"m": facts}, names)
        document = {
            "v": context.step_results,
            "f": context.progress.finished,
            "w": context.progress.ways,
            "p": list(context.progress.waiting),
            "m": facts,
        }
        if dues := _dues(context):
            document["d"] = dues
        return self._encoded(document, names)

    def _some(self, names: Sequence[str]) -> bytes:
        context, finished = self._context, self._context.progress.finished
        document: dict[str, Any] = {
            "v": {name: context.step_results[name] for name in names if finished[name] == "c"},
            "f": {name: finished[name] for name in names},
        }
        if context.progress.ways:
            document["w"] = context.progress.ways
        facts = _facts(context)
        # Compared as bytes, because a fact may have been changed in place.
        encoded = self._encoded({"m": facts}, names)
        if encoded != self._facts:
            document["m"], self._facts = facts, encoded
        return self._encoded(document, names)

    def _encoded(self, document: dict[str, Any], names: Sequence[str]) -> bytes:
        try:
            return codec.encode(document)
        except SerializationError as error:
            raise StateNotStorableError(
                f"a checkpoint cannot hold the results: {error.message}",
                node=names[-1] if names else None,
                run_id=self.run.run_id,
                details=error.details,
                hint="register the class with lexigram.serialization.register, or return plain data",
                cause=error,
            ) from error


class StoreKeeper:
    """Runs in a checkpoint store: one row per step, append only."""

    writes_whole = False

    def __init__(self, store: CheckpointStoreProtocol) -> None:
        self._store = store

    async def create(self, run: GraphRun, data: bytes) -> None:
        """See Keeper."""
        await self._store.create(run, Checkpoint(run.run_id, 0, True, data, (), run.created_at))

    async def append(self, item: Checkpoint, run: GraphRun, *, moved: bool) -> None:
        """See Keeper."""
        await self._store.append(item, run if moved else None)

    async def stand(self, run: GraphRun, expected: GraphRunStatus) -> bool:
        """See Keeper."""
        return await self._store.update(run, expected)

    async def load(self, name: str, run_id: str) -> StoredPipelineRun | None:
        """See Keeper. A run of something else is a WorkflowStateError."""
        stored = await self._store.load(run_id)
        if stored is None:
            return None
        if stored.run.graph != PREFIX + name:
            raise WorkflowStateError(
                f"run {run_id!r} belongs to {stored.run.graph!r}, not to pipeline {name!r}"
            )
        found = StoredPipelineRun(run=stored.run, seq=stored.checkpoints[-1].seq)
        for item in stored.checkpoints:
            found.take(codec.decode(item.data))
            found.since_whole = 0 if item.whole else found.since_whole + 1
        return found

    async def overdue(self, name: str, limit: int) -> list[str]:
        """See Keeper."""
        now = clock.timestamp()
        due = await self._store.runs(graph=PREFIX + name, due_before=now, limit=limit)
        return [run.run_id for run in due if not await is_inner(self._store, run.run_id)]


class CacheKeeper:
    """Runs in a cache, one value per run, gone when the run completed.

    A cache may forget, it cannot keep two processes from going on with one run, and pauses in
    it do not time out, since nobody can list them: a database has none of these limits.
    """

    writes_whole = True

    def __init__(self, cache: CacheBackendProtocol) -> None:
        self._cache = cache

    async def create(self, run: GraphRun, data: bytes) -> None:
        """See Keeper."""
        if await self._found(run.graph, run.run_id) is not None:
            raise CheckpointConflictError(run.run_id, 0)
        await self._set(run, data.decode())

    async def append(self, item: Checkpoint, run: GraphRun, *, moved: bool) -> None:
        """See Keeper."""
        if moved and run.status is GraphRunStatus.COMPLETED:
            _taken(await self._cache.delete(_key(run.graph, run.run_id)))
        else:
            await self._set(run, item.data.decode())

    async def stand(self, run: GraphRun, expected: GraphRunStatus) -> bool:
        """See Keeper."""
        known = await self._found(run.graph, run.run_id)
        if known is None or known[0].status is not expected:
            return False
        await self._set(run, known[1])
        return True

    async def load(self, name: str, run_id: str) -> StoredPipelineRun | None:
        """See Keeper."""
        known = await self._found(PREFIX + name, run_id)
        if known is None:
            return None
        found = StoredPipelineRun(run=known[0])
        found.take(codec.decode(known[1].encode()))
        return found

    async def overdue(self, name: str, limit: int) -> list[str]:
        """See Keeper. A cache cannot list what it has."""
        return []

    async def _set(self, run: GraphRun, data: str) -> None:
        facts = {**asdict(run), "status": run.status.value}
        _taken(await self._cache.set(_key(run.graph, run.run_id), {"run": facts, "data": data}))

    async def _found(self, graph: str, run_id: str) -> tuple[GraphRun, str] | None:
        value: Any = _taken(await self._cache.get(_key(graph, run_id)))
        if value is None:
            return None
        facts: dict[str, Any] = dict(value["run"])
        facts["status"] = GraphRunStatus(facts["status"])
        run = GraphRun(**facts)
        return run, value["data"]


def _key(graph: str, run_id: str) -> str:
    return f"{CACHE_PREFIX}{graph.removeprefix(PREFIX)}:{run_id}"


def _taken(answer: Any) -> Any:
    """The value of what a cache answered; its error is raised."""
    if isinstance(answer, Err):
        error: Any = answer.error  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - of any cache
        raise error
    return answer.value


def _facts(context: PipelineContext) -> dict[str, Any]:
    ours = (STEP_RESULTS, TOTAL_DURATION)
    return {key: value for key, value in context.metadata.items() if key not in ours}


def _dues(context: PipelineContext) -> dict[str, float]:
    return {name: due for name, due in context.progress.waiting.items() if due is not None}

"""Records the runs of graphs and pipelines in a checkpoint store."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import anyio

from lexigram import clock
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.workflow.checkpoints import (
    Checkpoint,
    CheckpointStoreProtocol,
    GraphRun,
    GraphRunStatus,
    StoredRun,
)
from lexigram.serialization import SerializationError
from lexigram.workflow._emitter import WorkflowEmitter
from lexigram.workflow.errors import (
    CheckpointConflictError,
    HumanInputRequiredError,
    StateNotStorableError,
    WorkflowError,
    WorkflowNotFoundError,
    WorkflowStateError,
    WorkflowVersionMismatchError,
)
from lexigram.workflow.runs import _codec as codec

# Changes between two checkpoints that hold everything: to read a run takes at most this many, and
# everything is written once in as many steps.
CHANGES_PER_WHOLE = 32


# How a pipeline is called in a checkpoint store, where graphs may have the same names.
PIPELINE_PREFIX = "pipeline:"


class Contents(Protocol):
    """What there is to record of a run."""

    def document(self, changed_by: Sequence[str] | None) -> dict[str, Any]:
        """Everything that another process needs to resume the run; or only what is next and what
        was changed by these nodes or steps, the last that finished.

        May raise SerializationError.
        """
        ...


class Recorder:
    """The checkpoints of one run. ``every_step=False`` writes at a pause, and the end of a run
    that ever paused; nothing else.

    ``is_behind`` writes a step while the next ones run. ``keep`` is how many checkpoints are kept,
    0 for all. ``only_last`` is for a store that keeps one checkpoint of a run: each is whole then,
    and comes with the run.
    """

    def __init__(
        self,
        store: CheckpointStoreProtocol,
        run: GraphRun,
        contents: Contents,
        *,
        every_step: bool,
        is_behind: bool = False,
        keep: int = 0,
        only_last: bool = False,
    ) -> None:
        self.run = run
        self.every_step = every_step
        self.is_stored = False
        # the number of the last checkpoint
        self.seq = -1
        self._store = store
        self._contents = contents
        self._is_behind = is_behind
        self._keep = keep
        self._only_last = only_last
        self._since_whole = 0
        self._waiting: list[Any] = []
        self._turn = anyio.Lock()
        self._queue: list[Checkpoint] = []
        self._writer: asyncio.Task[None] | None = None

    def follow(self, stored: StoredRun) -> None:
        """Number checkpoints after the last one of a stored run."""
        self.is_stored = True
        self.seq = stored.checkpoints[-1].seq
        self._since_whole = len(stored.checkpoints) - 1  # the first of them is whole

    async def start(self) -> None:
        """Store a new run; CheckpointConflictError when its id is taken."""
        await self._store.create(self.run, self._checkpoint((), whole=True))
        self.is_stored = True

    async def step(self, nodes: Sequence[str]) -> None:
        """Store what nodes that finished changed, and what is to run now."""
        whole = self._only_last or not self.every_step or self._since_whole >= CHANGES_PER_WHOLE
        checkpoint = self._checkpoint(nodes, whole=whole)
        if not self._is_behind:
            await self._store.append(checkpoint, self.run if self._only_last else None)
            if self._keep:
                await self._prune(checkpoint)
            return
        self._queue.append(checkpoint)
        if self._writer is not None and self._writer.done():
            await self._wait_until_written()  # raises what went wrong
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_queue())

    async def share(
        self, items: Sequence[Any], write: Callable[[list[Any]], Awaitable[None]]
    ) -> None:
        """Call ``write`` with items of what runs side by side: those that come while it runs share
        the next call.
        """
        self._waiting += items
        async with self._turn:
            taken, self._waiting = self._waiting, []
            if taken or not items:
                if self._writer is not None:
                    await self._wait_until_written()
                await write(taken)

    async def add(
        self,
        document: dict[str, Any],
        nodes: Sequence[str] = (),
        *,
        status: GraphRunStatus | None = None,
    ) -> None:
        """Store a change of another kind and, when given, how the run stands from now on."""
        run = None if status is None else self._standing(status)
        await self._store.append(self._checkpoint(nodes, document), run)
        self.run = run or self.run

    async def pause(self, nodes: Sequence[str], dues: Iterable[float | None]) -> None:
        """Store everything; nothing is held after this. ``dues``: until when the pauses wait."""
        due_at = min((due for due in dues if due is not None), default=None)
        run = self._standing(GraphRunStatus.PAUSED, due_at=due_at)
        await self._wait_until_written()
        if not self.is_stored:
            self.run = run
            await self.start()
        else:
            await self._store.append(self._checkpoint(nodes, whole=True), run)
            self.run = run

    async def resume(self) -> None:
        """Set a run that stopped to running; WorkflowStateError when another process was quicker."""
        run = self._standing(GraphRunStatus.RUNNING)
        if not await self._store.update(run, self.run.status):
            raise WorkflowStateError(
                f"run {run.run_id!r} was resumed by another process at the same moment"
            )
        self.run = run

    async def end(
        self, status: GraphRunStatus, nodes: Sequence[str] = (), *, error: str | None = None
    ) -> None:
        """Store how the run ended."""
        await self._wait_until_written()
        if not self.is_stored:
            return
        run = self._standing(status, error=error)
        if status is GraphRunStatus.COMPLETED:
            await self._store.append(self._checkpoint(nodes, whole=True), run)
            if self._keep:
                await self._store.prune(run.run_id, self._keep)
        else:
            await self._store.update(run, self.run.status)
        self.run = run

    async def close(self) -> None:
        """Finish what is being written; for runs that end by cancellation or an error."""
        if self._writer is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._writer])

    # --- how ---

    def _checkpoint(
        self, nodes: Sequence[str], document: dict[str, Any] | None = None, *, whole: bool = False
    ) -> Checkpoint:
        try:
            if document is None:
                document = self._contents.document(None if whole else nodes)
            data = codec.encode(document)
        except SerializationError as error:
            raise StateNotStorableError(
                f"a checkpoint cannot hold the state: {error.message}",
                node=nodes[-1] if nodes else None,
                run_id=self.run.run_id,
                details=error.details,
                hint="register the class with lexigram.serialization.register, or keep plain data",
                cause=error,
            ) from error
        self.seq += 1
        self._since_whole = 0 if whole else self._since_whole + 1
        return Checkpoint(self.run.run_id, self.seq, whole, data, tuple(nodes), clock.timestamp())

    def _standing(
        self, status: GraphRunStatus, *, due_at: float | None = None, error: str | None = None
    ) -> GraphRun:
        now = clock.timestamp()
        return replace(self.run, status=status, updated_at=now, due_at=due_at, error=error)

    async def _prune(self, checkpoint: Checkpoint) -> None:
        if checkpoint.whole:
            await self._store.prune(checkpoint.run_id, self._keep)

    async def _write_queue(self) -> None:
        while self._queue:
            taken, self._queue = self._queue, []
            # Side by side, so that the store can put them into one transaction, in this order.
            await asyncio.gather(*map(self._store.append, taken))
            for checkpoint in taken if self._keep else ():
                await self._prune(checkpoint)

    async def _wait_until_written(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer


class LiveRun:
    """A run that this process works on."""

    recorder: Recorder
    # set while it may be cancelled
    scope: anyio.CancelScope | None = None
    cancelled = False


class RecordedRuns(ABC):
    """What a graph and a pipeline have in common: their runs, here and in a store."""

    _name: str
    _version: int
    _store: CheckpointStoreProtocol
    _emitter: WorkflowEmitter

    def __init__(self) -> None:
        self._live: dict[str, LiveRun] = {}
        # runs that paused here and were not answered yet
        self._paused_here: dict[str, None] = {}

    @property
    @abstractmethod
    def _stored_as(self) -> str:
        """What its runs are called in the store."""

    @abstractmethod
    async def _time_out(self, run_id: str) -> None:
        """Resume a paused run without an answer; WorkflowStateError when it is not paused."""

    async def cancel(self, run_id: str) -> bool:
        """Stop a run of this object, or any that is paused. False when there is none."""
        live = self._live.get(run_id)
        if live is not None and live.scope is not None:
            live.cancelled = True
            live.scope.cancel()
            return True
        stored = await self._store.load(run_id)
        if stored is None or stored.run.graph != self._stored_as:
            return False
        if stored.run.status is not GraphRunStatus.PAUSED:
            return False
        now = clock.timestamp()
        run = replace(stored.run, status=GraphRunStatus.CANCELLED, updated_at=now, due_at=None)
        is_cancelled = await self._store.update(run, GraphRunStatus.PAUSED)
        if is_cancelled:
            self._paused_here.pop(run_id, None)
            await self._emitter.emit_moved(run_id, "paused", "cancelled")
        return is_cancelled

    async def time_out_pauses(self, *, limit: int = 100) -> list[str]:
        """Resume the runs whose pause is over without an answer; their ids.

        Call it now and then, in one process or several. What paused decides: an approval asks the
        next person, or counts the answer as no. A run inside another one is resumed by that. Runs
        in a cache are not found. Raises WorkflowError for runs that cannot be resumed, such as for
        a class that is gone, after all others were.
        """
        now = clock.timestamp()
        due = await self._store.runs(graph=self._stored_as, due_before=now, limit=limit)
        done: list[str] = []
        failed: dict[str, Exception] = {}
        for run in due:
            try:
                if await _is_inner(self._store, run.run_id):
                    continue
                await self._time_out(run.run_id)
            except HumanInputRequiredError:
                pass  # it asked another question, and waits again
            except (WorkflowStateError, WorkflowVersionMismatchError):
                continue  # it was answered at the same moment, or it is not ours to resume
            except Exception as error:  # noqa: BLE001 - raised below, so that others are resumed
                failed[run.run_id] = error
                continue
            done.append(run.run_id)
        if failed:
            run_id, first = next(iter(failed.items()))
            more = f" (nor could {len(failed) - 1} others)" if len(failed) > 1 else ""
            raise WorkflowError(
                f"run {run_id!r} could not be resumed after its pause{more}: {first}",
                details={"failed": list(failed), "resumed": done},
                hint="mend what it needs, or cancel it",
            ) from first
        return done

    async def _stored(self, run_id: str, seq: int | None = None) -> StoredRun:
        stored = await self._store.load(run_id, seq)
        if stored is None:
            raise WorkflowNotFoundError(
                run_id if seq is None else f"{run_id} at checkpoint {seq}",
                hint="runs are kept in a checkpoint store, unless pruned; a cache forgets"
                " completed ones",
            )
        if stored.run.graph != self._stored_as:
            owner, this = _describe(stored.run.graph), _describe(self._stored_as)
            raise WorkflowStateError(f"run {run_id!r} belongs to {owner}, not to {this}")
        return stored

    def _refuse_other_version(self, run: GraphRun) -> None:
        if run.version != self._version:
            raise WorkflowVersionMismatchError(self._name, self._version, run.version)

    async def _record_failure(self, live: LiveRun, error: LexigramError) -> None:
        """Store and announce that a run failed or was cancelled."""
        status = GraphRunStatus.CANCELLED if live.cancelled else GraphRunStatus.FAILED
        # A process that lost the run to another one does not report its end.
        if not isinstance(error.cause, CheckpointConflictError):
            try:
                await live.recorder.end(status, error=str(error))
            except Exception as second:  # noqa: BLE001 - the caller gets both
                error.add_note(f"and that could not be stored: {second}")
        if not self._emitter.is_silent:
            run_id = live.recorder.run.run_id
            await self._emitter.emit_moved(run_id, "running", status.value)
            await self._emitter.emit_failed(run_id, error)


def _describe(stored_as: str) -> str:
    name = stored_as.removeprefix(PIPELINE_PREFIX)
    return f"{'graph' if name == stored_as else 'pipeline'} {name!r}"


async def _is_inner(store: CheckpointStoreProtocol, run_id: str) -> bool:
    """Whether the run is part of another one in the store, which resumes it."""
    outer = run_id.rpartition("/")[0]
    return bool(outer) and await store.load(outer) is not None

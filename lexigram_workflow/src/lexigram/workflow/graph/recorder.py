"""Writes the steps of one run to its store, and reads them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
from attrs import frozen

from lexigram import clock
from lexigram.contracts.workflow.checkpoints import (
    Checkpoint,
    CheckpointStoreProtocol,
    GraphRun,
    GraphRunStatus,
    StoredRun,
)
from lexigram.serialization import SerializationError
from lexigram.workflow.checkpoint import codec
from lexigram.workflow.errors import StateNotStorableError
from lexigram.workflow.graph.plan import Plan
from lexigram.workflow.graph.position import Position

# Changes between two checkpoints that hold the whole state: to read a run takes at most this
# many, and a state is written in full once in as many steps.
CHANGES_PER_WHOLE = 32

# What a node changed, as (name, visit, update).
Change = tuple[str, int, dict[str, Any]]


@frozen
class Loaded:
    """A stored run, ready to go on."""

    run: GraphRun
    state: dict[str, Any]
    position: Position
    seq: int
    since_whole: int


class Recorder:
    """The checkpoints of one run. ``every_step=False`` writes at a pause, and the end of a run
    that ever paused; nothing else.
    """

    def __init__(
        self,
        store: CheckpointStoreProtocol,
        run: GraphRun,
        plan: Plan,
        *,
        every_step: bool,
        behind: bool = False,
        keep: int = 0,
    ) -> None:
        self.run = run
        self.every_step = every_step
        self.is_stored = False
        self._store = store
        self._plan = plan
        self._behind = behind
        self._keep = keep
        self._seq = -1
        self._since_whole = 0
        self._parts: list[tuple[int, str, dict[str, Any]]] = []
        self._turn = anyio.Lock()
        self._queue: list[Checkpoint] = []
        self._writer: asyncio.Task[None] | None = None

    @property
    def seq(self) -> int:
        """The number of the last checkpoint."""
        return self._seq

    def continues(self, loaded: Loaded) -> None:
        """Go on after the last checkpoint."""
        self.is_stored = True
        self._seq, self._since_whole = loaded.seq, loaded.since_whole

    async def start(self, state: Mapping[str, Any], position: Position) -> None:
        """Keep a new run; CheckpointConflictError when its id is taken."""
        document = {"w": _public(state), **position.as_document(self._plan)}
        await self._store.create(self.run, self._checkpoint(document, whole=True))
        self.is_stored = True

    async def step(
        self, changes: Sequence[Change], state: Mapping[str, Any], position: Position
    ) -> None:
        """Keep what the nodes of a step changed, and what is to run now."""
        checkpoint = self._step(changes, state, position)
        if not self._behind:
            await self._store.append(checkpoint)
            await self._prune(checkpoint)
            return
        self._queue.append(checkpoint)
        if self._writer is not None and self._writer.done():
            await self._written()  # raises what went wrong
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_queue())

    async def part(self, name: str, visit: int, update: dict[str, Any]) -> None:
        """Keep what one node changed while others of its step still run.

        Those that finish while a part is written share the next one.
        """
        self._parts.append((visit, name, update))
        async with self._turn:
            taken, self._parts = self._parts, []
            if taken:
                await self._written()
                document = {"q": [[visit, update] for visit, _, update in taken]}
                names = [name for _, name, _ in taken]
                await self._store.append(self._checkpoint(document, nodes=names))

    async def pause(
        self, changes: Sequence[Change], state: Mapping[str, Any], position: Position
    ) -> None:
        """Keep state and position; nothing is held after this."""
        dues = [pause.due_at for pause in position.paused if pause.due_at is not None]
        run = self._standing(GraphRunStatus.PAUSED, due_at=min(dues, default=None))
        await self._written()
        if not self.is_stored:
            self.run = run
            await self.start(state, position)
        else:
            await self._store.append(self._step(changes, state, position, whole=True), run)
            self.run = run

    async def answer(self, visit: int, response: Any, *, timed_out: bool) -> None:
        """Keep an answer: a crash after this does not ask again."""
        run = self._standing(GraphRunStatus.RUNNING)
        await self._store.append(self._checkpoint({"r": [visit, response, timed_out]}), run)
        self.run = run

    async def end(
        self,
        status: GraphRunStatus,
        state: Mapping[str, Any],
        position: Position,
        *,
        changes: Sequence[Change] = (),
        error: str | None = None,
    ) -> None:
        """Keep how the run ended."""
        await self._written()
        if not self.is_stored:
            return
        run = self._standing(status, error=error)
        if status is GraphRunStatus.COMPLETED:
            await self._store.append(self._step(changes, state, position, whole=True), run)
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

    def _step(
        self,
        changes: Sequence[Change],
        state: Mapping[str, Any],
        position: Position,
        *,
        whole: bool = False,
    ) -> Checkpoint:
        names = [name for name, _, _ in changes]
        place = position.as_document(self._plan)
        if whole or not self.every_step or self._since_whole >= CHANGES_PER_WHOLE:
            return self._checkpoint({"w": _public(state), **place}, whole=True, nodes=names)
        # A part that is stored is not written again: None stands for it.
        stored = position.parts
        place["s"] = [
            [name, visit, None if visit in stored else update] for name, visit, update in changes
        ]
        return self._checkpoint(place, nodes=names)

    def _checkpoint(
        self, document: dict[str, Any], *, whole: bool = False, nodes: Sequence[str] = ()
    ) -> Checkpoint:
        try:
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
        self._seq += 1
        self._since_whole = 0 if whole else self._since_whole + 1
        return Checkpoint(self.run.run_id, self._seq, whole, data, tuple(nodes), clock.timestamp())

    def _standing(
        self,
        status: GraphRunStatus,
        *,
        due_at: float | None = None,
        error: str | None = None,
    ) -> GraphRun:
        now = clock.timestamp()
        return replace(self.run, status=status, updated_at=now, due_at=due_at, error=error)

    async def _prune(self, checkpoint: Checkpoint) -> None:
        if self._keep and checkpoint.whole:
            await self._store.prune(checkpoint.run_id, self._keep)

    async def _write_queue(self) -> None:
        while self._queue:
            taken, self._queue = self._queue, []
            # Side by side, so that the store can put them into one transaction, in this order.
            await asyncio.gather(*map(self._store.append, taken))
            for checkpoint in taken:
                await self._prune(checkpoint)

    async def _written(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer


async def is_inner(store: CheckpointStoreProtocol, run_id: str) -> bool:
    """Whether the run is part of another one in the store, which goes on with it."""
    outer = run_id.rpartition("/")[0]
    return bool(outer) and await store.load(outer) is not None


def load(
    stored: StoredRun, plan: Plan, apply: Callable[[dict[str, Any], dict[str, Any]], None]
) -> Loaded:
    """Build state and position from the checkpoints; ``apply(state, update)`` reduces."""
    state: dict[str, Any] = {}
    position = Position()
    since_whole = 0
    for checkpoint in stored.checkpoints:
        document = codec.decode(checkpoint.data)
        since_whole = 0 if checkpoint.whole else since_whole + 1
        if "w" in document:
            state = dict(document["w"])
        if "q" in document:
            position.parts.update(document["q"])
        elif "r" in document:
            visit, response, timed_out = document["r"]
            position.answered(visit, response, timed_out=timed_out)
        else:
            parts = position.parts
            for _, visit, update in document.get("s", ()):
                apply(state, parts[visit] if update is None else update)
            position = Position.from_document(document, plan)
            waiting = {token.visit for token in position.waiting}
            position.parts = {visit: part for visit, part in parts.items() if visit in waiting}
    return Loaded(
        run=stored.run,
        state=state,
        position=position,
        seq=stored.checkpoints[-1].seq,
        since_whole=since_whole,
    )


def _public(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key[:1] != "_"}

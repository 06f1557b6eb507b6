"""Runs a graph: start, pause, go on, cancel, look back."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast, overload
from uuid import uuid4

import anyio

from lexigram import clock
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.workflow.checkpoints import (
    Checkpoint,
    CheckpointStoreProtocol,
    GraphRun,
    GraphRunStatus,
)
from lexigram.contracts.workflow.protocols import ApprovalProtocol
from lexigram.hooks import HookRegistry
from lexigram.workflow._emitter import WorkflowEmitter
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import (
    CheckpointConflictError,
    GraphCancelledError,
    GraphExecutionError,
    GraphProblem,
    GraphTimeoutError,
    GraphValidationError,
    HumanInputRequiredError,
    NodeExecutionError,
    WorkflowStateError,
    WorkflowVersionMismatchError,
)
from lexigram.workflow.graph import _diagram
from lexigram.workflow.graph._plan import Plan, compiled
from lexigram.workflow.graph._position import Contents, Loaded, Pause, Position, Token, load
from lexigram.workflow.graph._reducers import Reducer, reducer_of
from lexigram.workflow.graph._run import Listener, Run, apply
from lexigram.workflow.graph._validation import problems_of
from lexigram.workflow.graph._watch import Watch
from lexigram.workflow.graph.edge import Condition, WorkflowEdge
from lexigram.workflow.graph.state import (
    HISTORY,
    ITERATION,
    RUN_ID,
    VERSION,
    SharedState,
    WorkflowState,
    changed,
)
from lexigram.workflow.graph.stream import NodeStream
from lexigram.workflow.nodes.function_node import FunctionNode, Services
from lexigram.workflow.runs._recorder import LiveRun, RecordedRuns, Recorder
from lexigram.workflow.runs.memory import InMemoryCheckpointStore
from lexigram.workflow.types import GraphResult

_MISSING: Any = object()

# How often, at most, runs that ended long ago are looked for.
_EXPIRE_EVERY_SECONDS = 60.0


class WorkflowEngine(RecordedRuns):
    """A graph that is ready to run, as often and as often at once as you like.

    Every failure of a run is an ``Err`` with node, cause and state. A pause raises
    HumanInputRequiredError with the id of the run. With a store (or ``checkpoint_enabled``)
    every step is kept before the next one begins; without one, runs are kept in memory, and
    only while they are paused.
    """

    def __init__(
        self,
        name: str,
        nodes: Mapping[str, Any],
        edges: Sequence[WorkflowEdge],
        entry_node: str | None,
        terminal_conditions: Mapping[str, Condition | None],
        config: GraphConfig | None = None,
        version: int = 1,
        *,
        reducers: Mapping[str, str | Reducer] | None = None,
        checkpoints: CheckpointStoreProtocol | None = None,
        container: Services | None = None,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
    ) -> None:
        self._name = name
        self._version = version
        self._nodes = dict(nodes)
        self._edges = tuple(edges)
        self._entry = entry_node
        self._terminals = dict(terminal_conditions)
        self._config = config or GraphConfig()
        self._reducers = {key: reducer_of(key, item) for key, item in (reducers or {}).items()}
        self._container = container
        self._events = events
        self._hooks = hooks
        self._emitter = WorkflowEmitter(name, "graph", events, hooks)
        self._compiled: Plan | None = None
        self._unbound = _bind(self._nodes, container)
        self._own_store = checkpoints
        self._attach(checkpoints or InMemoryCheckpointStore(), every_step=checkpoints is not None)

    @property
    def name(self) -> str:
        """The name of the graph."""
        return self._name

    @property
    def version(self) -> int:
        """The version of the definition; a stored run goes on only with its own."""
        return self._version

    @property
    def config(self) -> GraphConfig:
        """How its runs go unless a call says otherwise."""
        return self._config

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(self._nodes)

    @property
    def checkpoints(self) -> CheckpointStoreProtocol:
        """Where runs are kept."""
        return self._store

    def validate(self) -> None:
        """Raise GraphValidationError with every problem of the definition."""
        problems = [
            *self._unbound,
            *problems_of(
                self._nodes,
                self._edges,
                self._entry,
                self._terminals,
                self._reducers,
                parallel=self._config.parallel_branches,
            ),
        ]
        if problems:
            count = len(problems)
            raise GraphValidationError(
                f"graph {self._name!r} has {count} problem{'' if count == 1 else 's'}:",
                problems=problems,
            )
        if self._compiled is None and self._entry is not None:
            self._compiled = compiled(self._nodes, self._edges, self._entry, self._terminals)

    # --- running ---

    async def execute(
        self,
        input: Any = "",  # noqa: A002 - the known name
        state: WorkflowState | Mapping[str, Any] | None = None,
        *,
        config: GraphConfig | None = None,
        run_id: str | None = None,
    ) -> Result[GraphResult, GraphExecutionError]:
        """Run from the entry to the end; HumanInputRequiredError when it pauses.

        ``run_id`` must be new. A WorkflowState is brought up to date when the run stops.
        """
        live = self._begin(input, state, config, run_id)
        return await self._drive(live, fresh=True)

    def stream(
        self,
        input: Any = "",  # noqa: A002 - the known name
        state: WorkflowState | Mapping[str, Any] | None = None,
        *,
        config: GraphConfig | None = None,
        run_id: str | None = None,
    ) -> NodeStream:
        """``async for node in engine.stream(...)``: the result of each node when it finishes.

        A failure or a pause is raised at the end; after it ``stream.result`` is the GraphResult.
        Leaving the loop early cancels the run.
        """

        async def drive(listener: Listener) -> Result[GraphResult, GraphExecutionError]:
            live = self._begin(input, state, config, run_id, listener)
            return await self._drive(live, fresh=True)

        return NodeStream(drive)

    @overload
    async def resume(
        self, response: Any, /, *, node: str | None = None, config: GraphConfig | None = None
    ) -> Result[GraphResult, GraphExecutionError]: ...
    @overload
    async def resume(
        self,
        run: str | WorkflowState | Mapping[str, Any],
        response: Any,
        /,
        *,
        node: str | None = None,
        config: GraphConfig | None = None,
    ) -> Result[GraphResult, GraphExecutionError]: ...
    @overload
    async def resume(
        self,
        *,
        checkpoint_state: WorkflowState | Mapping[str, Any] | None = None,
        human_response: Any = None,
        run_id: str | None = None,
        response: Any = None,
        node: str | None = None,
        config: GraphConfig | None = None,
    ) -> Result[GraphResult, GraphExecutionError]: ...
    async def resume(
        self,
        *given: Any,
        node: str | None = None,
        config: GraphConfig | None = None,
        **named: Any,
    ) -> Result[GraphResult, GraphExecutionError]:
        """Answer a paused run and go on at the pause, in this process or another.

        ``resume(run_id, response)``; ``resume(response)`` for the one run that is paused;
        ``resume(state, response)`` with the state of the pause. ``node`` names which of several
        nodes the answer is for. Raises WorkflowNotFoundError for an unknown run,
        WorkflowStateError for one that is not paused (any more), WorkflowVersionMismatchError
        for one of another version; nothing is changed then.
        """
        run, response = _run_and_response(given, named)
        if isinstance(run, WorkflowState):
            run = run.as_dict()
        if isinstance(run, Mapping):
            state = cast("Mapping[str, Any]", run)
            return await self._resume_state(state, response, node, config)
        run_id = await self._the_paused_run() if run is None else run
        return await self._answer(run_id, response, node, config, timed_out=False)

    async def recover(
        self, run_id: str, *, config: GraphConfig | None = None
    ) -> Result[GraphResult, GraphExecutionError]:
        """Go on with a stored run whose process is gone, or that failed; finished nodes stay so.

        A completed run gives its result again, a paused one pauses again. Call it only when no
        other process works on the run: of two, the first to finish a step wins, and the other
        gets an Err.
        """
        loaded = await self._load(run_id)
        status = loaded.run.status
        if status is GraphRunStatus.CANCELLED:
            raise WorkflowStateError(
                f"run {run_id!r} was cancelled", hint="fork it to go on from one of its checkpoints"
            )
        live = self._continue(loaded, config)
        if status is GraphRunStatus.COMPLETED:
            return Ok(self._result(live, 0.0))
        if status is GraphRunStatus.PAUSED:
            raise self._pause_of(live.run)
        if status is GraphRunStatus.FAILED:
            await live.recorder.resume()
        return await self._drive(live, fresh=False)

    async def time_out(self, run_id: str) -> Result[GraphResult, GraphExecutionError]:
        """Go on with a run whose pause is over without an answer; any other as ``recover`` does."""
        run = (await self._load(run_id)).run
        if run.due_at is None or run.due_at > clock.timestamp():
            return await self.recover(run_id)
        return await self._answer(run_id, None, None, None, timed_out=True)

    async def resume_at(
        self, run_id: str, response: Any, checkpoint: int | None
    ) -> Result[GraphResult, GraphExecutionError]:
        """Answer the pause that was kept as ``checkpoint``; ``recover`` when that is over.

        For callers that store the answer too and give it again after a crash: a later question must
        not get it.
        """
        loaded = await self._load(run_id)
        is_there = loaded.run.status is GraphRunStatus.PAUSED
        if is_there and checkpoint in (None, loaded.seq):
            return await self._answer(run_id, response, None, None, timed_out=False)
        return await self.recover(run_id)

    # --- looking back ---

    async def history(self, run_id: str) -> Sequence[Checkpoint]:
        """The checkpoints of a run that are kept, oldest first."""
        return await self._store.history(run_id)

    async def state_at(self, run_id: str, seq: int | None = None) -> dict[str, Any]:
        """The state at a checkpoint, or at the last."""
        return (await self._load(run_id, seq)).state

    async def fork(
        self,
        run_id: str,
        seq: int | None = None,
        *,
        update: Mapping[str, Any] | None = None,
        new_run_id: str | None = None,
    ) -> str:
        """A new run that begins where ``run_id`` was at a checkpoint; its id.

        ``update`` replaces values of its state. ``recover(id)`` runs it, ``resume`` answers it
        where it was paused. The old run stays as it is.
        """
        loaded = await self._load(run_id, seq)
        position = loaded.position
        is_paused = bool(position.paused) and not position.waiting
        now = clock.timestamp()
        run = GraphRun(
            run_id=new_run_id or uuid4().hex,
            graph=self._name,
            version=self._version,
            status=GraphRunStatus.PAUSED if is_paused else GraphRunStatus.RUNNING,
            created_at=now,
            updated_at=now,
            due_at=min((p.due_at for p in position.paused if p.due_at is not None), default=None)
            if is_paused
            else None,
            parent_run=run_id,
            parent_seq=loaded.seq,
        )
        # A part of a step is the new run's own from its first checkpoint on.
        state = {**loaded.state, **(update or {})}
        live = self._live_run(run, state, position, None, None)
        await live.recorder.start()
        for visit, part in position.parts.items():
            await live.recorder.add({"q": [[visit, part]]}, [""])
        return run.run_id

    async def progress(self, run_id: str) -> dict[str, str]:
        """Each node of a run: done, running, paused, failed or waiting (not run, perhaps never)."""
        loaded = await self._load(run_id)
        done = {name for item in await self._store.history(run_id) for name in item.nodes}
        shown = {name: "done" if name in done else "waiting" for name in self._nodes}
        status = loaded.run.status
        now = {GraphRunStatus.FAILED: "failed", GraphRunStatus.RUNNING: "running"}.get(status)
        for token in loaded.position.waiting if now else ():
            shown[self._plan.names[token.at]] = now or ""
        for pause in loaded.position.paused:
            shown[self._plan.names[pause.token.at]] = "paused"
        return shown

    def to_mermaid(self, progress: Mapping[str, str] | None = None) -> str:
        """The graph as a mermaid flowchart, coloured by ``await engine.progress(run_id)``."""
        return _diagram.mermaid(self._nodes, self._edges, self._entry, self._terminals, progress)

    def to_dot(self, progress: Mapping[str, str] | None = None) -> str:
        """The graph for Graphviz, coloured by ``await engine.progress(run_id)``."""
        return _diagram.dot(
            self._name, self._nodes, self._edges, self._entry, self._terminals, progress
        )

    @property
    def shape(self) -> str:
        """A digest of what a stored run must find again: nodes, edges, entry, ends, reducers."""
        edges = [
            [
                edge.source,
                edge.target,
                edge.label,
                edge.condition is not None,
                edge.each is not None,
            ]
            for edge in self._edges
        ]
        ends = {name: condition is not None for name, condition in self._terminals.items()}
        nodes = {name: type(node).__name__ for name, node in self._nodes.items()}
        facts = [nodes, edges, self._entry, ends, sorted(self._reducers)]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def placed(
        self,
        state: Mapping[str, Any],
        position: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
    ) -> Run:
        """A run that the caller moves and stores: at the entry, or at a stored position.

        Nothing is stored here. WorkflowStateError when the position names a node that is gone.
        """
        run = self._begin("", state, None, run_id).run
        if position is not None:
            run.move(Position.from_document(position, self._plan))
            changed(run.state, {ITERATION: run.position.iterations})
        return run

    def keep_in(self, store: CheckpointStoreProtocol, *, every_step: bool) -> WorkflowEngine:
        """This graph with its runs in a store; itself when it was given one of its own."""
        if self._own_store is not None:
            return self
        other = copy.copy(self)
        other._attach(store, every_step=every_step)  # noqa: SLF001 - another one of this class
        return other

    def equip(
        self,
        *,
        container: Services | None = None,
        approvals: ApprovalProtocol | None = None,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
    ) -> WorkflowEngine:
        """This graph with what an application has, where it has nothing of its own."""
        other = copy.copy(self)
        other._equip(container, approvals, events, hooks)  # noqa: SLF001 - another one of this class
        return other

    def __repr__(self) -> str:
        return f"<WorkflowEngine {self._name} v{self._version}: {len(self._nodes)} nodes>"

    # --- how ---

    @property
    def _plan(self) -> Plan:
        if self._compiled is None:
            self.validate()
        assert self._compiled is not None
        return self._compiled

    def _attach(self, store: CheckpointStoreProtocol, *, every_step: bool) -> None:
        """Begin anew with a store, and let graphs inside this one use it too."""
        super().__init__()
        self._store = store
        self._every_step = every_step = every_step or self._config.checkpoint_enabled
        self._compiled = None
        self._next_expiry = 0.0
        self._nodes = {
            name: node.keep_in(store, every_step=every_step) if hasattr(node, "keep_in") else node
            for name, node in self._nodes.items()
        }

    def _equip(
        self,
        container: Services | None,
        approvals: ApprovalProtocol | None,
        events: EventBusProtocol | None,
        hooks: HookRegistry | None,
    ) -> None:
        self._nodes = {
            name: node.equip(approvals=approvals) if hasattr(node, "equip") else node
            for name, node in self._nodes.items()
        }
        if self._container is None and container is not None:
            self._container = container
            self._unbound = _bind(self._nodes, container)
        self._events = events if self._events is None else self._events
        self._hooks = hooks if self._hooks is None else self._hooks
        self._emitter = WorkflowEmitter(self._name, "graph", self._events, self._hooks)
        self._attach(self._store, every_step=self._every_step)

    def _begin(
        self,
        message: Any,
        given: WorkflowState | Mapping[str, Any] | None,
        config: GraphConfig | None,
        run_id: str | None,
        listener: Listener | None = None,
    ) -> _Live:
        """A run at the entry."""
        plan = self._plan
        state: dict[str, Any] = {"input": message}
        if "output" not in self._reducers:
            state["output"] = ""
        values = given.as_dict() if isinstance(given, WorkflowState) else dict(given or {})
        values = {k: v for k, v in values.items() if k[:1] != "_"}
        if message == "" and "input" in values:
            state["input"] = values["input"]
        state.update((k, v) for k, v in values.items() if k != "input")
        position = Position(waiting=[Token(plan.entry, 1)], visits=1)
        now = clock.timestamp()
        run = GraphRun(
            run_id=run_id or uuid4().hex,
            graph=self._name,
            version=self._version,
            status=GraphRunStatus.RUNNING,
            created_at=now,
            updated_at=now,
        )
        live = self._live_run(run, state, position, config, listener)
        live.given = given if isinstance(given, WorkflowState) else None
        return live

    def _continue(
        self, loaded: Loaded, config: GraphConfig | None, listener: Listener | None = None
    ) -> _Live:
        live = self._live_run(loaded.run, loaded.state, loaded.position, config, listener)
        live.recorder.follow(loaded.stored)
        return live

    def _live_run(
        self,
        run: GraphRun,
        state: dict[str, Any],
        position: Position,
        config: GraphConfig | None,
        listener: Listener | None,
    ) -> _Live:
        used = config or self._config
        shared = SharedState(state)
        changed(
            shared, {ITERATION: position.iterations, RUN_ID: run.run_id, VERSION: self._version}
        )
        contents = Contents(self._plan, shared, position)
        recorder = Recorder(
            self._store,
            run,
            contents,
            every_step=self._every_step or used.checkpoint_enabled,
            is_behind=used.checkpoint_durability == "async",
            keep=used.checkpoint_keep,
        )
        moved = Run(
            self._plan, used, self._reducers, shared, position, contents, recorder, listener
        )
        return _Live(moved, used)

    @property
    def _stored_as(self) -> str:
        return self._name

    async def _time_out(self, run_id: str) -> None:
        await self._answer(run_id, None, None, None, timed_out=True)

    async def _load(self, run_id: str, seq: int | None = None) -> Loaded:
        stored = await self._stored(run_id, seq)
        self._refuse_other_version(stored.run)
        return load(stored, self._plan, lambda state, update: apply(state, update, self._reducers))

    async def _drive(self, live: _Live, *, fresh: bool) -> Result[GraphResult, GraphExecutionError]:
        """Run and say how it ended; cancellation from outside passes."""
        run, run_id = live.run, live.run.recorder.run.run_id
        if not live.config.enabled:
            return Err(
                GraphExecutionError(
                    f"graph {self._name!r} may not run: graphs are switched off",
                    run_id=run_id,
                    hint="set workflow.graph.enabled",
                )
            )
        started = anyio.current_time()
        self._live[run_id] = live
        try:
            await self._expire_old(live.config)
            with anyio.CancelScope() as live.scope:
                await self._walk(live, fresh=fresh)
            error = self._find_stop(live)
            if error is None and not run.position.paused:
                await run.recorder.end(GraphRunStatus.COMPLETED, run.contents.nodes)
        except Exception as failure:  # noqa: BLE001 - the boundary: every failure is an Err
            error = _as_graph_error(failure, run)
        finally:
            live.scope = None
            del self._live[run_id]
            await run.recorder.close()
        if error is not None:
            return await self._end_failed(live, error)
        if run.position.paused:
            raise await self._end_paused(live)
        result = self._result(live, (anyio.current_time() - started) * 1000)
        if not self._emitter.is_silent:
            await self._emitter.emit_moved(run_id, "running", "completed")
            await self._emitter.emit_completed(run_id)
        return Ok(result)

    async def _walk(self, live: _Live, *, fresh: bool) -> None:
        run, config = live.run, live.config
        assert live.scope is not None
        watch = Watch(live.scope, node=config.node_timeout, total=config.total_timeout)
        live.watch = watch
        try:
            if fresh and run.recorder.every_step:
                await run.recorder.start()
            if fresh and not self._emitter.is_silent:
                await self._emitter.emit_started(run.recorder.run.run_id)
            await run.walk(watch)
            if run.position.paused:
                dues = (pause.due_at for pause in run.position.paused)
                await run.recorder.pause(run.contents.nodes, dues)
        finally:
            watch.stop()

    def _find_stop(self, live: _Live) -> GraphExecutionError | None:
        """Why the scope of the run was cancelled, if it was."""
        run, watch = live.run, live.watch
        facts: dict[str, Any] = {"state": run.shown(), "run_id": run.recorder.run.run_id}
        if watch is not None and watch.expired == "":
            return GraphTimeoutError(live.config.total_timeout, **facts)
        if watch is not None and watch.expired is not None:
            text = f"Node {watch.expired!r} timed out after {live.config.node_timeout:g}s"
            hint = "make it quicker, or raise GraphConfig.node_timeout"
            cause = TimeoutError(text)
            return NodeExecutionError(text, node=watch.expired, hint=hint, cause=cause, **facts)
        if live.cancelled:
            return GraphCancelledError(f"run {facts['run_id']!r} was cancelled", **facts)
        return None

    async def _end_failed(
        self, live: _Live, error: GraphExecutionError
    ) -> Result[GraphResult, GraphExecutionError]:
        live.write_back()
        live.cancelled = isinstance(error, GraphCancelledError)
        await self._record_failure(live, error)
        return Err(error)

    async def _end_paused(self, live: _Live) -> HumanInputRequiredError:
        run_id = live.run.recorder.run.run_id
        self._paused_here[run_id] = None
        live.write_back()
        await self._emitter.emit_moved(run_id, "running", "paused")
        return self._pause_of(live.run)

    def _pause_of(self, run: Run) -> HumanInputRequiredError:
        paused, names = run.position.paused, self._plan.names
        first = paused[0]
        return HumanInputRequiredError(
            first.prompt,
            node=names[first.token.at],
            checkpoint_id=run.recorder.run.run_id,
            state=run.shown(),
            remember=first.remember,
            # A graph around this one waits no longer than this one.
            due_at=run.recorder.run.due_at,
            details={
                "waiting": [names[pause.token.at] for pause in paused],
                "checkpoint": run.recorder.seq,
            },
        )

    def _result(self, live: _Live, duration: float) -> GraphResult:
        run = live.run
        final = run.shown()
        final[HISTORY] = [{"node": r.node_name, "output": r.output} for r in run.results]
        live.write_back()
        return GraphResult(
            final_state=final,
            node_results=run.results,
            iterations=run.position.iterations,
            duration_ms=duration,
            terminated_at=run.position.terminated_at,
            run_id=run.recorder.run.run_id,
        )

    async def _answer(
        self,
        run_id: str,
        response: Any,
        node: str | None,
        config: GraphConfig | None,
        *,
        timed_out: bool,
    ) -> Result[GraphResult, GraphExecutionError]:
        loaded = await self._load(run_id)
        if loaded.run.status is not GraphRunStatus.PAUSED:
            raise WorkflowStateError(
                f"run {run_id!r} is {loaded.run.status.value}, not paused",
                hint="it was answered already; use recover(run_id) when its process is gone",
            )
        live = self._continue(loaded, config)
        pause = self._find_pause(loaded, node, timed_out=timed_out)
        visit = pause.token.visit
        check = getattr(self._plan.nodes[pause.token.at], "check_answer", None)
        if check is not None and not timed_out:
            check(response, pause.remember)  # before it is stored: a wrong answer loses nothing
        try:
            change = {"r": [visit, response, timed_out]}
            await live.recorder.add(change, status=GraphRunStatus.RUNNING)
        except CheckpointConflictError as conflict:
            raise WorkflowStateError(
                f"another caller answered run {run_id!r} at the same moment"
            ) from conflict
        loaded.position.answered(visit, response, timed_out=timed_out)
        self._paused_here.pop(run_id, None)
        await self._emitter.emit_moved(run_id, "paused", "running")
        return await self._drive(live, fresh=False)

    def _find_pause(self, loaded: Loaded, node: str | None, *, timed_out: bool) -> Pause:
        paused = loaded.position.paused
        if timed_out:
            return min(
                (pause for pause in paused if pause.due_at is not None),
                key=lambda pause: pause.due_at or 0.0,
            )
        names = {self._plan.names[pause.token.at]: pause for pause in reversed(paused)}
        if node is None:
            return paused[0]
        if node not in names:
            raise WorkflowStateError(
                f"node {node!r} of run {loaded.run.run_id!r} does not wait for an answer",
                hint=f"these do: {', '.join(map(repr, names))}",
            )
        return names[node]

    async def _the_paused_run(self) -> str:
        here = list(self._paused_here)
        if not here:
            found = await self._store.runs(graph=self._name, status=GraphRunStatus.PAUSED, limit=2)
            here = [run.run_id for run in found]
        if len(here) != 1:
            raise WorkflowStateError(
                f"resume(response) needs exactly one paused run of {self._name!r}, "
                f"there {'is none' if not here else 'are several'}",
                hint="name it: resume(run_id, response)",
            )
        return here[0]

    async def _resume_state(
        self,
        state: Mapping[str, Any],
        response: Any,
        node: str | None,
        config: GraphConfig | None,
    ) -> Result[GraphResult, GraphExecutionError]:
        """The form of the 0.1 line: the state says which run it is."""
        version = state.get(VERSION, self._version)
        if version != self._version:
            raise WorkflowVersionMismatchError(self._name, self._version, version)
        run_id = state.get(RUN_ID)
        if run_id is not None:
            return await self._answer(run_id, response, node, config, timed_out=False)
        if len(self._paused_here) == 1:
            (only,) = self._paused_here
            return await self._answer(only, response, node, config, timed_out=False)
        # A state from elsewhere has no position: it begins at the entry, its answer known.
        live = self._begin("", {**state, "human_response": response}, config, None)
        live.run.answer_first_pause(response)
        return await self._drive(live, fresh=True)

    async def _expire_old(self, config: GraphConfig) -> None:
        now = clock.timestamp()
        if config.checkpoint_ttl and now >= self._next_expiry:
            self._next_expiry = now + _EXPIRE_EVERY_SECONDS
            await self._store.expire(now - config.checkpoint_ttl)


class _Live(LiveRun):
    """A run that this engine works on."""

    def __init__(self, run: Run, config: GraphConfig) -> None:
        self.run = run
        self.recorder = run.recorder
        self.config = config
        self.watch: Watch | None = None
        # the user's own object, brought up to date when the run stops
        self.given: WorkflowState | None = None

    def write_back(self) -> None:
        """Bring the user's state up to date."""
        if self.given is not None:
            for key, value in self.run.state.items():
                self.given[key] = value
            for result in self.run.results:
                self.given[HISTORY].append({"node": result.node_name, "output": result.output})


def _bind(nodes: dict[str, Any], container: Services | None) -> list[GraphProblem]:
    """Let function nodes take their services; what cannot be had, as problems."""
    problems: list[GraphProblem] = []
    for name, node in nodes.items():
        if not isinstance(node, FunctionNode) or not node.services:
            continue
        if container is None:
            text = f"node {name!r} asks for {', '.join(node.services)}, and there is no container"
            problems.append(GraphProblem(text, "give build(container=...)"))
            continue
        try:
            nodes[name] = node.bind(container)
        except LexigramError as error:
            fix = error.hint or "bind it in a module this one can see"
            problems.append(GraphProblem(f"node {name!r}: {error}", fix))
    return problems


def _as_graph_error(failure: Exception, run: Run) -> GraphExecutionError:
    if isinstance(failure, GraphExecutionError):
        failure.state = failure.state or run.shown()
        failure.run_id = failure.run_id or run.recorder.run.run_id
        return failure
    return GraphExecutionError(
        f"the run could not be kept: {failure}",
        state=run.shown(),
        run_id=run.recorder.run.run_id,
        cause=failure,
    )


def _run_and_response(given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
    """The forms of ``resume`` as (run or None, response)."""
    run = named.pop("run_id", named.pop("checkpoint_state", _MISSING))
    response = named.pop("response", named.pop("human_response", _MISSING))
    if named:
        raise TypeError(f"resume() does not know {', '.join(sorted(named))}")
    rest = list(given)
    if response is _MISSING and rest:
        response = rest.pop()
    if run is _MISSING and rest:
        run = rest.pop()
    if response is _MISSING or rest:
        raise TypeError("resume() takes a response, or a run and a response")
    return (None if run is _MISSING else run), response

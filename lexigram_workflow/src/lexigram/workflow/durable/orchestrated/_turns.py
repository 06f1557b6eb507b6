"""The handlers of graphs and pipelines: a turn of a run, a piece of it, and the end of a wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, cast
from uuid import uuid4

from lexigram import clock
from lexigram.concurrency import is_retryable, time_limit
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import (
    DurableError,
    OrchestrationChangedError,
    OrchestrationFailedError,
    RunNotParkedError,
)
from lexigram.workflow.durable.models import RunStep, WorkflowRun
from lexigram.workflow.durable.orchestrated.flow import (
    ALARM,
    END,
    NODE,
    Flow,
    Piece,
    Walk,
    facts_of,
    read,
    write,
)
from lexigram.workflow.durable.plan import NewRun, RunPlan, StepPlan
from lexigram.workflow.durable.store.kept import KeptStore
from lexigram.workflow.durable.worker.steps import StepContext
from lexigram.workflow.errors import (
    GraphExecutionError,
    HumanInputRequiredError,
    WorkflowStateError,
)

# How ``OrchestratedRuns.answer`` wraps an answer, so that any value can be one.
WRAPPED = "$kept"


class Turns:
    """Moves runs of registered graphs and pipelines.

    What a run is at is kept with the end of each of its steps, in the same transaction: a step
    that is done again finds it as it was.
    """

    def __init__(self, engine: DurableEngine, find: Callable[[str], Awaitable[Flow]]) -> None:
        self._engine = engine
        self._find = find
        self._kept = KeptStore(engine.database)

    async def turn(
        self,
        run_step: RunStep,
        workflow_run: WorkflowRun,
        step_params: dict[str, Any],
        ctx: StepContext,
    ) -> dict[str, Any] | None:
        """Gather what ran side by side, then run the one piece that is next, or hand out many."""
        flow = await self._flow(step_params)
        kept = await self._document(workflow_run)
        walk = _place(flow, kept["at"], workflow_run.id)
        if "fan" in kept:
            await self._gather(walk, kept["fan"], ctx)
        pieces = walk.ready()
        if run_step.is_last_step:
            if pieces:
                raise OrchestrationFailedError(
                    f"{flow.name!r} is not over after all turns of its plan",
                    details={"next": [piece.name for piece in pieces]},
                    hint="it was given more nodes or turns since it began: submit it anew",
                )
            # Nothing came in since: what the step before left is the result.
            return {"kept": write({"at": walk.document()}, END)} if "fan" in kept else None
        if not pieces:
            return {"kept": write({"at": walk.document()}, END), "next_step": END}
        _begin(walk, pieces)
        if len(pieces) > 1 or flow.is_apart(pieces[0]):
            return self._hand_out(flow, walk, pieces, workflow_run.id, ctx)
        return await self._run(flow, walk, pieces[0], kept, workflow_run.id, ctx)

    async def node(
        self,
        workflow_run: WorkflowRun,
        step_params: dict[str, Any],
        ctx: StepContext,
        of: int,
        piece: int | str,
    ) -> dict[str, Any] | None:
        """One piece of the run ``of``, which waits for this one."""
        flow = await self._flow(step_params)
        own = await self._kept.last(workflow_run.id)
        whole = own or await self._kept.last(of)
        if whole is None:
            raise OrchestrationFailedError(f"run {of} has no stored state to resume from")
        kept = read(whole["kept"])
        walk = _place(flow, kept["at"], of)
        asked = Piece(key=piece, name=step_params["node"])
        _give_answer(walk, asked, kept, ctx)
        try:
            update = await self._attempt(flow, walk, asked)
        except HumanInputRequiredError as pause:
            return await self._park(walk, asked, pause, workflow_run.id, ctx)
        return {"ran": [asked.name], "kept": write({"update": update}, f"node {asked.name!r}")}

    async def alarm(self, of: int, pause: str, lease: str) -> dict[str, Any]:
        """No answer came in time: let the piece that asked decide."""
        run = await self._engine.store.run(of)
        if run is None:
            return {"answered": True}
        if run["lease"] == lease:
            raise DurableError(f"run {of} is about to wait; the alarm came too early")
        kept = await self._kept.last(of)
        waits = None if kept is None else read(kept["kept"]).get("pause")
        if run["parked"] is None or waits is None or waits["id"] != pause:
            return {"answered": True}
        try:
            await self._engine.answer(of, {WRAPPED: write({"timed_out": True}, "alarm")})
        except RunNotParkedError:
            return {"answered": True}  # the answer came at this very moment
        return {"answered": False}

    # --- parts of a turn ---

    async def _document(self, run: WorkflowRun) -> dict[str, Any]:
        kept = await self._kept.last(run.id)
        return read(run.run_params["start"] if kept is None else kept["kept"])

    async def _flow(self, params: Mapping[str, Any]) -> Flow:
        flow = await self._find(params["orchestration"])
        refuse_changed(flow.name, flow.version, flow.shape, flow.accepts, params)
        return flow

    async def _gather(self, walk: Walk, fan: Sequence[Sequence[Any]], ctx: StepContext) -> None:
        """What the runs of the last turn changed, in the order in which they were handed out."""
        changes = {
            child.run_params["piece"]: read(child.status_meta["kept"])["update"]
            for child in await ctx.children()
        }
        pieces = [Piece(key=key, name=name) for key, name in fan]
        _take(walk, [(piece, changes[piece.key]) for piece in pieces])

    def _hand_out(
        self, flow: Flow, walk: Walk, pieces: Sequence[Piece], run_id: int, ctx: StepContext
    ) -> dict[str, Any]:
        for name, group in groupby(pieces, key=lambda piece: piece.name):
            runs = [NewRun(params={"of": run_id, "piece": piece.key}) for piece in group]
            ctx.spawn(_plan_of(flow, name), runs)
        fan = [[piece.key, piece.name] for piece in pieces]
        document = {"at": walk.document(), "fan": fan}
        return {"began": [piece.name for piece in pieces], "kept": write(document, flow.name)}

    async def _run(
        self,
        flow: Flow,
        walk: Walk,
        piece: Piece,
        kept: Mapping[str, Any],
        run_id: int,
        ctx: StepContext,
    ) -> dict[str, Any] | None:
        _give_answer(walk, piece, kept, ctx)
        try:
            update = await self._attempt(flow, walk, piece)
        except HumanInputRequiredError as pause:
            return await self._park(walk, piece, pause, run_id, ctx)
        _take(walk, [(piece, update)])
        text = write({"at": walk.document()}, f"node {piece.name!r}")
        end = {} if walk.ready() else {"next_step": END}
        return {"ran": [piece.name], "kept": text, **end}

    async def _attempt(self, flow: Flow, walk: Walk, piece: Piece) -> dict[str, Any]:
        limit = flow.terms(piece.name).timeout
        try:
            with time_limit(limit, f"{flow.kind} {flow.name!r}: {piece.name!r}"):
                return await walk.run(piece)
        except HumanInputRequiredError:
            raise
        except Exception as error:
            if not is_retryable(error):
                raise OrchestrationFailedError(str(error)) from error
            raise

    # --- people ---

    async def _park(
        self,
        walk: Walk,
        piece: Piece,
        pause: HumanInputRequiredError,
        run_id: int,
        ctx: StepContext,
    ) -> dict[str, Any]:
        now = clock.timestamp()
        due = pause.due(now)
        waits = {
            "id": uuid4().hex,
            "key": piece.key,
            "name": piece.name,
            "prompt": pause.prompt,
            "remember": pause.remember,
            "due_at": due,
        }
        if due is not None:
            # Before the wait begins: a crash in between leaves an alarm that finds another wait.
            params = {"of": run_id, "pause": waits["id"], "lease": ctx.run_step.lease_token}
            run = NewRun(params=params, delay=max(due - now, 0.0), priority=ctx.run_step.priority)
            await self._engine.submit(_alarms(ctx.run_step), [run])
        ctx.park(pause.prompt)
        document = {"at": walk.document(), "pause": waits}
        return {"asks": piece.name, "kept": write(document, f"node {piece.name!r}")}


def _give_answer(walk: Walk, piece: Piece, kept: Mapping[str, Any], ctx: StepContext) -> None:
    """Give the piece the answer, if it asked and there is one."""
    pause = kept.get("pause")
    if pause is None or pause["key"] != piece.key or not ctx.answered:
        return
    answer: Any = ctx.answer
    given: dict[str, Any] = {"response": answer}
    if isinstance(answer, dict) and WRAPPED in answer:
        given = read(cast("dict[str, Any]", answer)[WRAPPED])
    timed_out = bool(given.get("timed_out"))
    walk.answer(piece, given.get("response"), pause["remember"], timed_out=timed_out)


def refuse_changed(
    name: str, version: int, shape: str, accepts: frozenset[int], begun: Mapping[str, Any]
) -> None:
    """OrchestrationChangedError unless a run that began like this can continue here."""
    if begun["shape"] == shape and begun["version"] == version:
        return
    if begun["version"] != version and begun["version"] in accepts:
        return
    same = begun["version"] == version
    what = f"is still version {version}, but of another shape" if same else f"is version {version}"
    raise OrchestrationChangedError(
        f"the run began with version {begun['version']} of {name!r}, which {what} here",
        details={"name": name, "version": version, "begun": dict(begun)},
        hint="retry it with workers that have the old one, or register the new one with a higher"
        f" version and accepts=[{begun['version']}] if old runs can go on with it",
    )


def _place(flow: Flow, document: Mapping[str, Any], run_id: int) -> Walk:
    try:
        return flow.at(document, f"durable-{run_id}")
    except WorkflowStateError as error:
        raise OrchestrationChangedError(error.message, hint=error.hint) from error


def _begin(walk: Walk, pieces: Sequence[Piece]) -> None:
    try:
        walk.begin(pieces)
    except GraphExecutionError as error:
        raise OrchestrationFailedError(error.message, hint=error.hint) from error


def _take(walk: Walk, done: Sequence[tuple[Piece, dict[str, Any]]]) -> None:
    """A conflict or a broken reducer would be the same the next time."""
    try:
        walk.take(done)
    except GraphExecutionError as error:
        raise OrchestrationFailedError(error.message, hint=error.hint) from error


def _plan_of(flow: Flow, name: str) -> RunPlan:
    facts = {**facts_of(flow.kind, flow.name, flow.version, flow.shape), "node": name}
    return RunPlan(
        workflow_id=flow.name, steps=[flow.terms(name).step(name, NODE, flow.kind, facts)]
    )


def _alarms(step: RunStep) -> RunPlan:
    """Small and quick; tried again, because the wait may not be written yet."""
    alarm = StepPlan(name="alarm", step_type=step.step_type, handler=ALARM, retries=5, backoff=1.0)
    return RunPlan(workflow_id="orchestrated.alarm", steps=[alarm])

"""Submit pipelines, graphs and sagas as durable runs, follow them, answer their questions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias, cast, get_origin, get_type_hints

import anyio
import orjson
from attrs import field, frozen

from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import (
    NotOrchestratedError,
    OrchestrationNotFoundError,
    PlanInvalidError,
    RunNotParkedError,
)
from lexigram.workflow.durable.models import WorkflowRun
from lexigram.workflow.durable.orchestrated._graph import GraphFlow
from lexigram.workflow.durable.orchestrated._pipeline import PipelineFlow
from lexigram.workflow.durable.orchestrated._saga import MakeSaga, SagaFlow, SagaTurns
from lexigram.workflow.durable.orchestrated._turns import WRAPPED, Turns
from lexigram.workflow.durable.orchestrated.flow import (
    ALARM,
    NODE,
    SAGA,
    TURN,
    Flow,
    StepTerms,
    read,
    write,
)
from lexigram.workflow.durable.plan import NewRun
from lexigram.workflow.durable.store.kept import KeptStore
from lexigram.workflow.durable.store.records import Row, State
from lexigram.workflow.graph.builder import WorkflowBuilder
from lexigram.workflow.graph.engine import WorkflowEngine
from lexigram.workflow.pipeline.pipeline import Pipeline
from lexigram.workflow.runs.store_sql import SqlCheckpointStore
from lexigram.workflow.saga.base import AbstractSaga

_WATCH_FIRST, _WATCH_SLOWEST = 0.02, 1.0  # seconds between looks at a run
_FINAL = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)

# A graph, its builder, a pipeline, a saga class, a function that makes one of them, or the dotted
# path of any of these.
Orchestration: TypeAlias = (
    WorkflowEngine | WorkflowBuilder | Pipeline | type[AbstractSaga[Any]] | Callable[..., Any] | str
)


Handle: TypeAlias = Callable[..., Awaitable[Any]]


@frozen(kw_only=True)
class Question:
    """A node or step that waits for an answer."""

    # the run that waits: the one that was submitted, or one that it made
    run_id: int
    step: str
    prompt: str


@frozen(kw_only=True)
class OrchestratedRun:
    """The state of a run."""

    run_id: int
    group_id: int
    name: str
    status: RunStatus
    # nodes or steps that ended, in order; of those side by side, in the order of the graph
    done: Sequence[str] = ()
    # those that run, or wait to be claimed, beside each other
    at_work: Sequence[str] = ()
    questions: Sequence[Question] = ()
    error: str | None = None
    state: Mapping[str, Any] = field(factory=dict[str, Any])


class OrchestratedRuns:
    """Pipelines, graphs and sagas that the fleet of a database runs, by name.

    Every process that submits or works registers the same ones; give ``handlers`` to its workers.
    ``find`` looks up names that are not registered, and ``known`` lists them. Runs inside
    of runs are kept in ``checkpoints``, by default in the database of the engine.
    """

    def __init__(
        self,
        engine: DurableEngine,
        *,
        find: Callable[[str], Orchestration | None] | None = None,
        known: Callable[[], Iterable[str]] = tuple,
        checkpoints: CheckpointStoreProtocol | None = None,
    ) -> None:
        self._engine = engine
        self._lookup = find
        self._others = known
        self._checkpoints = checkpoints or SqlCheckpointStore(engine.database)
        self._kept = KeptStore(engine.database)
        self._flows: dict[str, Flow | SagaFlow] = {}
        turns = Turns(engine, self._flow)
        sagas = SagaTurns(self._kept, self._saga)
        self.handlers: Mapping[str, Callable[..., Any]] = {
            TURN: _serving(turns.turn, self._is_known),
            NODE: _serving(turns.node, self._is_known),
            ALARM: turns.alarm,
            SAGA: _serving(sagas.step, self._is_known),
        }

    # --- what there is ---

    def register(
        self,
        name: str,
        what: Orchestration,
        *,
        terms: StepTerms | None = None,
        steps: Mapping[str, StepTerms] | None = None,
        accepts: Iterable[int] = (),
    ) -> None:
        """Make a pipeline, graph or saga known; a second call with the name replaces it.

        ``terms`` are for all nodes or steps, ``steps`` for some of them: a node with its own is
        always a run of its own. A function is called once, now, unless it is annotated to return a
        saga: then it is called with the input of a run for each of its steps, as a class of sagas
        is. ``accepts`` are older versions of a graph or pipeline whose runs go on with this one.
        Raises what is wrong with it.
        """
        self._flows[name] = self._make(name, what, terms, dict(steps or {}), accepts)

    @property
    def names(self) -> Sequence[str]:
        """Those that can be submitted here."""
        return sorted({*self._flows, *self._others()})

    def kind(self, name: str) -> str:
        """graph, pipeline or saga; raises OrchestrationNotFoundError."""
        return self._find(name).kind

    # --- in ---

    async def submit(
        self,
        name: str,
        input: Any = None,  # noqa: A002 - as the workflows say
        *,
        priority: int = 0,
        tenant: str | None = None,
        delay: float = 0.0,
        idempotency_key: str | None = None,
    ) -> int:
        """Store a run; its number. Any worker of the fleet begins it.

        A mapping is the state of a graph, the facts of a pipeline, the arguments of a saga. A
        second call with the key stores nothing and gives the first number again. Raises
        OrchestrationNotFoundError, and OrchestrationFailedError for input that cannot be kept.
        """
        flow = self._find(name)
        if isinstance(flow, SagaFlow):
            plan, start = await flow.begin(input)
        else:
            plan = flow.plan()
            start = write({"at": flow.start(input)}, f"the input of {name!r}")
        run = NewRun(
            priority=priority,
            tenant=tenant,
            delay=delay,
            idempotency_key=idempotency_key,
            params={"start": start},
        )
        submitted = await self._engine.submit(plan, [run], name=name)
        return submitted.runs[0]

    async def answer(self, run_id: int, response: Any, *, step: str | None = None) -> None:
        """Answer a question of a run; ``step`` selects one of several.

        Raises RunNotParkedError when nothing waits for it, also for a second answer, and the
        error of a node that refuses the answer; then it still waits.
        """
        run = await self._engine.run(run_id)
        questions = await self._questions(run, await self._kept.list_handed_out(run_id))
        fitting = [one for one in questions if step is None or one.step == step]
        if not fitting:
            names = ", ".join(repr(one.step) for one in questions) or "none"
            raise RunNotParkedError(
                f"run {run_id} does not wait for an answer" + (f" at {step!r}" if step else ""),
                details={"run_id": run_id, "step": step},
                hint=f"steps that wait: {names}",
            )
        asked = fitting[0]
        pause = await self._pause(asked.run_id)
        flow = self._get(run.workflow_definition_id)  # who only answers need not have it
        if pause and flow is not None and not isinstance(flow, SagaFlow):
            flow.check(asked.step, response, pause["remember"])
        text = write({"response": response}, f"the answer to {asked.step!r}")
        await self._engine.answer(asked.run_id, {WRAPPED: text})

    # --- to follow ---

    async def status(self, run_id: int) -> OrchestratedRun:
        """The state of the run; raises RunNotFoundError and NotOrchestratedError."""
        run = await self._engine.run(run_id)
        _check_orchestrated(run)
        done: list[str] = []
        at_work: list[str] = []
        for row in await self._engine.attempts(run_id):
            if row["status"] == "COMPLETED" and row["meta"]:
                meta = orjson.loads(row["meta"])
                done += [*at_work, *meta.get("ran", ())]
                at_work = meta.get("began", [])
        beside = await self._kept.list_handed_out(run_id) if at_work else ()
        if at_work:
            done += [row["name"] for row in beside if row["status"] == State.COMPLETED]
            at_work = [row["name"] for row in beside if row["status"] != State.COMPLETED]
        return OrchestratedRun(
            run_id=run_id,
            group_id=run.run_group_id,
            name=run.workflow_definition_id,
            status=run.status,
            done=done,
            at_work=at_work,
            questions=await self._questions(run, beside),
            error=run.status_message if run.status is RunStatus.FAILED else None,
            state=await self.state(run_id),
        )

    async def state(self, run_id: int) -> Mapping[str, Any]:
        """The state of a graph, results and facts of a pipeline, the snapshot of a saga.

        Raises RunNotFoundError and NotOrchestratedError.
        """
        run = await self._engine.run(run_id)
        _check_orchestrated(run)
        kept = await self._kept.last(run_id)
        document = read(run.run_params["start"] if kept is None else kept["kept"])
        if "snapshot" in document:
            snapshot: Mapping[str, Any] = document["snapshot"]
            return snapshot
        at: Mapping[str, Any] = document["at"]
        show = GraphFlow.show if "state" in at else PipelineFlow.show
        return show(at)

    async def ended(self, run_id: int, *, or_asks: bool = False) -> OrchestratedRun:
        """Wait until the run is final; with ``or_asks`` also until it asks something."""
        pause = _WATCH_FIRST
        while (run := await self._engine.run(run_id)).status not in _FINAL:
            if or_asks and await self._questions(run, await self._kept.list_handed_out(run_id)):
                break
            await anyio.sleep(pause)
            pause = min(pause * 1.5, _WATCH_SLOWEST)
        return await self.status(run_id)

    # --- how ---

    def _get(self, name: str) -> Flow | SagaFlow | None:
        if name not in self._flows and self._lookup is not None:
            found = self._lookup(name)
            if found is not None:
                self.register(name, found)
        return self._flows.get(name)

    def _find(self, name: str) -> Flow | SagaFlow:
        flow = self._get(name)
        if flow is None:
            raise OrchestrationNotFoundError(name, self.names)
        return flow

    def _is_known(self, name: str) -> bool:
        """Asked by workers before they claim, also while their application still starts."""
        return name in self._flows or name in self._others()

    async def _flow(self, name: str) -> Flow:
        flow = self._find(name)
        if isinstance(flow, SagaFlow):
            raise OrchestrationNotFoundError(name, ())
        return flow

    async def _saga(self, name: str) -> SagaFlow:
        flow = self._find(name)
        if not isinstance(flow, SagaFlow):
            raise OrchestrationNotFoundError(name, ())
        return flow

    async def _pause(self, run_id: int) -> dict[str, Any]:
        """What the run remembers of its last pause; empty without one."""
        kept = await self._kept.last(run_id)
        pause = None if kept is None else read(kept["kept"]).get("pause")
        return cast("dict[str, Any]", pause or {})

    def _make(
        self,
        name: str,
        what: Any,
        terms: StepTerms | None,
        steps: dict[str, StepTerms],
        accepts: Iterable[int],
    ) -> Flow | SagaFlow:
        if isinstance(what, str):
            what = _import(what)
        if inspect.isclass(what) and issubclass(what, AbstractSaga):
            return SagaFlow(name, _calling(cast("Callable[..., Any]", what)), terms, steps)
        if inspect.isroutine(what):
            if _makes_sagas(what):
                return SagaFlow(name, _calling(cast("Callable[..., Any]", what)), terms, steps)
            what = what()
        if isinstance(what, WorkflowBuilder):
            what = what.build()
        if isinstance(what, WorkflowEngine):
            kept = what.keep_in(self._checkpoints, every_step=True)
            return GraphFlow(name, kept, terms or StepTerms(), steps, accepts)
        if isinstance(what, Pipeline):
            pipeline = what.keep_in(self._checkpoints, every_step=True)
            return PipelineFlow(name, pipeline, terms or StepTerms(), steps, accepts)
        raise PlanInvalidError(
            f"{name!r} is {type(what).__name__}, which is no pipeline, graph or saga",
            hint="give a Pipeline, a WorkflowEngine, a class of sagas, or a function of these",
        )

    async def _questions(self, run: WorkflowRun, beside: Sequence[Row]) -> list[Question]:
        """Of the run itself, and of those that its last turn handed out."""
        found = [
            Question(run_id=row["id"], step=row["name"], prompt=row["parked"])
            for row in beside
            if row["parked"] is not None
        ]
        if run.parked is not None:
            step = str((await self._pause(run.id)).get("name", ""))
            found.insert(0, Question(run_id=run.id, step=step, prompt=run.parked))
        return found


def _serving(handler: Handle, serves: Callable[[str], bool]) -> Handle:
    """The handler, with the check which pipelines, graphs and sagas it has."""

    @functools.wraps(handler)
    async def serving(*args: Any, **kwargs: Any) -> Any:
        return await handler(*args, **kwargs)

    serving.serves = serves  # type: ignore[attr-defined]
    return serving


def _check_orchestrated(run: WorkflowRun) -> None:
    """Refuse a run of documents, and a part of another run."""
    if "start" in run.run_params:
        return
    of = run.parent_id
    raise NotOrchestratedError(
        f"run {run.id} is no pipeline, graph or saga" + (f" but a part of run {of}" if of else ""),
        details={"run_id": run.id, "parent_id": of},
        hint=f"look at run {of}" if of else "look at its steps",
    )


def _import(path: str) -> Any:
    module, _, attribute = path.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise PlanInvalidError(
            f"{path!r} is not there: {error}",
            hint="give the dotted path of a pipeline, graph, saga, or a function that makes one",
        ) from error


def _makes_sagas(function: Callable[..., Any]) -> bool:
    try:
        returned = get_type_hints(function).get("return")
    except NameError:  # an annotation that only type checkers can follow
        return False
    returned = get_origin(returned) or returned
    return inspect.isclass(returned) and issubclass(returned, AbstractSaga)


def _calling(function: Callable[..., Any]) -> MakeSaga:
    async def make(arguments: Mapping[str, Any]) -> AbstractSaga[Any]:
        made = function(**arguments)
        return cast("AbstractSaga[Any]", await made if inspect.isawaitable(made) else made)

    return make

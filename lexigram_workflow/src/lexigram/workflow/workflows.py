"""The workflows of an application: list, run, go on, stop, look back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeAlias, cast
from uuid import uuid4

import anyio.to_thread
from attrs import field, frozen

from lexigram.concurrency import as_failure
from lexigram.contracts.core.result import Err, Result
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.workflow.checkpoints import (
    CheckpointStoreProtocol,
    GraphRun,
    GraphRunStatus,
)
from lexigram.contracts.workflow.protocols import ApprovalProtocol, SagaStoreProtocol
from lexigram.diagram import Diagram, Edge, Node
from lexigram.hooks import HookRegistry
from lexigram.workflow._declared import Declared, MakingServices, Workflow, find_in, made
from lexigram.workflow.core.definition import WorkflowDefinition
from lexigram.workflow.errors import (
    GraphProblem,
    GraphValidationError,
    HumanInputRequiredError,
    WorkflowNotFoundError,
    WorkflowStateError,
)
from lexigram.workflow.execution.runner import WorkflowRunner
from lexigram.workflow.graph.engine import WorkflowEngine
from lexigram.workflow.pipeline._plan import every
from lexigram.workflow.pipeline.pipeline import Pipeline
from lexigram.workflow.runs._recorder import PIPELINE_PREFIX
from lexigram.workflow.saga.base import AbstractSaga

_log = logging.getLogger(__name__)
_MISSING: Any = object()

Outcome: TypeAlias = Result[Any, Exception]


@frozen(kw_only=True)
class WorkflowRunInfo:
    """How a run stands."""

    run_id: str
    workflow: str
    kind: str
    status: str
    version: int | None = None
    # seconds since 1970-01-01 UTC
    created_at: float | None = None
    updated_at: float | None = None
    error: str | None = None
    # each step or node: done, running, paused, failed, waiting; of a saga also undone, not undone
    steps: Mapping[str, str] = field(factory=dict[str, str])


@frozen
class _Known:
    workflow: Workflow
    services: MakingServices
    runner: WorkflowRunner | None


class Workflows:
    """Every workflow that modules named. Implements ``ExecutionProtocol`` by their names.

    Runs of pipelines and graphs are kept in the checkpoint store of the application, sagas in
    its saga store, unless a workflow has a store of its own.
    """

    def __init__(
        self,
        store: CheckpointStoreProtocol,
        saga_store: SagaStoreProtocol,
        *,
        pipeline_timeout: float | None = None,
        approvals: ApprovalProtocol | None = None,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
    ) -> None:
        self._store = store
        self._sagas = saga_store
        self._pipeline_timeout = pipeline_timeout
        self._approvals = approvals
        self._events = events
        self._hooks = hooks
        self._known: dict[str, _Known] = {}

    async def add(self, items: Iterable[Declared], services: MakingServices) -> list[Workflow]:
        """Take workflows of a module: their services are what that module sees."""
        added: list[Workflow] = []
        # Modules are imported, which reads files.
        for item in await anyio.to_thread.run_sync(find_in, items):
            workflow = await made(item, services)
            name = workflow.definition.name
            if name in self._known:
                raise GraphValidationError(
                    "invalid workflow definition:",
                    problems=[
                        GraphProblem(
                            f"two workflows are called {name!r}", "give one of them another name"
                        )
                    ],
                )
            self._known[name] = _Known(workflow, services, self._runner(workflow, services))
            added.append(workflow)
        return added

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in the order in which they came."""
        return tuple(self._known)

    def definitions(self) -> list[WorkflowDefinition]:
        """All of them, as they are listed."""
        return [known.workflow.definition for known in self._known.values()]

    def get(self, name: str) -> Pipeline | WorkflowEngine | type[AbstractSaga[Any]]:
        """The workflow as it runs here; WorkflowNotFoundError when unknown."""
        known = self._named(name)
        return known.workflow.runnable if known.runner is None else known.runner.workflow

    async def saga(self, name: str, input: Any = None) -> AbstractSaga[Any]:  # noqa: A002 - the known name
        """A saga of this name, made with the input; WorkflowStateError when it is none."""
        known = self._named(name)
        if known.runner is not None:
            raise WorkflowStateError(f"{name!r} is no saga")
        return await self._saga(known, input)

    async def saga_id(self, name: str, input: Any = None) -> str | None:  # noqa: A002 - the known name
        """What a saga with this input is called in its store; None for other workflows."""
        known = self._named(name)
        return None if known.runner is not None else (await self._saga(known, input)).get_id()

    # --- running ---

    async def run(self, name: str, input: Any = None, *, run_id: str | None = None) -> Outcome:  # noqa: A002 - the known name
        """Run a workflow to its end, or to a pause (HumanInputRequiredError).

        A mapping is facts for a pipeline, the state of a graph, and the arguments of a saga;
        anything else is its "input".
        """
        known = self._named(name)
        if known.runner is None:
            saga = await self._saga(known, input)
            return await saga.execute()
        if isinstance(known.runner.workflow, WorkflowEngine) and isinstance(input, Mapping):
            return await known.runner.run("", state=_as_mapping(input), run_id=run_id)
        return await known.runner.run("" if input is None else input, run_id=run_id)

    async def resume(
        self,
        run_id: str,
        response: Any = _MISSING,
        *,
        name: str | None = None,
        input: Any = None,  # noqa: A002 - the known name
    ) -> Outcome:
        """Answer a paused run, or without an answer go on with one that failed or was cut off.

        A saga is named, with its input: it is made anew and resumes at its stored position.
        """
        if name is not None and self._named(name).runner is None:
            saga = await self._saga(self._named(name), input)
            return await saga.resume()
        known = self._named(name) if name is not None else await self._owner(run_id)
        assert known.runner is not None
        if response is _MISSING:
            return await known.runner.resume(run_id=run_id)
        return await known.runner.resume(response, run_id=run_id)

    async def cancel(self, execution_id: str) -> bool:
        """Stop a run of this process, or any that is paused; False when there is none."""
        for known in self._known.values():
            if known.runner is not None and await known.runner.cancel(execution_id):
                return True
        return False

    async def execute(self, workflow_id: str, context: Any = None) -> Outcome:
        """The same as ``run``."""
        return await self.run(workflow_id, context)

    async def time_out_pauses(self) -> list[str]:
        """Resume runs whose pause is over without an answer; their ids.

        Raises what the first workflow raises whose runs cannot be resumed, after all others.
        """
        done: list[str] = []
        failed: list[Exception] = []
        for known in self._known.values():
            if known.runner is not None:
                try:
                    done += await known.runner.workflow.time_out_pauses()
                except Exception as error:  # noqa: BLE001 - raised below
                    failed.append(error)
        if failed:
            raise failed[0]
        return done

    # --- looking ---

    async def status(self, run_id: str) -> WorkflowRunInfo:
        """How a run stands, with its steps; WorkflowNotFoundError when unknown."""
        stored = await self._store.load(run_id)
        if stored is None:
            return await self._saga_status(run_id)
        run = stored.run
        known = self._known.get(_name_of(run))
        steps: dict[str, str] = {}
        if known is not None and known.runner is not None:
            steps = await self._steps(run, known.runner.workflow)
        return _info(run, steps)

    async def history(
        self, name: str | None = None, *, status: str | None = None, limit: int = 20
    ) -> list[WorkflowRunInfo]:
        """Runs of pipelines and graphs, the latest change first."""
        wanted = None if status is None else GraphRunStatus(status)
        stored_as = None
        if name is not None:
            workflow = self._named(name).workflow
            if workflow.definition.kind == "saga":
                raise WorkflowStateError(
                    f"{name!r} is a saga: its store has no history", hint="ask for its status"
                )
            stored_as = PIPELINE_PREFIX + name if workflow.definition.kind == "pipeline" else name
        runs = await self._store.runs(graph=stored_as, status=wanted, limit=limit)
        return [_info(run, {}) for run in runs]

    async def diagram(self, name: str, *, dot: bool = False, run_id: str | None = None) -> str:
        """A workflow as mermaid or DOT, coloured by how a run of it stands."""
        workflow = self.get(name)
        if isinstance(workflow, type):
            return _draw_saga(self._named(name).workflow.definition, dot=dot)
        if isinstance(workflow, Pipeline):
            context = None if run_id is None else await workflow.context_of(run_id)
            return workflow.to_dot(context) if dot else workflow.to_mermaid(context)
        progress = None if run_id is None else await workflow.progress(run_id)
        return workflow.to_dot(progress) if dot else workflow.to_mermaid(progress)

    # --- events ---

    async def on_event(self, name: str, event: DomainEvent) -> None:
        """Run a workflow for an event; a failure is logged, and emitted as WorkflowFailedEvent."""
        try:
            outcome = await self.run(name, {"event": facts_of(event)}, run_id=uuid4().hex)
        except HumanInputRequiredError:
            return  # it is stored, and waits
        except BaseException as error:
            # nobody waits for it: it is logged
            if as_failure(error) is None:
                raise
            _log.exception("workflow %r could not run for %s", name, type(event).__name__)
            return
        if isinstance(outcome, Err):
            _log.error("workflow %r failed for %s: %s", name, type(event).__name__, outcome.error)

    # --- how ---

    def _runner(self, workflow: Workflow, services: MakingServices) -> WorkflowRunner | None:
        runnable, definition = workflow.runnable, workflow.definition
        if isinstance(runnable, type):
            return None
        if isinstance(runnable, Pipeline):
            limit = definition.timeout or self._pipeline_timeout
            ready: Pipeline | WorkflowEngine = runnable.equip(
                container=services,
                approvals=self._approvals,
                events=self._events,
                hooks=self._hooks,
                timeout=limit,
            )
        else:
            ready = runnable.equip(
                container=services,
                approvals=self._approvals,
                events=self._events,
                hooks=self._hooks,
            )
        ready.validate()
        return WorkflowRunner(
            ready,
            max_retries=definition.retries,
            checkpoint=self._store,
            timeout=definition.timeout,
        )

    async def _saga(self, known: _Known, given: Any) -> AbstractSaga[Any]:
        if given is not None and not isinstance(given, Mapping):
            raise WorkflowStateError(
                f"{known.workflow.definition.name!r} is a saga: its input is its arguments",
                hint='give a mapping, such as {"order_id": "o-1"}',
            )
        arguments = {} if given is None else _as_mapping(given)
        saga: AbstractSaga[Any] = await known.services.call(known.workflow.runnable, **arguments)
        name = known.workflow.definition.name
        saga.equip(name=name, store=self._sagas, events=self._events, hooks=self._hooks)
        return saga

    async def _saga_status(self, run_id: str) -> WorkflowRunInfo:
        stored = await self._sagas.load(run_id)
        if stored is None:
            raise WorkflowNotFoundError(run_id, hint="see workflow history")
        state, data = stored
        steps: dict[str, str] = dict.fromkeys(data.get("done", ()), "done")
        if failed := data.get("failed_step"):
            steps[failed] = "failed"
        # Also the step that failed, when it was cut off before: it may have happened.
        steps |= dict.fromkeys(data.get("undone", ()), "undone")
        steps |= dict.fromkeys(data.get("not_undone", ()), "not undone")
        return WorkflowRunInfo(
            run_id=run_id,
            workflow="",
            kind="saga",
            status=state.value,
            version=data.get("version"),
            error=data.get("error"),
            steps=steps,
        )

    async def _owner(self, run_id: str) -> _Known:
        stored = await self._store.load(run_id)
        if stored is None:
            raise WorkflowNotFoundError(
                run_id, hint="see workflow history; a saga is resumed by its name and input"
            )
        return self._named(_name_of(stored.run))

    async def _steps(self, run: GraphRun, workflow: Pipeline | WorkflowEngine) -> dict[str, str]:
        if isinstance(workflow, WorkflowEngine):
            return await workflow.progress(run.run_id)
        progress = (await workflow.context_of(run.run_id)).progress
        asks = {
            step.name
            for step in workflow.steps
            for each in every([step])
            if each.name in progress.waiting
        }
        shown = {
            name: "done" if name in progress.finished else "paused" if name in asks else "waiting"
            for name in workflow.execution_order
        }
        if run.status is GraphRunStatus.FAILED and not workflow.is_concurrent:
            # One after the other: the first that is not over is the one that failed.
            failed = next((name for name, how in shown.items() if how == "waiting"), None)
            if failed is not None:
                shown[failed] = "failed"
        return shown

    def _named(self, name: str) -> _Known:
        known = self._known.get(name)
        if known is not None:
            return known
        near = get_close_matches(name, self._known, n=1)
        there = ", ".join(self._known) or "none; name them in WorkflowModule.configure(workflows=…)"
        raise WorkflowNotFoundError(
            name, hint=f"did you mean {near[0]!r}?" if near else f"there are: {there}"
        )


def facts_of(event: DomainEvent) -> dict[str, Any]:
    """An event as plain data, so that every store can keep it."""
    return {item.name: getattr(event, item.name) for item in fields(event)}


def _name_of(run: GraphRun) -> str:
    return run.graph.removeprefix(PIPELINE_PREFIX)


def _info(run: GraphRun, steps: Mapping[str, str]) -> WorkflowRunInfo:
    return WorkflowRunInfo(
        run_id=run.run_id,
        workflow=_name_of(run),
        kind="pipeline" if run.graph.startswith(PIPELINE_PREFIX) else "graph",
        status=run.status.value,
        version=run.version,
        created_at=run.created_at,
        updated_at=run.updated_at,
        error=run.error,
        steps=steps,
    )


def _as_mapping(given: Any) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", given))


def _draw_saga(definition: WorkflowDefinition, *, dot: bool) -> str:
    names: Sequence[str] = definition.steps
    diagram = Diagram(
        name=definition.name,
        nodes=[Node(id=f"n{at}", label=name) for at, name in enumerate(names)],
        edges=[Edge(source=f"n{at}", target=f"n{at + 1}") for at in range(len(names) - 1)],
    )
    return diagram.dot() if dot else diagram.mermaid()

"""Call a step's handler with its arguments: by name, and from the container by type."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio.to_thread
import orjson
from attrs import frozen

from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.contracts.workflow.durable import ArtifactProtocol, ArtifactType
from lexigram.contracts.workflow.limits import MAX_TEXT_LENGTH, check_text
from lexigram.di.signature import is_service, parameters
from lexigram.sql.text import storable_text
from lexigram.workflow.durable._checks import GIVEN
from lexigram.workflow.durable._values import json_text
from lexigram.workflow.durable.errors import PlanInvalidError
from lexigram.workflow.durable.models import RunStep, WorkflowRun
from lexigram.workflow.durable.plan import NewRun, RunPlan
from lexigram.workflow.durable.store.records import Child, Spawn

_NOTHING = inspect.Parameter.empty
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Services(Protocol):
    """What is needed of a container: its resolver."""

    def sees(self, service: Any, /) -> bool: ...

    def entry(self, func: Callable[..., Any], /, *, given: Sequence[str] = ()) -> Any: ...


class StepArtifacts(Protocol):
    """The artifacts that one step reads and writes, bound to its run."""

    def artifact(self, kind: ArtifactType, name: str | None = None, /) -> ArtifactProtocol:
        """One artifact; see ``StepContextProtocol.artifact``."""
        ...

    async def complete(self) -> bool:
        """True when all that the step makes exists and the step is not needed."""
        ...


class ArtifactBinder(Protocol):
    """Gives each step its artifacts; None where a step has none."""

    def of(
        self, run_step: RunStep, workflow_run: WorkflowRun, plan: RunPlan, /
    ) -> StepArtifacts | None: ...


@frozen(kw_only=True)
class Progress:
    """The progress that a step reported."""

    current: int
    total: int
    message: str = ""


class StepContext:
    """The running step, for its handler: the parameter ``ctx``."""

    def __init__(
        self,
        run_step: RunStep,
        *,
        heartbeat: Callable[[], Awaitable[bool]],
        progress: ProgressTrackerProtocol | None = None,
        plan: RunPlan | None = None,
        children: Callable[[int | None], Awaitable[Sequence[Child]]] | None = None,
        answer: str | None = None,
        artifacts: StepArtifacts | None = None,
    ) -> None:
        self.run_step = run_step
        self._heartbeat = heartbeat
        self._progress = progress
        self._plan = plan
        self._children = children
        self._answer = answer
        self._artifacts = artifacts
        # set by the worker when a cancel of the run was requested
        self.cancelled = False
        # requests of the handler, read by the worker at its end
        self.spawns: list[Spawn] = []
        self.parked: str | None = None
        self.failed: str | None = None
        # the last one; the worker shows those of all running steps
        self.reported: Progress | None = None

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.run_step.retry + 1

    @property
    def idempotency_key(self) -> str:
        """The same in each attempt at this step, also after a crash; of no other step here."""
        return f"durable-step-{self.run_step.id}"

    async def heartbeat(self) -> bool:
        """Renew the lease now; False when it is lost and the work counts nothing.

        The worker does this by itself. It is for handlers that must know, before something that
        cannot be undone, that the step is still theirs.
        """
        return await self._heartbeat()

    async def progress(self, current: int, total: int, message: str = "") -> None:
        """Report the progress of the step: ``Worker.progress`` has it while the step runs.

        A worker with a progress tracker updates that too, under the id ``step-<id of the step>``.
        """
        self.reported = Progress(current=current, total=total, message=message)
        if self._progress is not None:
            await self._progress.update(f"step-{self.run_step.id}", current, total, message)

    def artifact(self, kind: ArtifactType, name: str | None = None) -> ArtifactProtocol:
        """The artifact of this document; see ``StepContextProtocol.artifact``."""
        if self._artifacts is None:
            raise PlanInvalidError(
                f"step {self.run_step.workflow_step_name!r} has no artifacts here",
                details={"step": self.run_step.workflow_step_name, "artifact": str(kind)},
                hint="give the worker artifacts, and the run a document",
            )
        return self._artifacts.artifact(kind, name)

    def fail(self, reason: str) -> None:
        """Fail this step permanently and let the run continue.

        It continues at the step that the handler returns as ``next_step``, else at the one that
        follows; without one the run fails. Raise instead to have the step tried again.
        """
        self.failed = str(reason)[:MAX_TEXT_LENGTH]

    def spawn(self, steps: RunPlan | Sequence[str], runs: Sequence[NewRun]) -> None:
        """Make runs when this step ends; the next step is claimed when all of them are final.

        ``steps`` is their plan, or the names of steps of this one. They belong to this run: a
        cancel, pause or retry of it reaches them, its group does not count them, and what they
        do not say (document, batch, tenant) they have from it; their priority is added to its.
        A step that fails makes none. Without any run the next step is claimed at once, and gathers
        nothing. When one of them fails the others go on; then this run
        fails at the next step, and a retry begins with those that failed.
        """
        if self._plan is None or self.run_step.is_last_step:
            raise PlanInvalidError(
                f"step {self.run_step.workflow_step_name!r} makes runs and is the last one",
                details={"step": self.run_step.workflow_step_name},
                hint="add a step after it: it is claimed when they are final",
            )
        if any(run.idempotency_key is not None for run in runs):
            raise PlanInvalidError(
                "a run that a step makes has no idempotency_key",
                hint="leave it out: the end of a step counts once, so they are made once",
            )
        for number, run in enumerate(runs):
            json_text(f"runs[{number}].params", run.params)
        plan = steps if isinstance(steps, RunPlan) else self._plan.part(steps)
        self.spawns.append(Spawn(plan=plan, runs=list(runs)))

    async def children(self, step: str | None = None) -> Sequence[Child]:
        """The runs that a step of this run made, in the order they were given.

        None is the step before, if it called ``spawn``, else the last one that made some.
        """
        if self._children is None:
            return ()
        number = None
        if step is not None and self._plan is not None:
            number = self._plan.number(step)
            if number is None:
                raise PlanInvalidError(
                    f"the plan has no step {step!r}",
                    hint=f"its steps are {[one.name for one in self._plan.steps]}",
                )
        return await self._children(number)

    def park(self, reason: str) -> None:
        """Wait for ``engine.answer`` after this attempt: ``return ctx.park("who shall pay?")``.

        The run holds no slot and no lock meanwhile. Then the step comes again, with the answer.
        """
        check_text("reason", storable_text(reason))
        self.parked = reason

    @property
    def answered(self) -> bool:
        """True when the step was parked and there is an answer."""
        return self._answer is not None

    @property
    def answer(self) -> Any:
        """The answer; None before it came."""
        return None if self._answer is None else orjson.loads(self._answer)


class StepHandler:
    """One function, inspected once.

    Its parameters may be ``run_step``, ``workflow_run``, ``doc``, ``step_params`` and ``ctx``; any
    parameter of the step or the run by its name; and services by their type, which live in
    a scope of this call. A plain function runs in a thread.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], services: Services | None = None
    ) -> None:
        self.name = name
        self._function = function
        signature = inspect.signature(function)
        self._takes_all = any(p.kind in _VARIABLE for p in signature.parameters.values())
        injected: set[str] = set() if services is None else _find_injected(function, services)
        self._defaults = {
            item.name: item.default
            for item in signature.parameters.values()
            if item.kind not in _VARIABLE and item.name not in injected
        }
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._entry: Callable[..., Any] | None = None
        if injected and services is not None:
            self._entry = services.entry(function, given=list(self._defaults))

    @property
    def takes_nothing(self) -> bool:
        """Whether it is called without any value."""
        return not self._defaults and not self._takes_all

    @property
    def wants_document(self) -> bool:
        """Whether ``doc`` must be loaded."""
        return "doc" in self._defaults or self._takes_all

    async def __call__(
        self,
        run_step: RunStep,
        workflow_run: WorkflowRun,
        doc: Any,
        step_params: Mapping[str, Any],
        ctx: StepContext,
    ) -> Any:
        """Call it once; its exception reaches the caller."""
        known = {
            "run_step": run_step,
            "workflow_run": workflow_run,
            "doc": doc,
            "step_params": dict(step_params),
            "ctx": ctx,
        }
        return await self.call({**workflow_run.run_params, **step_params, **known})

    async def call(self, values: Mapping[str, Any]) -> Any:
        """Call it with those of the values that it names."""
        call = self._prepare(values)
        if self._is_async:
            return await call()
        # A thread cannot be cancelled: the step is over when it is.
        result = await anyio.to_thread.run_sync(call)
        return await result if inspect.isawaitable(result) else result

    def _prepare(self, values: Mapping[str, Any]) -> Callable[[], Any]:
        given = {}
        for name, default in self._defaults.items():
            value = values.get(name, default)
            if value is _NOTHING:
                raise PlanInvalidError(
                    f"the handler {self.name!r} needs {name!r}, which is neither a parameter of"
                    " the step or the run nor a service",
                    details={"handler": self.name, "parameter": name},
                    hint=f"add {name} to the step's parameters, or give it a default",
                )
            given[name] = value
        if self._entry is not None:
            return functools.partial(self._entry, *given.values())
        if self._takes_all:
            return functools.partial(self._function, **{**values, **given})
        return functools.partial(self._function, **given)


def _find_injected(function: Callable[..., Any], services: Services) -> set[str]:
    """Names of the parameters that the container fills."""
    return {
        item.name
        for item in parameters(function)
        if item.name not in GIVEN and is_service(item, services.sees)
    }

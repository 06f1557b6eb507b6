"""Steps that are workflows of their own: a graph, an approval."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from lexigram.contracts.core.result import Err, Ok
from lexigram.workflow.approval.chain import ApprovalChain
from lexigram.workflow.errors import WorkflowNotFoundError, WorkflowStepError
from lexigram.workflow.nodes._answers import value_of
from lexigram.workflow.pipeline.base import PipelineStep, Place, Resilience, changed
from lexigram.workflow.pipeline.context import PipelineContext

if TYPE_CHECKING:
    from lexigram.workflow.graph.engine import WorkflowEngine


class GraphStep(PipelineStep):
    """Runs a graph as one step; its output is the result.

    ``input(context)`` gives the graph its input; without it that is what the last dependency
    returned, and a mapping becomes the state. The inner run is kept where the pipeline is kept,
    if that is a checkpoint store: a pause inside pauses the pipeline, a crash repeats no node.
    """

    def __init__(
        self,
        name: str,
        workflow: WorkflowEngine,
        dependencies: Sequence[str] | None = None,
        *,
        input: Callable[[PipelineContext], Any] | None = None,  # noqa: A002 - as the engine says
        timeout: float | None = None,
        resilience: Resilience | None = None,
    ) -> None:
        super().__init__(name, dependencies, timeout, resilience)
        self._workflow = workflow
        self._input = input

    async def execute(self, context: PipelineContext) -> Any:
        """Run it, or go on with the inner run."""
        answers = context.answers
        run_id = f"{context.run_id}/{self.name}" if context.run_id else None
        if run_id is None:
            return Ok(value_of(await self._begin(context, None), "output"))
        if self.name in answers:
            found = await self._workflow.resume(run_id, answers.pop(self.name))
            return Ok(value_of(found, "output"))
        try:
            if self.name in context.timed_out:
                context.timed_out.discard(self.name)
                return Ok(value_of(await self._workflow.time_out(run_id), "output"))
            return Ok(value_of(await self._workflow.recover(run_id), "output"))
        except WorkflowNotFoundError:
            return Ok(value_of(await self._begin(context, run_id), "output"))

    def bind(self, place: Place) -> Self:
        """With its runs in the store of the pipeline."""
        workflow = self._workflow.equip(approvals=place.approvals)
        if place.store is not None:
            workflow = workflow.keep_in(place.store, every_step=place.every_step)
        bound: Self = changed(self, {"_workflow": workflow})
        return bound

    async def _begin(self, context: PipelineContext, run_id: str | None) -> Any:
        if self._input is not None:
            given: Any = self._input(context)
        elif self.dependencies:
            given = context.get_result(self.dependencies[-1])
        else:
            given = {k: v for k, v in context.metadata.items() if k != "step_results"}
        if isinstance(given, Mapping):
            state = cast("Mapping[str, Any]", given)
            return await self._workflow.execute("", state, run_id=run_id)
        return await self._workflow.execute(given, run_id=run_id)


class ApprovalGate(PipelineStep):
    """Asks for a yes: the answers are the result, a no fails the step.

    Persons named in the chain are asked by the ``ApprovalProtocol`` of the chain, or else by the
    one bound in the application. They see the facts of the run and what steps returned.
    """

    def __init__(
        self,
        name: str,
        chain: ApprovalChain,
        dependencies: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(name, dependencies, timeout)
        self._chain = chain

    async def execute(self, context: PipelineContext) -> Any:
        """Ask."""
        facts = {k: v for k, v in context.metadata.items() if k != "step_results"}
        approved, answers = await self._chain.execute(
            {**facts, **context.step_results}, workflow_id=context.run_id or ""
        )
        said = {name: status.value for name, status in answers.items()}
        if approved:
            return Ok(said)
        no = ", ".join(f"{name}: {status}" for name, status in said.items())
        return Err(WorkflowStepError(self.name, f"not approved ({no})", details={"answers": said}))

    def bind(self, place: Place) -> Self:
        """With the approvals of the application where the chain has none."""
        if self._chain.approvals is not None or place.approvals is None:
            return self
        chain = copy.copy(self._chain)
        chain.approvals = place.approvals
        bound: Self = changed(self, {"_chain": chain})
        return bound

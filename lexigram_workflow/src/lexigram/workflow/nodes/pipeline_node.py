"""A pipeline inside a graph."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol
from lexigram.contracts.workflow.protocols import ApprovalProtocol
from lexigram.workflow.errors import WorkflowNotFoundError
from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType
from lexigram.workflow.nodes._answers import PAUSED_AT, mark_pause, value_of

if TYPE_CHECKING:
    from lexigram.workflow.pipeline.pipeline import Pipeline


class PipelineNode(AbstractWorkflowNode):
    """Runs a pipeline as one node; what its last step returned goes to ``output_key``.

    The public keys of the state are the metadata of the run. It is kept where the graph is kept,
    unless the pipeline has a store of its own: a pause inside pauses the graph, and a crash
    repeats no step.
    """

    needs_visit = True

    def __init__(self, name: str, *, pipeline: Pipeline, output_key: str = "output") -> None:
        super().__init__(name, NodeType.SUBWORKFLOW)
        self._pipeline = pipeline
        self._output_key = output_key
        self.writes = frozenset({output_key})

    def keep_in(self, store: CheckpointStoreProtocol, *, every_step: bool) -> PipelineNode:
        """This node with its runs in the store of the graph."""
        other = copy.copy(self)
        other._pipeline = self._pipeline.keep_in(store, every_step=every_step)  # noqa: SLF001 - a copy
        return other

    def equip(self, *, approvals: ApprovalProtocol | None) -> PipelineNode:
        """This node with the approvals of the application."""
        other = copy.copy(self)
        other._pipeline = self._pipeline.equip(approvals=approvals)  # noqa: SLF001 - a copy
        return other

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """Run it, or go on with the inner run of this visit."""
        return {self._output_key: value_of(await self._run(state), "output")}

    async def _run(self, state: dict[str, Any]) -> Any:
        facts = {key: value for key, value in state.items() if key[:1] != "_"}
        if "_visit" not in state:
            return await self._pipeline.execute(facts)
        run_id = f"{state['_run_id']}/{self.name}.{state['_visit']}"
        with mark_pause():
            try:
                if "_answer" in state:
                    at = state["_pause"].get(PAUSED_AT)
                    return await self._pipeline.resume_at(run_id, state["_answer"], at)
                if state.get("_timed_out"):
                    return await self._pipeline.time_out(run_id)
                return await self._pipeline.resume(run_id)
            except WorkflowNotFoundError:
                return await self._pipeline.execute(facts, run_id=run_id)

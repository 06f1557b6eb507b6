"""A graph inside a graph."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol
from lexigram.contracts.workflow.protocols import ApprovalProtocol
from lexigram.workflow.errors import WorkflowNotFoundError
from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType
from lexigram.workflow.nodes._answers import PAUSED_AT, mark_pause, value_of

if TYPE_CHECKING:
    from lexigram.workflow.graph.engine import WorkflowEngine


class SubworkflowNode(AbstractWorkflowNode):
    """Runs another engine as one node; its output goes to ``output_key``.

    The inner run begins with a copy of the public keys of the state and has a state, a history
    and a run id of its own. It is kept where the outer run is kept, unless the inner engine has
    its own store: a pause inside pauses the outer run, and a crash repeats no inner node.
    """

    needs_visit = True

    def __init__(
        self,
        name: str,
        *,
        workflow: WorkflowEngine,
        input_key: str = "input",
        output_key: str = "output",
    ) -> None:
        super().__init__(name, NodeType.SUBWORKFLOW)
        self._workflow = workflow
        self._input_key = input_key
        self._output_key = output_key
        self.writes = frozenset({output_key})

    def keep_in(self, store: CheckpointStoreProtocol, *, every_step: bool) -> SubworkflowNode:
        """This node with its runs in the store of the outer engine."""
        other = copy.copy(self)
        other._workflow = self._workflow.keep_in(store, every_step=every_step)  # noqa: SLF001 - a copy
        return other

    def equip(self, *, approvals: ApprovalProtocol | None) -> SubworkflowNode:
        """This node with the approvals of the application."""
        other = copy.copy(self)
        other._workflow = self._workflow.equip(approvals=approvals)  # noqa: SLF001 - a copy
        return other

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """Run it, or go on with the inner run of this visit."""
        if "_visit" not in state:
            return self._unwrap(await self._begin(state, None))
        run_id = f"{state['_run_id']}/{self.name}.{state['_visit']}"
        with mark_pause():
            try:
                if "_answer" in state:
                    at = state["_pause"].get(PAUSED_AT)
                    return self._unwrap(
                        await self._workflow.resume_at(run_id, state["_answer"], at)
                    )
                if state.get("_timed_out"):
                    return self._unwrap(await self._workflow.time_out(run_id))
                return self._unwrap(await self._workflow.recover(run_id))
            except WorkflowNotFoundError:
                return self._unwrap(await self._begin(state, run_id))

    async def _begin(self, state: dict[str, Any], run_id: str | None) -> Any:
        given = {k: v for k, v in state.items() if k[:1] != "_" and k not in ("input", "output")}
        message = state.get(self._input_key, "")
        return await self._workflow.execute(message, given, run_id=run_id)

    def _unwrap(self, result: Any) -> dict[str, Any]:
        return {self._output_key: value_of(result, "output")}

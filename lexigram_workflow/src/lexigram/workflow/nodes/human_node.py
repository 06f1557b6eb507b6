"""Wait for a person."""

from __future__ import annotations

from typing import Any

from lexigram.workflow.errors import HumanInputRequiredError
from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType
from lexigram.workflow.nodes._templates import rendered


class HumanNode(AbstractWorkflowNode):
    """Pauses the run; the answer given to ``resume`` goes to ``output_key``.

    The prompt is ``state[input_key]`` where that is given and there, else ``prompt`` with
    ``{key}`` filled from the state. Inside an engine every visit asks anew, unless
    ``resume_key`` names a key of the state that already holds the answer.
    """

    # The engine tells it which visit this is, and the answer of that visit.
    needs_visit = True

    def __init__(
        self,
        name: str,
        *,
        prompt: str = "Human input required.",
        output_key: str = "human_response",
        resume_key: str | None = None,
        input_key: str | None = None,
    ) -> None:
        super().__init__(name, NodeType.HUMAN)
        self._prompt = prompt
        self._output_key = output_key
        self._resume_key = resume_key
        self._input_key = input_key
        self.writes = frozenset({output_key})

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """The answer, or HumanInputRequiredError."""
        if "_answer" in state:
            return {self._output_key: state["_answer"]}
        known = self._find_known_answer(state)
        if known is not None:
            return {self._output_key: known}
        raise HumanInputRequiredError(self._question(state), node=self.name)

    def _find_known_answer(self, state: dict[str, Any]) -> Any:
        if self._resume_key is not None:
            return state.get(self._resume_key)
        if "_visit" in state:
            return None  # what an earlier visit left under the output key is no answer
        return state.get(self._output_key) or None

    def _question(self, state: dict[str, Any]) -> str:
        if self._input_key is not None and state.get(self._input_key):
            return str(state[self._input_key])
        return rendered(self._prompt, state)

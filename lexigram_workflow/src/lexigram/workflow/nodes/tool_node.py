"""Use a tool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexigram.contracts.ai import ToolProtocol
from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType
from lexigram.workflow.nodes._answers import value_of


class ToolNode(AbstractWorkflowNode):
    """Calls ``tool.execute({"input": state[input_key], ...})``; the result goes to ``output_key``.

    ``extra_keys`` are passed too where the state has them. A failure fails the run.
    """

    def __init__(
        self,
        name: str,
        *,
        tool: ToolProtocol,
        input_key: str = "input",
        output_key: str = "output",
        extra_keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, NodeType.TOOL)
        self._tool = tool
        self._input_key = input_key
        self._output_key = output_key
        self._extra_keys = tuple(extra_keys or ())
        self.writes = frozenset({output_key})

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """Use the tool."""
        arguments = {key: state[key] for key in self._extra_keys if key in state}
        arguments["input"] = state.get(self._input_key, "")
        return {self._output_key: value_of(await self._tool.execute(arguments), "result")}

"""Let an agent answer."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.ai import AgentExecutorProtocol, AgentProtocol
from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType
from lexigram.workflow.nodes._answers import value_of


class AgentNode(AbstractWorkflowNode):
    """Gives ``state[input_key]`` to an agent; its answer goes to ``output_key``.

    With an executor the agent runs by it, else by its own ``run``. A failure fails the run.
    """

    def __init__(
        self,
        name: str,
        *,
        agent: AgentProtocol | Any,
        executor: AgentExecutorProtocol | None = None,
        input_key: str = "input",
        output_key: str = "output",
    ) -> None:
        super().__init__(name, NodeType.AGENT)
        self._agent = agent
        self._executor = executor
        self._input_key = input_key
        self._output_key = output_key
        self.writes = frozenset({output_key})

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """Ask the agent."""
        message = str(state.get(self._input_key, ""))
        if self._executor is not None:
            answer: Any = await self._executor.execute(self._agent, message)
        else:
            answer = await self._agent.run(message)
        return {self._output_key: value_of(answer, "message")}

"""Ask a language model."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.ai import LLMClientProtocol, LLMMessage
from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType
from lexigram.workflow.nodes._answers import value_of
from lexigram.workflow.nodes._templates import rendered


class LLMNode(AbstractWorkflowNode):
    """Fills the prompt from the state and asks the model; the text goes to ``output_key``.

    ``{key}`` is filled where the state has the key and stays as it is elsewhere. Model,
    temperature and max_tokens are the client's own when None. A failure fails the run.
    """

    def __init__(
        self,
        name: str,
        *,
        llm: LLMClientProtocol,
        prompt_template: str = "{input}",
        system_prompt: str = "",
        output_key: str = "output",
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        super().__init__(name, NodeType.LLM)
        self._llm = llm
        self._template = prompt_template
        self._system = system_prompt
        self._output_key = output_key
        settings = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._settings: dict[str, Any] = {k: v for k, v in settings.items() if v is not None}
        self.writes = frozenset({output_key})

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """Ask the model."""
        messages = [LLMMessage("user", rendered(self._template, state))]
        if self._system:
            messages.insert(0, LLMMessage("system", rendered(self._system, state)))
        answer = await self._llm.complete(messages, **self._settings)
        return {self._output_key: value_of(answer, "content")}

"""Tools, agents, language models and embeddings, as workflows and workers use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.ai.errors import AIError, LLMError
    from lexigram.contracts.ai.types import AgentReply, LLMMessage, LLMResponse
    from lexigram.contracts.core.result import Result


@runtime_checkable
class ToolProtocol(Protocol):
    """Something an agent or a workflow can use."""

    @property
    def name(self) -> str:
        """Unique among the tools of one agent."""
        ...

    @property
    def description(self) -> str:
        """What it does, for people and models."""
        ...

    async def execute(self, arguments: Mapping[str, Any], /) -> Any:
        """Use it; the result, or an exception. Calling again does the work again."""
        ...


@runtime_checkable
class AgentProtocol(Protocol):
    """Answers a message, using whatever it has."""

    async def run(self, message: str, /) -> Any:
        """The answer, or an exception. Not repeatable: the same message may differ in answer."""
        ...


@runtime_checkable
class AgentExecutorProtocol(Protocol):
    """Runs agents with the limits, tools and memory of the application."""

    async def execute(self, agent: Any, message: str, /) -> Result[AgentReply, AIError]:
        """The answer of the agent; a failure is an Err, never an exception."""
        ...


@runtime_checkable
class LLMClientProtocol(Protocol):
    """A language model."""

    async def complete(
        self,
        messages: Sequence[LLMMessage],
        *,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> Result[LLMResponse, LLMError]:
        """The next turn; None stands for the client's default. A failure is an Err.

        Not guaranteed: the same answer to the same messages. May be charged even if it fails.
        """
        ...


@runtime_checkable
class EmbeddingProviderProtocol(Protocol):
    """Turns texts into vectors."""

    @property
    def model_id(self) -> str:
        """Names the model; vectors of different models must not be mixed."""
        ...

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        ...

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, in the order of the texts; empty for none.

        Raises EmbeddingError for all or returns all. The same text gives nearly the same
        vector: close enough to search, not always equal.
        """
        ...

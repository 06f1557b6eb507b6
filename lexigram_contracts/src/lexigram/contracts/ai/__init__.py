"""Contracts of AI parts: tools, agents, language models, embeddings, documents and chunks."""

from lexigram.contracts.ai.errors import AIError, LLMError, RAGError
from lexigram.contracts.ai.protocols import (
    AgentExecutorProtocol,
    AgentProtocol,
    EmbeddingProviderProtocol,
    LLMClientProtocol,
    ToolProtocol,
)
from lexigram.contracts.ai.rag import ChunkerProtocol, ChunkProtocol, DocumentProtocol
from lexigram.contracts.ai.types import AgentReply, LLMMessage, LLMResponse

__all__ = [
    "AIError",
    "AgentExecutorProtocol",
    "AgentProtocol",
    "AgentReply",
    "ChunkProtocol",
    "ChunkerProtocol",
    "DocumentProtocol",
    "EmbeddingProviderProtocol",
    "LLMClientProtocol",
    "LLMError",
    "LLMMessage",
    "LLMResponse",
    "RAGError",
    "ToolProtocol",
]

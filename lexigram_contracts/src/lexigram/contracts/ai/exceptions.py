"""Old path of ``lexigram.contracts.ai.errors``."""

from lexigram.contracts.ai.errors import AIError, LLMError, RAGError

__all__ = ["AIError", "LLMError", "RAGError"]

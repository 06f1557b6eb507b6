"""What can go wrong in AI parts."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.errors import DomainError


class AIError(DomainError):
    """Something in an AI part failed."""

    code = "LEX_ERR_AI_001"

    def __init__(self, message: str = "AI error", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)


class LLMError(AIError):
    """A language model could not be reached, refused, or answered unusably."""

    code = "LEX_ERR_LLM_001"

    def __init__(self, message: str = "LLM error", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)


class RAGError(AIError):
    """A document could not be read, cut, stored or found."""

    code = "LEX_ERR_RAG_001"

    def __init__(self, message: str = "RAG error", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)

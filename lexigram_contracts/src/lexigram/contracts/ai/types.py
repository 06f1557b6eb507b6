"""Values exchanged with language models and agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LLMMessage:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


@dataclass(frozen=True)
class LLMResponse:
    """What a language model answered."""

    content: str
    # the model that really answered; None when the service does not say
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class AgentReply:
    """What an agent answered."""

    message: str

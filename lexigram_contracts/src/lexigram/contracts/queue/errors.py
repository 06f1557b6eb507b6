"""What can go wrong on the bus; the queue package adds one class per broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.contracts.core.errors import DomainError


class QueueError(DomainError):
    """A message was not published, received or settled; says by which backend and topic."""

    code = "LEX_ERR_QUEUE_001"

    def __init__(
        self,
        message: str = "Queue error",
        *,
        backend: str = "unknown",
        topic: str = "unknown",
        details: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        facts = {"backend": backend, "topic": topic, **(details or {})}
        super().__init__(message, details=facts, **kwargs)
        self.backend = backend
        self.topic = topic


class QueueFullError(QueueError):
    """The topic holds as many messages as it may; this one was not accepted."""

    code = "LEX_ERR_QUEUE_101"

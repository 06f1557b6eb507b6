"""What can go wrong on the bus; the queue package adds one class per broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lexigram.contracts.core.errors import DomainError


class QueueError(DomainError):
    """A message was not published, received or settled; says by which backend and topic."""

    code = "LEX_ERR_QUEUE_001"
    # What is said where the caller says nothing; the class of a broker has its own.
    default_backend: ClassVar[str] = "unknown"
    default_message: ClassVar[str] = "Queue error"

    def __init__(
        self,
        message: str | None = None,
        *,
        backend: str | None = None,
        topic: str = "unknown",
        details: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        name = self.default_backend if backend is None else backend
        facts = {"backend": name, "topic": topic, **(details or {})}
        super().__init__(message or self.default_message, details=facts, **kwargs)
        self.backend = name
        self.topic = topic


class QueueFullError(QueueError):
    """The topic holds as many messages as it may; this one was not accepted."""

    code = "LEX_ERR_QUEUE_101"


class CapabilityError(QueueError):
    """The driver was asked for something it does not declare."""

    code = "LEX_ERR_QUEUE_102"
    is_retryable = False


class NotConnectedError(QueueError, RuntimeError):
    """The queue was used before ``connect`` or after ``close``."""

    code = "LEX_ERR_QUEUE_103"


class MessageRejectedError(QueueError):
    """Raise it in a handler, middleware or filter: this message is not to be tried again."""

    code = "LEX_ERR_QUEUE_104"
    is_retryable = False


class MessageTooLargeError(QueueError, ValueError):
    """The body is larger than the broker takes; nothing was sent."""

    code = "LEX_ERR_QUEUE_105"
    is_retryable = False


class InvalidMessageError(QueueError, ValueError):
    """A field of a message is outside the bounds of the bus; ``details["field"]`` names it.

    Nothing was sent.
    """

    code = "LEX_ERR_QUEUE_111"
    is_retryable = False
    default_backend = "any"

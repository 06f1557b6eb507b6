"""The root of every Lexigram error: a code, facts, and a fix in the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self


class LexigramError(Exception):
    """Base of all errors raised by Lexigram.

    The class carries a stable ``code``; the instance carries the message, the facts
    (``details``), an optional ``hint`` that says what to try, and the cause. The text
    reads ``[CODE] message`` followed by ``→ Fix: hint`` where there is a hint.

    Where ``is_retryable`` is False, another attempt cannot help: messages, jobs and steps that
    fail with the error are not tried again, whatever their retry policy says.
    """

    code: ClassVar[str] = "LEX_ERR_CORE_001"
    is_retryable: ClassVar[bool] = True

    def __init__(
        self,
        message: str = "",
        *,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message or type(self).__name__
        self.details: dict[str, Any] = dict(details or {})
        self.hint = hint
        if cause is not None:
            self.__cause__ = cause

    @property
    def cause(self) -> BaseException | None:
        """The exception this one was raised from, if any."""
        return self.__cause__

    def with_details(self, **details: Any) -> Self:
        """Add facts and return the same error, for use in a raise statement."""
        self.details.update(details)
        return self

    def with_hint(self, hint: str) -> Self:
        """Set the fix and return the same error, for use in a raise statement."""
        self.hint = hint
        return self

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data: code, type, message, hint, details."""
        return {
            "code": self.code,
            "type": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "details": self.details,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses make their text from other arguments; without this a process pool that
        # sends one back would call the constructor with the finished text and break.
        return _rebuild, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        text = f"[{self.code}] {self.message}"
        return f"{text}\n→ Fix: {self.hint}" if self.hint else text


class ConfigurationError(LexigramError):
    """A setting is missing, wrong or contradictory."""

    code = "LEX_ERR_CFG_001"
    is_retryable = False


class DomainError(LexigramError):
    """A business rule or a domain operation failed."""

    code = "LEX_ERR_DOM_001"


class NotFoundError(DomainError, LookupError):
    """The thing asked for does not exist."""

    code = "LEX_ERR_DOM_002"


class InfrastructureError(LexigramError):
    """A part outside the process (database, broker, disk, network) failed."""

    code = "LEX_ERR_INFRA_001"


def _rebuild(kind: type[LexigramError], args: tuple[Any, ...]) -> LexigramError:
    error = kind.__new__(kind)
    error.args = args  # not by __new__: an OSError takes its arguments in __init__ only
    return error

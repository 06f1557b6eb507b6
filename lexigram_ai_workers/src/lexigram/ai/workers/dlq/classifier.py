"""Classify failures: by the reason of the queue, by error type, then by error text."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from lexigram.ai.workers.types import FailureCategory
from lexigram.concurrency import is_retryable

# Checked from top to bottom, on the text in lower case; the first phrase that occurs counts.
TEXT_RULES: Sequence[tuple[FailureCategory, tuple[str, ...]]] = (
    (
        FailureCategory.PERMANENT,
        ("not found", "does not exist", "invalid", "malformed", "syntax error"),
    ),
    (
        FailureCategory.THROTTLED,
        ("rate limit", "too many requests", "throttled", "quota exceeded"),
    ),
    (FailureCategory.INVALID_INPUT, ("validation error", "invalid input", "bad request")),
    (
        FailureCategory.TRANSIENT,
        ("timeout", "connection", "network", "temporary", "unavailable", "503", "502"),
    ),
)

# Names of exception classes; subclasses of the built-in ones are added below.
_BASES: Mapping[type[Exception], FailureCategory] = {
    ConnectionError: FailureCategory.TRANSIENT,
    TimeoutError: FailureCategory.TRANSIENT,
    InterruptedError: FailureCategory.TRANSIENT,
    BlockingIOError: FailureCategory.TRANSIENT,
    FileNotFoundError: FailureCategory.PERMANENT,
    PermissionError: FailureCategory.PERMANENT,
    ImportError: FailureCategory.PERMANENT,
    NotImplementedError: FailureCategory.PERMANENT,
    SyntaxError: FailureCategory.PERMANENT,
    UnicodeError: FailureCategory.INVALID_INPUT,
    TypeError: FailureCategory.INVALID_INPUT,
}

_NAMES: Mapping[str, FailureCategory] = {
    # of Lexigram
    "JobTimeoutError": FailureCategory.TRANSIENT,
    "DatabaseUnavailableError": FailureCategory.TRANSIENT,
    "DatabaseLockedError": FailureCategory.TRANSIENT,
    "StatementTimeoutError": FailureCategory.TRANSIENT,
    "EmbeddingsUnavailableError": FailureCategory.TRANSIENT,
    "EmbeddingInputError": FailureCategory.INVALID_INPUT,
    "EmbeddingModelError": FailureCategory.PERMANENT,
    "EmbeddingLibraryError": FailureCategory.PERMANENT,
    "ModelsMixedError": FailureCategory.PERMANENT,
    "StepRefusedError": FailureCategory.INVALID_INPUT,
    "JobRefusedError": FailureCategory.INVALID_INPUT,
    "NoHandlerError": FailureCategory.UNKNOWN,  # a later deployment may have the handler
    "CircuitOpenError": FailureCategory.TRANSIENT,
    # of httpx
    "ConnectError": FailureCategory.TRANSIENT,
    "ConnectTimeout": FailureCategory.TRANSIENT,
    "ReadError": FailureCategory.TRANSIENT,
    "ReadTimeout": FailureCategory.TRANSIENT,
    "RemoteProtocolError": FailureCategory.TRANSIENT,
    "PoolTimeout": FailureCategory.TRANSIENT,
}

# Reasons of the queue: a handler that aborts the job, a job that crashes its workers.
_REASONS: Mapping[str, FailureCategory] = {
    "aborted": FailureCategory.PERMANENT,
    "not_retryable": FailureCategory.PERMANENT,
    "poison": FailureCategory.PERMANENT,
}

# "TypeName: text", as queues store errors; the last part of a dotted name is used.
_LEADING_TYPE = re.compile(r"^\s*(?:[\w.]*\.)?(?P<name>[A-Za-z_]\w*)\s*(?::|\(|$)")

TypeRule: TypeAlias = type[BaseException] | str


class ClassifierProtocol(Protocol):
    """A classifier of failures."""

    def classify(self, error: Any, job: Any, /) -> FailureCategory:
        """Return the category of an error, a text or an exception; ``job`` is the failed job."""
        ...


class ErrorClassifier:
    """The default rules."""

    @staticmethod
    def classify(error: str | BaseException, job: Any = None) -> FailureCategory:
        """Classify by ``reason`` of the job, by error type, then by error text."""
        return _DEFAULT.classify(error, job)


class RuleClassifier:
    """Custom rules, applied before the default rules.

    ``types`` maps exception classes, or their names, to categories; a class includes its
    subclasses if the error is an exception. ``texts`` are phrases in lower case.
    Without a matching rule ``fallback`` is used.
    """

    def __init__(
        self,
        *,
        types: Mapping[TypeRule, FailureCategory] | None = None,
        texts: Sequence[tuple[FailureCategory, Sequence[str]]] = (),
        reasons: Mapping[str, FailureCategory] | None = None,
        fallback: ClassifierProtocol | None = None,
    ) -> None:
        self._types = {_name(key): category for key, category in (types or {}).items()}
        self._texts = tuple(texts)
        self._reasons = dict(reasons or {})
        self._fallback = fallback if fallback is not None else ErrorClassifier()

    def classify(self, error: str | BaseException, job: Any = None) -> FailureCategory:
        """Return the category of the first matching rule."""
        found = self._by_reason(job) or self._by_type(error) or self._by_text(error)
        return found or self._fallback.classify(error, job)

    def _by_reason(self, job: Any) -> FailureCategory | None:
        if isinstance(job, Mapping):
            reason = cast("Mapping[str, Any]", job).get("reason")
        else:
            reason = getattr(job, "reason", None)
        return self._reasons.get(reason) if isinstance(reason, str) else None

    def _by_type(self, error: str | BaseException) -> FailureCategory | None:
        for name in _types(error):
            if name in self._types:
                return self._types[name]
        if isinstance(error, BaseException) and not is_retryable(error):
            return FailureCategory.PERMANENT
        return None

    def _by_text(self, error: str | BaseException) -> FailureCategory | None:
        text = str(error).lower()
        for category, phrases in self._texts:
            if any(phrase in text for phrase in phrases):
                return category
        return None


class _Unknown:
    def classify(self, _error: Any, _job: Any, /) -> FailureCategory:
        return FailureCategory.UNKNOWN


def _types(error: str | BaseException) -> Iterator[str]:
    if isinstance(error, BaseException):
        yield from (kind.__name__ for kind in type(error).__mro__)
        return
    found = _LEADING_TYPE.match(error)
    if found is not None:
        yield found["name"]


def _name(rule: TypeRule) -> str:
    return rule if isinstance(rule, str) else rule.__name__


def _build_default_types() -> dict[TypeRule, FailureCategory]:
    types: dict[TypeRule, FailureCategory] = {}
    types.update(_NAMES)
    kinds = [kind for kind in vars(builtins).values() if isinstance(kind, type)]
    for base, category in _BASES.items():
        types.update({kind.__name__: category for kind in kinds if issubclass(kind, base)})
    return types


_DEFAULT = RuleClassifier(
    types=_build_default_types(), texts=TEXT_RULES, reasons=_REASONS, fallback=_Unknown()
)

"""A dead letter as the worker keeps it, and how it moves: waiting, retrying, archived, gone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from attrs import evolve, field, frozen

from lexigram.ai.workers.constants import MAX_BACKOFF_SECONDS
from lexigram.ai.workers.types import DLQItem, FailureCategory

# Trying these again by itself cannot help; a person may still do it.
HOPELESS = frozenset({FailureCategory.PERMANENT, FailureCategory.INVALID_INPUT})

TOLD = "told"  # in the notes: names of the notifiers that know


class LetterState(StrEnum):
    """Where a letter is."""

    WAITING = "waiting"  # for its next try, or for a person
    RETRYING = "retrying"  # sent again; how that went is not known yet
    ARCHIVED = "archived"  # kept to be looked at, never tried by itself


@frozen(kw_only=True)
class RetryRule:
    """How often, and how soon, a letter is tried again."""

    max_retries: int
    # seconds; doubles with every try
    base: float

    def next_after(self, failed_at: float, retry_count: int) -> float:
        """When a letter that failed may be tried again."""
        # Shifted no further than needed: 2**10_000 is a long number to make and throw away.
        return failed_at + min(self.base * 2.0 ** min(retry_count, 32), MAX_BACKOFF_SECONDS)


@frozen(kw_only=True)
class Failure:
    """That something failed, as a source tells it. Times are seconds since 1970."""

    source: str
    id: str
    payload: Any
    error: str
    category: FailureCategory
    failed_at: float
    notes: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen(kw_only=True)
class Letter:
    """What is known about one letter. Times are seconds since 1970."""

    source: str
    id: str
    payload: Any
    failure_count: int
    first_failure: float
    last_failure: float
    last_error: str
    category: FailureCategory
    state: LetterState = LetterState.WAITING
    retry_count: int = 0
    max_retries: int
    next_retry: float
    retried_at: float | None = None
    notified: bool = False
    notes: Mapping[str, Any] = field(factory=dict[str, Any])

    @property
    def is_final(self) -> bool:
        """True when it will not be tried again by itself."""
        return self.category in HOPELESS or self.retry_count >= self.max_retries

    def is_due(self, now: float) -> bool:
        """True when it is to be tried again by itself."""
        return self.state is LetterState.WAITING and not self.is_final and self.next_retry <= now

    @property
    def is_untold(self) -> bool:
        """True when it will not be tried again and nobody was told."""
        return self.state is LetterState.WAITING and self.is_final and not self.notified

    def item(self) -> DLQItem:
        """The letter as callers see it."""
        return DLQItem(
            job_id=self.id,
            original_job=self.payload,
            failure_count=self.failure_count,
            first_failure=_moment(self.first_failure),
            last_failure=_moment(self.last_failure),
            last_error=self.last_error,
            failure_category=self.category,
            retry_count=self.retry_count,
            max_retries=self.max_retries,
            next_retry=None if self.is_final else _moment(self.next_retry),
            metadata={**self.notes, "source": self.source, "state": self.state.value},
        )


def failed(old: Letter | None, failure: Failure, rule: RetryRule) -> Letter:
    """What is known after a source told of a failure; the same object when it is no news."""
    if old is None:
        return Letter(
            source=failure.source,
            id=failure.id,
            payload=failure.payload,
            failure_count=1,
            first_failure=failure.failed_at,
            last_failure=failure.failed_at,
            last_error=failure.error,
            category=failure.category,
            max_retries=rule.max_retries,
            next_retry=rule.next_after(failure.failed_at, 0),
            notes=dict(failure.notes),
        )
    # Both by the clock of the source: comparing with our own would go wrong by their difference.
    if failure.failed_at <= old.last_failure:
        return old
    return evolve(
        old,
        payload=failure.payload,
        failure_count=old.failure_count + 1,
        last_failure=failure.failed_at,
        last_error=failure.error,
        category=failure.category,
        state=LetterState.WAITING,
        next_retry=rule.next_after(failure.failed_at, old.retry_count),
        notes={**old.notes, **failure.notes},
    )


def sent(letter: Letter, now: float) -> Letter:
    """It is being tried again."""
    return evolve(
        letter,
        state=LetterState.RETRYING,
        retry_count=letter.retry_count + 1,
        retried_at=now,
        # A person may try what was told to be final: the next end of it is news again.
        notified=False,
        notes={key: note for key, note in letter.notes.items() if key != TOLD},
    )


def unsent(letter: Letter, rule: RetryRule, now: float, error: str | None) -> Letter:
    """Trying again did not begin: the source failed, or the process that did it died."""
    retry_count = max(0, letter.retry_count - 1)
    return evolve(
        letter,
        state=LetterState.WAITING,
        retry_count=retry_count,
        next_retry=rule.next_after(now, retry_count),
        last_error=letter.last_error if error is None else error,
    )


def archived(letter: Letter, now: float) -> Letter:
    """Kept, and left alone."""
    when = _moment(now).isoformat()
    return evolve(
        letter,
        state=LetterState.ARCHIVED,
        category=FailureCategory.PERMANENT,
        notes={**letter.notes, "archived": True, "archived_at": when},
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

"""The state of a dead letter and its transitions: waiting, retrying, archived."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from attrs import evolve, field, frozen

from lexigram.ai.workers.constants import MAX_BACKOFF_SECONDS
from lexigram.ai.workers.types import DLQItem, FailureCategory

# Not retried automatically; a manual retry is possible.
PERMANENT_CATEGORIES = frozenset({FailureCategory.PERMANENT, FailureCategory.INVALID_INPUT})

NOTIFIED_BY = "notified_by"  # key in the notes: names of the successful notifiers


class DeadLetterState(StrEnum):
    """State of a dead letter."""

    WAITING = "waiting"  # for the next retry or a manual action
    RETRYING = "retrying"  # retried, without an outcome yet
    ARCHIVED = "archived"  # kept, never retried automatically


@frozen(kw_only=True)
class RetryRule:
    """Retry policy: number of retries and backoff."""

    max_retries: int
    # seconds; doubles with every retry
    base: float

    def next_after(self, failed_at: float, retry_count: int) -> float:
        """Return the time of the next retry after a failure."""
        # Limited, as 2.0**10_000 would overflow.
        return failed_at + min(self.base * 2.0 ** min(retry_count, 32), MAX_BACKOFF_SECONDS)


@frozen(kw_only=True)
class Failure:
    """A failure reported by a source. Times are seconds since 1970."""

    source: str
    id: str
    payload: Any
    error: str
    category: FailureCategory
    failed_at: float
    notes: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen(kw_only=True)
class StoredDeadLetter:
    """The stored state of a dead letter. Times are seconds since 1970."""

    source: str
    id: str
    payload: Any
    failure_count: int
    first_failure: float
    last_failure: float
    last_error: str
    category: FailureCategory
    state: DeadLetterState = DeadLetterState.WAITING
    retry_count: int = 0
    max_retries: int
    next_retry: float
    retried_at: float | None = None
    notified: bool = False
    notes: Mapping[str, Any] = field(factory=dict[str, Any])

    @property
    def is_final(self) -> bool:
        """True if it is not retried automatically."""
        return self.category in PERMANENT_CATEGORIES or self.retry_count >= self.max_retries

    def is_due(self, now: float) -> bool:
        """True if an automatic retry is due."""
        return (
            self.state is DeadLetterState.WAITING and not self.is_final and self.next_retry <= now
        )

    @property
    def needs_notification(self) -> bool:
        """True if it is not retried any more and was not reported yet."""
        return self.state is DeadLetterState.WAITING and self.is_final and not self.notified

    def to_item(self) -> DLQItem:
        """Convert to the public type."""
        return DLQItem(
            job_id=self.id,
            original_job=self.payload,
            failure_count=self.failure_count,
            first_failure=_to_datetime(self.first_failure),
            last_failure=_to_datetime(self.last_failure),
            last_error=self.last_error,
            failure_category=self.category,
            retry_count=self.retry_count,
            max_retries=self.max_retries,
            next_retry=None if self.is_final else _to_datetime(self.next_retry),
            metadata={**self.notes, "source": self.source, "state": self.state.value},
        )


def record_failure(
    known: StoredDeadLetter | None, failure: Failure, rule: RetryRule
) -> StoredDeadLetter:
    """Return the state after a failure; the same object if the failure is already recorded."""
    if known is None:
        return StoredDeadLetter(
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
    # Both times are of the clock of the source; our clock may differ.
    if failure.failed_at <= known.last_failure:
        return known
    return evolve(
        known,
        payload=failure.payload,
        failure_count=known.failure_count + 1,
        last_failure=failure.failed_at,
        last_error=failure.error,
        category=failure.category,
        state=DeadLetterState.WAITING,
        next_retry=rule.next_after(failure.failed_at, known.retry_count),
        notes={**known.notes, **failure.notes},
    )


def mark_retried(dead_letter: StoredDeadLetter, now: float) -> StoredDeadLetter:
    """Return the state after a retry."""
    return evolve(
        dead_letter,
        state=DeadLetterState.RETRYING,
        retry_count=dead_letter.retry_count + 1,
        retried_at=now,
        # After a manual retry the next permanent failure is reported again.
        notified=False,
        notes={key: note for key, note in dead_letter.notes.items() if key != NOTIFIED_BY},
    )


def undo_retry(
    dead_letter: StoredDeadLetter, rule: RetryRule, now: float, error: str | None
) -> StoredDeadLetter:
    """Return the state after a retry that did not start: the source or the process failed."""
    retry_count = max(0, dead_letter.retry_count - 1)
    return evolve(
        dead_letter,
        state=DeadLetterState.WAITING,
        retry_count=retry_count,
        next_retry=rule.next_after(now, retry_count),
        last_error=dead_letter.last_error if error is None else error,
    )


def archive(dead_letter: StoredDeadLetter, now: float) -> StoredDeadLetter:
    """Return the archived state."""
    when = _to_datetime(now).isoformat()
    return evolve(
        dead_letter,
        state=DeadLetterState.ARCHIVED,
        category=FailureCategory.PERMANENT,
        notes={**dead_letter.notes, "archived": True, "archived_at": when},
    )


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

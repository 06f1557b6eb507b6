"""What happens to jobs; each event is built only when there is a listener.

They are emitted by the process where it happens, after it was written: a crash in between loses
the event, never the fact.
"""

from __future__ import annotations

from dataclasses import dataclass

from lexigram.contracts.domain.events import DomainEvent


@dataclass(frozen=True, kw_only=True)
class JobEvent(DomainEvent):
    """Base of the events of jobs: subscribe to it for all of them."""

    job_id: str
    name: str
    queue: str


@dataclass(frozen=True, kw_only=True)
class JobEnqueued(JobEvent):
    """A queue accepted the job; inside a transaction the commit may still be to come."""


@dataclass(frozen=True, kw_only=True)
class JobStarted(JobEvent):
    """A worker calls the handler."""

    worker_id: str
    # 1 for the first
    attempt: int


@dataclass(frozen=True, kw_only=True)
class JobCompleted(JobEvent):
    """The handler returned and the result is kept."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class JobRetried(JobEvent):
    """An attempt failed; another one follows after ``delay`` seconds."""

    attempt: int
    delay: float
    error: str


@dataclass(frozen=True, kw_only=True)
class JobFailed(JobEvent):
    """The job failed permanently and is a dead letter."""

    # exhausted, aborted, rejected or poison
    reason: str
    error: str


@dataclass(frozen=True, kw_only=True)
class JobCancelled(JobEvent):
    """The job was cancelled: by request, or because one it waited for did not complete."""

    # asked or dependency
    reason: str

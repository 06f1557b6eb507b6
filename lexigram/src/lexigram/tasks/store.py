"""What a store of jobs does, whatever it is made of, and how its rows become jobs.

A row is claimable exactly while it is ``ready``: what waits for its time, for other jobs or for
nothing any more has another state, so that claims never look at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

from attrs import frozen

from lexigram.contracts.infra.tasks.protocols import NewsProtocol
from lexigram.contracts.infra.tasks.types import (
    ClaimedJob,
    DependencyPolicy,
    EndKind,
    Job,
    JobStatus,
    LeaseState,
)
from lexigram.tasks._records import job_of
from lexigram.tasks.intake import NewJob, payload_of

Topic: TypeAlias = Literal["work", "cancel", "done"]


class State(StrEnum):
    """Where a row is."""

    READY = "ready"  # can be claimed; the only state in the claim index
    DELAYED = "delayed"  # until available_at
    WAITING = "waiting"  # for jobs it depends on
    RUNNING = "running"  # leased until lease_until
    COMPLETED = "completed"
    FAILED = "failed"  # a dead letter
    CANCELLED = "cancelled"


UNFINISHED = (State.READY, State.DELAYED, State.WAITING, State.RUNNING)
QUEUED = (State.READY, State.DELAYED, State.WAITING)


@frozen(kw_only=True)
class Admission:
    """What became of one new job; ``job_id`` is the job that is there now or was in the way."""

    kind: Literal["new", "known_id", "not_unique", "same_request", "unknown_dependency"]
    job_id: str


@frozen(kw_only=True)
class End:
    """How one attempt ended, ready to be written."""

    claim: ClaimedJob
    kind: EndKind
    result: str | None = None
    # seconds the result is kept
    ttl: float = 0.0
    error: str = ""
    reason: str = ""
    delay: float = 0.0


@frozen(kw_only=True)
class Ended:
    """A job that ended without its worker knowing: cancelled in the queue, poison, by a chain."""

    job_id: str
    name: str
    queue: str
    status: JobStatus
    reason: str


@frozen(kw_only=True)
class Finished:
    """Answer to ``finish``: the new status of each job, None where the lease was lost."""

    statuses: Sequence[JobStatus | None]
    others: Sequence[Ended] = ()


@frozen(kw_only=True)
class Tended:
    """Answer to ``tend``."""

    # jobs that can be claimed since now
    promoted: int
    others: Sequence[Ended]
    # seconds until the next one is due by time
    next_due: float | None


@frozen(kw_only=True)
class Cancelled:
    """Answer to ``cancel``."""

    found: bool
    # it runs: its worker must be notified
    running: bool = False
    others: Sequence[Ended] = ()


class JobStore(Protocol):
    """Keeps jobs. Every method is one transaction; time is the store's own clock.

    A store wakes listeners itself: of ``work`` when a job can be claimed or gets a time, of
    ``cancel`` when a running job shall stop, of ``done`` when jobs ended.
    """

    # True when jobs survive the process
    is_durable: bool

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Admission]: ...

    async def claim(
        self, holder: str, limit: int, queues: Sequence[str], lease: float
    ) -> Sequence[ClaimedJob]: ...

    async def extend(self, claims: Sequence[ClaimedJob], lease: float) -> Sequence[LeaseState]: ...

    async def finish(self, ends: Sequence[End]) -> Finished: ...

    async def tend(self) -> Tended: ...

    async def cancel(self, job_id: str) -> Cancelled: ...

    async def revive(self, job_id: str, states: Sequence[State]) -> bool: ...

    async def get(self, job_id: str) -> Row | None: ...

    async def find(
        self,
        *,
        queue: str | None,
        states: Sequence[State],
        retried: bool | None,
        name: str | None,
        limit: int,
        offset: int,
    ) -> Sequence[Row]: ...

    async def count(
        self, queue: str | None, states: Sequence[State], retried: bool | None
    ) -> int: ...

    async def delete(self, states: Sequence[State], job_id: str | None = None) -> int: ...

    async def purge(self, older_than: float) -> int: ...

    async def bury(self, job: NewJob, reason: str, error: str, notes: str) -> None: ...

    def listening(self, to: Topic) -> AbstractAsyncContextManager[NewsProtocol]: ...

    @property
    def joins(self) -> bool:
        """True while the calling task has a transaction open that ``insert`` is part of."""
        ...


Row: TypeAlias = Mapping[str, Any]

# PENDING and RETRYING are the same states; attempts that failed tell them apart. By plain text,
# which states are equal to: rows come with either.
_STATUS: dict[str, JobStatus] = {
    State.RUNNING: JobStatus.RUNNING,
    State.COMPLETED: JobStatus.COMPLETED,
    State.FAILED: JobStatus.FAILED,
    State.CANCELLED: JobStatus.CANCELLED,
}
_POLICIES: dict[str, DependencyPolicy] = {policy.value: policy for policy in DependencyPolicy}


def status_of(state: str, retry_count: int) -> JobStatus:
    """The status that callers see."""
    known = _STATUS.get(state)
    if known is not None:
        return known
    return JobStatus.RETRYING if retry_count else JobStatus.PENDING


def states_of(status: JobStatus | None) -> tuple[tuple[State, ...], bool | None]:
    """States of a status, and whether attempts must have failed; None for both."""
    if status is None:
        return tuple(State), None
    if status in (JobStatus.PENDING, JobStatus.RETRYING):
        return QUEUED, status is JobStatus.RETRYING
    return (State(status.value),), None


def job_from(row: Row) -> Job:
    """A row as callers see it."""
    args, kwargs, trace = payload_of(row["payload"])
    waited_for = row["depends_on"]
    return job_of(
        {
            "name": row["name"],
            "id": row["id"],
            "args": args,
            "kwargs": kwargs,
            "queue": row["queue"],
            "priority": row["priority"],
            "max_retries": row["max_retries"],
            "timeout": row["timeout"],
            "scheduled_at": moment(row["scheduled_at"]),
            "unique_key": row["unique_key"],
            "idempotency_key": row["idempotency_key"],
            "depends_on": tuple(waited_for.split("\n")) if waited_for else (),
            "on_dependency_failure": _POLICIES[row["on_dependency_failure"]],
            "max_deliveries": row["max_deliveries"],
            "result_ttl": row["result_ttl"],
            "correlation_id": row["correlation_id"],
            "causation_id": row["causation_id"],
            "trace_context": trace,
            "status": status_of(row["state"], row["retry_count"]),
            "created_at": moment(row["created_at"]),
            "started_at": moment(row["started_at"]),
            "completed_at": moment(row["completed_at"]),
            "retry_count": row["retry_count"],
            "lost_count": row["lost_count"],
            "last_error": row["error"],
            "reason": row["reason"],
            "cancel_requested": bool(row["cancel_requested"]),
        }
    )


def claimed_from(row: Row) -> ClaimedJob:
    """A row that was just claimed."""
    return ClaimedJob(
        job=job_from(row), holder=row["lease"], fence=row["fence"], position=row["seq"]
    )


def ended_from(row: Row) -> Ended:
    """A row that reached a final state."""
    return Ended(
        job_id=row["id"],
        name=row["name"],
        queue=row["queue"],
        status=JobStatus(row["state"]),
        reason=row["reason"],
    )


def moment(seconds: float | None) -> datetime | None:
    """Seconds since 1970 as a moment."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def state_after(kind: EndKind, delay: float) -> State:
    """The state an end asks for; a cancel request may still turn it."""
    if kind is EndKind.COMPLETED:
        return State.COMPLETED
    if kind is EndKind.RETRY:
        return State.DELAYED if delay > 0 else State.READY
    if kind is EndKind.RELEASED:
        return State.READY
    return State(kind.value)

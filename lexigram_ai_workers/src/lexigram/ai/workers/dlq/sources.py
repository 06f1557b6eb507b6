"""Sources of dead letters: the job queue, the bus, and jobs added by callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Protocol

from attrs import frozen

from lexigram import clock
from lexigram.ai.workers.dlq.dead_letter import StoredDeadLetter
from lexigram.ai.workers.errors import DLQError
from lexigram.contracts.core.result import Err
from lexigram.contracts.infra.tasks.protocols import (
    DLQProtocol,
    JobControlProtocol,
    JobProtocol,
    TaskQueueProtocol,
)
from lexigram.contracts.infra.tasks.types import DeadLetter, JobStatus

JOBS, BUS, ADDED = "jobs", "bus", "added"


class OutcomeKind(Enum):
    """Outcome of a retry."""

    OPEN = auto()  # still running
    SUCCEEDED = auto()
    FAILED = auto()
    UNKNOWN = auto()  # the source has no outcome


@frozen(kw_only=True)
class Outcome:
    """Outcome of a retry, with the error and time of a failure."""

    kind: OutcomeKind
    error: str = ""
    failed_at: float = 0.0


class DeadLetterSource(Protocol):
    """A source of dead letters."""

    @property
    def name(self) -> str:
        """Part of the key of the dead letters; at most 32 characters."""
        ...

    async def failures(self, limit: int, offset: int) -> Sequence[DeadLetter]:
        """List the dead letters, latest failure first."""
        ...

    async def holds(self, dead_letter_id: str) -> bool:
        """True while the source has the dead letter."""
        ...

    async def retry(self, dead_letter: StoredDeadLetter) -> bool:
        """Retry a dead letter; False if it does not exist any more."""
        ...

    async def delete(self, dead_letter: StoredDeadLetter) -> None:
        """Delete a dead letter permanently."""
        ...

    async def outcome(self, dead_letter: StoredDeadLetter) -> Outcome:
        """Return the outcome of the last retry."""
        ...


class BusDeadLetterSource:
    """Dead letters of the bus, or of any other DLQProtocol.

    The bus does not report handled messages: a retry counts as successful after a time without a
    new failure.
    """

    def __init__(self, dead_letters: DLQProtocol, name: str = BUS) -> None:
        self._dead_letters = dead_letters
        self._name = name

    @property
    def name(self) -> str:
        """``bus`` by default."""
        return self._name

    async def failures(self, limit: int, offset: int) -> Sequence[DeadLetter]:
        """List the dead letters."""
        return await self._dead_letters.list_failed(limit, offset)

    async def holds(self, dead_letter_id: str) -> bool:
        """True while the bus has the dead letter."""
        return await self._dead_letters.get(dead_letter_id) is not None

    async def retry(self, dead_letter: StoredDeadLetter) -> bool:
        """Send the message to its topic again."""
        return await self._dead_letters.retry(dead_letter.id)

    async def delete(self, dead_letter: StoredDeadLetter) -> None:
        """Delete the dead letter permanently."""
        await self._dead_letters.purge(dead_letter.id)

    async def outcome(self, dead_letter: StoredDeadLetter) -> Outcome:
        """Return UNKNOWN."""
        return Outcome(kind=OutcomeKind.UNKNOWN)


class JobDeadLetterSource(BusDeadLetterSource):
    """Dead letters of the job queue, which also has the outcome of retries."""

    def __init__(self, dead_letters: DLQProtocol, queue: TaskQueueProtocol) -> None:
        super().__init__(dead_letters, JOBS)
        self._queue = queue

    async def outcome(self, dead_letter: StoredDeadLetter) -> Outcome:
        """Return the outcome in the queue."""
        return await _outcome(self._queue, dead_letter)


class AddedJobSource:
    """Jobs added by ``add_failed_job``; only the worker stores them."""

    def __init__(self, queue: TaskQueueProtocol) -> None:
        self._queue = queue

    @property
    def name(self) -> str:
        """``added``."""
        return ADDED

    async def failures(self, limit: int, offset: int) -> Sequence[DeadLetter]:
        """Return nothing: jobs are added by ``add_failed_job``."""
        return []

    async def holds(self, dead_letter_id: str) -> bool:
        """Always True: added jobs are kept until they succeed or are removed."""
        return True

    async def retry(self, dead_letter: StoredDeadLetter) -> bool:
        """Retry the job under the same id; it is enqueued if the queue does not have it."""
        queue = self._queue
        known = await queue.get_job(dead_letter.id)
        if known is not None:
            if known.status not in (JobStatus.FAILED, JobStatus.CANCELLED):
                return True  # it is running or finished: see its outcome
            if isinstance(queue, JobControlProtocol):
                return await queue.retry_job(dead_letter.id)
            await queue.delete_job(dead_letter.id)
        job_data = await queue.enqueue({**dead_letter.payload, "id": dead_letter.id})
        if isinstance(job_data, Err):
            raise DLQError(
                f"the queue did not accept job {dead_letter.id!r}: {job_data.error.message}",
                details={"job_id": dead_letter.id},
                hint=job_data.error.hint,
                cause=job_data.error,
            )
        return True

    async def delete(self, dead_letter: StoredDeadLetter) -> None:
        """Do nothing: no other place has the job."""

    async def outcome(self, dead_letter: StoredDeadLetter) -> Outcome:
        """Return the outcome in the queue; a failure after a retry is always a new failure."""
        found = await _outcome(self._queue, dead_letter)
        if found.kind is not OutcomeKind.FAILED:
            return found
        # The clocks of worker and queue may differ: ensure that the failure is later.
        later = max(found.failed_at, dead_letter.last_failure + 1e-3)
        return Outcome(kind=found.kind, error=found.error, failed_at=later)


def job_of(job: JobProtocol | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the id of a job and its arguments for ``enqueue``; JobRefusedError if invalid."""
    from lexigram.tasks.dead_letters import retry_arguments
    from lexigram.tasks.intake import admitted

    arguments = retry_arguments(job)
    alias = arguments.pop("job_id", None)
    if given_id := arguments.get("id") or alias:
        arguments["id"] = str(given_id)
    job_id = admitted(arguments).job.id
    arguments.pop("id", None)
    return job_id, arguments


async def _outcome(queue: TaskQueueProtocol, dead_letter: StoredDeadLetter) -> Outcome:
    job = await queue.get_job(dead_letter.id)
    # A missing job was acknowledged: the queue keeps failed jobs.
    if job is None or job.status in (JobStatus.COMPLETED, JobStatus.CANCELLED):
        return Outcome(kind=OutcomeKind.SUCCEEDED)
    if job.status is not JobStatus.FAILED:
        return Outcome(kind=OutcomeKind.OPEN)
    ended = getattr(job, "completed_at", None)
    return Outcome(
        kind=OutcomeKind.FAILED,
        error=str(getattr(job, "last_error", "")),
        failed_at=clock.timestamp() if ended is None else ended.timestamp(),
    )

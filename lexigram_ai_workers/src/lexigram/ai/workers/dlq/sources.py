"""Where dead letters come from, and go back to: the job queue, the bus, and what users add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Protocol

from attrs import frozen

from lexigram import clock
from lexigram.ai.workers.dlq.letters import Letter
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
    """How a letter that was sent again fared."""

    OPEN = auto()  # not done yet
    SUCCEEDED = auto()
    FAILED = auto()
    UNKNOWN = auto()  # the source cannot tell


@frozen(kw_only=True)
class Outcome:
    """The same, with what is known of a failure."""

    kind: OutcomeKind
    error: str = ""
    failed_at: float = 0.0


class LetterSource(Protocol):
    """A place of dead letters."""

    @property
    def name(self) -> str:
        """Part of the key of its letters; at most 32 characters."""
        ...

    async def failures(self, limit: int, offset: int) -> Sequence[DeadLetter]:
        """What lies there, the latest failure first."""
        ...

    async def holds(self, letter_id: str) -> bool:
        """True while the letter lies there."""
        ...

    async def resend(self, letter: Letter) -> bool:
        """Let it be tried again; False when there is nothing left to try."""
        ...

    async def drop(self, letter: Letter) -> None:
        """Remove it for good."""
        ...

    async def outcome(self, letter: Letter) -> Outcome:
        """How it fared since it was sent again."""
        ...


class BusLetters:
    """Messages the bus set aside, or the letters of any other DLQProtocol.

    Nobody tells that a message was handled: it counts as done when it does not come back.
    """

    def __init__(self, letters: DLQProtocol, name: str = BUS) -> None:
        self._letters = letters
        self._name = name

    @property
    def name(self) -> str:
        """``bus``, unless named otherwise."""
        return self._name

    async def failures(self, limit: int, offset: int) -> Sequence[DeadLetter]:
        """What was set aside."""
        return await self._letters.list_failed(limit, offset)

    async def holds(self, letter_id: str) -> bool:
        """True while it is set aside."""
        return await self._letters.get(letter_id) is not None

    async def resend(self, letter: Letter) -> bool:
        """Send it where it came from."""
        return await self._letters.retry(letter.id)

    async def drop(self, letter: Letter) -> None:
        """Drop it for good."""
        await self._letters.purge(letter.id)

    async def outcome(self, letter: Letter) -> Outcome:
        """Not known."""
        return Outcome(kind=OutcomeKind.UNKNOWN)


class JobLetters(BusLetters):
    """Jobs that failed for good; the queue knows how each of them fares."""

    def __init__(self, letters: DLQProtocol, queue: TaskQueueProtocol) -> None:
        super().__init__(letters, JOBS)
        self._queue = queue

    async def outcome(self, letter: Letter) -> Outcome:
        """As the queue says."""
        return await _outcome(self._queue, letter)


class AddedJobs:
    """Jobs that a caller gave to the worker; they are kept nowhere else."""

    def __init__(self, queue: TaskQueueProtocol) -> None:
        self._queue = queue

    @property
    def name(self) -> str:
        """``added``."""
        return ADDED

    async def failures(self, limit: int, offset: int) -> Sequence[DeadLetter]:
        """None: they are told by ``add_failed_job``."""
        return []

    async def holds(self, letter_id: str) -> bool:
        """True: what was added stays until it succeeds or is removed."""
        return True

    async def resend(self, letter: Letter) -> bool:
        """Hand the job out again under its own id; a queue that forgot it gets it anew."""
        queue = self._queue
        known = await queue.get_job(letter.id)
        if known is not None:
            if known.status not in (JobStatus.FAILED, JobStatus.CANCELLED):
                return True  # it is under way, or done: its outcome will tell
            if isinstance(queue, JobControlProtocol):
                return await queue.retry_job(letter.id)
            await queue.delete_job(letter.id)
        told = await queue.enqueue({**letter.payload, "id": letter.id})
        if isinstance(told, Err):
            raise DLQError(
                f"the queue did not take job {letter.id!r} again: {told.error.message}",
                details={"job_id": letter.id},
                hint=told.error.hint,
                cause=told.error,
            )
        return True

    async def drop(self, letter: Letter) -> None:
        """Nothing else keeps it."""

    async def outcome(self, letter: Letter) -> Outcome:
        """As the queue says; a failure after the sending is always a new one."""
        found = await _outcome(self._queue, letter)
        if found.kind is not OutcomeKind.FAILED:
            return found
        # Added by our clock, failed by the queue's: make sure that it counts as later.
        later = max(found.failed_at, letter.last_failure + 1e-3)
        return Outcome(kind=found.kind, error=found.error, failed_at=later)


def job_of(job: JobProtocol | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The id of a job and what ``enqueue`` takes to make it; JobRefusedError when it is none."""
    from lexigram.tasks.intake import admitted, as_mapping

    told = job if isinstance(job, Mapping) else as_mapping(admitted(job).job)
    # A job that is sent again claims no key and waits for nobody.
    left_out = ("job_id", "idempotency_key", "depends_on", "delay", "scheduled_at")
    kept = {key: value for key, value in told.items() if key not in left_out}
    given = told.get("id") or told.get("job_id")
    if given:
        kept["id"] = str(given)
    return admitted(kept).job.id, {key: value for key, value in kept.items() if key != "id"}


async def _outcome(queue: TaskQueueProtocol, letter: Letter) -> Outcome:
    job = await queue.get_job(letter.id)
    # A queue that forgot it had it acknowledged: what fails is kept.
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

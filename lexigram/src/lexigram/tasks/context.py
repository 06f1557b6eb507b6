"""What a handler knows about the job it does: ``async def handler(job: JobContext)``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from lexigram.contracts.infra.tasks.protocols import ProgressTrackerProtocol
from lexigram.contracts.infra.tasks.types import Job


class JobContext:
    """The running job, for its handler and for whatever the handler calls."""

    def __init__(
        self,
        job: Job,
        *,
        attempt: int,
        heartbeat: Callable[[], Awaitable[bool]] | None = None,
        progress: ProgressTrackerProtocol | None = None,
    ) -> None:
        self.job = job
        # 1 for the first
        self.attempt = attempt
        self._heartbeat = heartbeat
        self._progress = progress
        # set by the worker when its cancellation was requested
        self.cancelled = False
        # whether there is progress to end
        self.has_reported = False

    async def progress(self, current: int, total: int, message: str = "") -> None:
        """Report how far the job is; readers of ``subscribe(job.id)`` see it.

        It never goes back: a second attempt that starts at 0 is seen when it is further.
        """
        self.has_reported = True
        if self._progress is not None:
            await self._progress.update(self.job.id, current, total, message)

    async def heartbeat(self) -> bool:
        """Keep the lease now; False when it is lost and the work counts nothing.

        The worker does this by itself. It is for handlers that block the event loop for long
        and must know, before a step that cannot be undone, that the job is still theirs.
        """
        return True if self._heartbeat is None else await self._heartbeat()


_current: ContextVar[JobContext | None] = ContextVar("lexigram_job", default=None)


def current_job() -> JobContext:
    """The job the calling code works for; LookupError outside of one."""
    context = _current.get(None)
    if context is None:
        raise LookupError("no job runs here; a JobContext is for handlers of jobs")
    return context


def ambient_job() -> JobContext | None:
    """The same, or None outside of one."""
    return _current.get(None)


def enter(context: JobContext) -> None:
    """Make it the job of this task and its children, for as long as the task lives."""
    _current.set(context)

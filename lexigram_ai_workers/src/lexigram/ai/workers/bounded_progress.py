"""Progress of the jobs of this process, for a bounded number of jobs."""

from __future__ import annotations

from collections import OrderedDict
from copy import copy
from typing import Generic, Protocol, TypeVar

MAX_JOBS = 1000


class _Status(Protocol):
    @property
    def is_final(self) -> bool: ...


class _Progress(Protocol):
    @property
    def status(self) -> _Status: ...


P = TypeVar("P", bound=_Progress)


class BoundedProgress(Generic[P]):
    """Keeps ``max_jobs`` entries; evicts finished jobs first, then the least recently updated."""

    def __init__(self, max_jobs: int = MAX_JOBS) -> None:
        self._max_jobs = max_jobs
        # In the order of updates: the first is the least recently updated.
        self._jobs: OrderedDict[str, P] = OrderedDict()

    async def get_progress(self, job_id: str) -> P | None:
        """Return a snapshot, or None for an unknown or evicted job."""
        progress = self._jobs.get(job_id)
        return None if progress is None else copy(progress)

    def _begin(self, job_id: str, progress: P) -> P:
        self._jobs[job_id] = progress
        self._jobs.move_to_end(job_id)
        while len(self._jobs) > self._max_jobs:
            self._evict(job_id)
        return copy(progress)

    def _touch(self, job_id: str) -> P | None:
        """Return the progress for an update, and mark it as recently used."""
        if job_id in self._jobs:
            self._jobs.move_to_end(job_id)
        return self._jobs.get(job_id)

    def _evict(self, newest: str) -> None:
        ended = (job_id for job_id, progress in self._jobs.items() if progress.status.is_final)
        others = (job_id for job_id in self._jobs if job_id != newest)
        del self._jobs[next(ended, None) or next(others)]

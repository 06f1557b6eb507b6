"""How far the jobs of this process are; bounded."""

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


class KeptProgress(Generic[P]):
    """Keeps at most ``max_jobs``: ended ones go first, then those not touched for longest."""

    def __init__(self, max_jobs: int = MAX_JOBS) -> None:
        self._max_jobs = max_jobs
        # By job, in the order of change: the first was touched longest ago.
        self._jobs: OrderedDict[str, P] = OrderedDict()

    async def get_progress(self, job_id: str) -> P | None:
        """A snapshot, or None when unknown or no longer kept."""
        known = self._jobs.get(job_id)
        return None if known is None else copy(known)

    def _begin(self, job_id: str, progress: P) -> P:
        self._jobs[job_id] = progress
        self._jobs.move_to_end(job_id)
        while len(self._jobs) > self._max_jobs:
            self._drop_one(job_id)
        return copy(progress)

    def _touched(self, job_id: str) -> P | None:
        """The progress itself, to be changed."""
        if job_id in self._jobs:
            self._jobs.move_to_end(job_id)
        return self._jobs.get(job_id)

    def _drop_one(self, newest: str) -> None:
        ended = (job_id for job_id, known in self._jobs.items() if known.status.is_final)
        others = (job_id for job_id in self._jobs if job_id != newest)
        del self._jobs[next(ended, None) or next(others)]

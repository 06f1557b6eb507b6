"""Lets a worker take jobs from a queue that has nothing but TaskQueueProtocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any, Literal

import anyio

from lexigram.contracts.infra.tasks.protocols import JobLeasingProtocol, TaskQueueProtocol
from lexigram.contracts.infra.tasks.types import ClaimedJob, EndKind, Job, JobEnd, LeaseState

_POLL_SECONDS = 0.1  # there is no notification of new jobs
_FIELDS = frozenset(item.name for item in fields(Job))


def leasing(queue: Any) -> JobLeasingProtocol:
    """The queue itself when it can lease, else a front that dequeues and acknowledges."""
    return queue if isinstance(queue, JobLeasingProtocol) else PlainLeasing(queue)


class PlainLeasing:
    """One job a time by ``dequeue``; the queue's own time limit is its lease.

    What the contract has no word for is not there: a retry comes at once instead of later, and
    results, cancel requests and lost leases are unknown.
    """

    def __init__(self, queue: TaskQueueProtocol) -> None:
        self._queue = queue
        self._claims = 0

    async def claim(
        self, holder: str, limit: int, queues: Sequence[str] = (), lease: float = 30.0
    ) -> Sequence[ClaimedJob]:
        claimed: list[ClaimedJob] = []
        while len(claimed) < limit and (task := await self._queue.dequeue()) is not None:
            self._claims += 1
            known = {name: getattr(task, name) for name in _FIELDS if hasattr(task, name)}
            job = task if isinstance(task, Job) else Job(**known)
            claimed.append(
                ClaimedJob(job=job, holder=holder, fence=self._claims, position=self._claims)
            )
        return claimed

    async def extend(self, claims: Sequence[ClaimedJob], lease: float) -> Sequence[LeaseState]:
        return [LeaseState.KEPT] * len(claims)

    async def finish(self, ends: Sequence[JobEnd]) -> Sequence[bool]:
        for end in ends:
            job_id = end.claim.job.id
            if end.kind in (EndKind.COMPLETED, EndKind.CANCELLED):
                await self._queue.ack(job_id)
            else:
                again = end.kind is not EndKind.FAILED
                await self._queue.nack(job_id, requeue=again)
        return [True] * len(ends)

    async def tend(self) -> float | None:
        return None

    @asynccontextmanager
    async def listening(self, to: Literal["work", "cancel", "done"]) -> AsyncIterator[_Poll]:
        yield _Poll()


class _Poll:
    async def wait(self, at_most: float | None = None) -> bool:
        limit = _POLL_SECONDS if at_most is None else min(_POLL_SECONDS, at_most)
        await anyio.sleep(limit)
        return False

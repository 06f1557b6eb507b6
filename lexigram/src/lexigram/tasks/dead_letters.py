"""Jobs that failed permanently, as dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lexigram import clock
from lexigram.contracts.infra.tasks.errors import JobRefusedError
from lexigram.contracts.infra.tasks.protocols import JobProtocol
from lexigram.contracts.infra.tasks.types import DeadLetter
from lexigram.serialization import dumps, loads
from lexigram.tasks.intake import admitted, as_mapping
from lexigram.tasks.queue import TaskQueue
from lexigram.tasks.store import Row, State, job_from

_DEAD = (State.FAILED,)
_FIRST_RUN_ONLY = frozenset({"idempotency_key", "depends_on", "delay", "scheduled_at"})


class JobDeadLetters:
    """Implements DLQProtocol: every FAILED job is a letter, and no letter is anything else.

    The payload is the job as ``enqueue`` takes it. ``retry`` hands the same job out again, with
    its id, in one step: there is no moment in which it is both or neither.
    """

    def __init__(self, queue: TaskQueue) -> None:
        self._store = queue.store

    async def add(
        self,
        message_id: str,
        payload: Any,
        reason: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep a job as failed; ``payload`` is a job or what ``enqueue`` takes."""
        if not isinstance(payload, Mapping | JobProtocol):
            raise JobRefusedError(
                f"a dead letter of jobs holds a job, not a {type(payload).__name__}",
                hint='give the mapping that was enqueued: {"name": …, "kwargs": {…}}',
            )
        job = admitted({**retry_arguments(payload), "id": message_id})
        notes = dumps(dict(metadata or {})).decode()
        error = str((metadata or {}).get("error", ""))
        await self._store.bury(job, reason[:255], error, notes)

    async def get(self, message_id: str) -> DeadLetter | None:
        """The letter, or None."""
        row = await self._store.get(message_id)
        return None if row is None or row["state"] != State.FAILED else _build_dead_letter(row)

    async def retry(self, message_id: str) -> bool:
        """Hand the job out again, all its attempts anew."""
        return await self._store.revive(message_id, _DEAD)

    async def purge(self, message_id: str) -> bool:
        """Forget the job."""
        return await self._store.delete(_DEAD, message_id) > 0

    async def clear(self) -> int:
        """Forget all failed jobs."""
        return await self._store.delete(_DEAD)

    async def size(self) -> int:
        """How many failed jobs there are."""
        return await self._store.count(None, _DEAD, None)

    async def list_failed(self, limit: int = 100, offset: int = 0) -> Sequence[DeadLetter]:
        """Dead letters, latest first."""
        rows = await self._store.find(
            queue=None, states=_DEAD, retried=None, name=None, limit=limit, offset=offset
        )
        return [_build_dead_letter(row) for row in rows]


def retry_arguments(job: JobProtocol | Mapping[str, Any]) -> dict[str, Any]:
    """What ``enqueue`` takes to run a job again: it claims no key and waits for nobody."""
    arguments = job if isinstance(job, Mapping) else as_mapping(admitted(job).job)
    return {key: value for key, value in arguments.items() if key not in _FIRST_RUN_ONLY}


def _build_dead_letter(row: Row) -> DeadLetter:
    job = job_from(row)
    notes: dict[str, Any] = loads(row["notes"].encode(), dict[str, Any]) if row["notes"] else {}
    if not notes:
        notes = {"error": row["error"], "lost": row["lost_count"]}
    return DeadLetter(
        message_id=job.id,
        payload=as_mapping(job),
        reason=job.reason,
        failed_at=job.completed_at or datetime.fromtimestamp(clock.timestamp(), UTC),
        attempts=job.retry_count + (0 if job.reason == "poison" else 1),
        metadata=notes,
    )

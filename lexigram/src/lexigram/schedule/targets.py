"""Start what a tick stands for, inside the tick's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexigram.contracts.core.result import Err, Result
from lexigram.contracts.data.outbox import OutboxProtocol
from lexigram.contracts.infra.schedule.errors import ScheduleTargetError
from lexigram.contracts.infra.schedule.types import JobTarget, MessageTarget, Schedule
from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.contracts.infra.tasks.protocols import JobControlProtocol, TaskQueueProtocol
from lexigram.contracts.queue.types import BusMessage
from lexigram.schedule.ticks import moment


class Targets:
    """The job queue and the outbox of the application, where it has them.

    What is written through them to the database of the schedules is committed with the tick. A
    queue elsewhere gets the job before the tick is committed: a crash in between gives it twice.
    """

    def __init__(
        self, queue: TaskQueueProtocol | None = None, outbox: OutboxProtocol | None = None
    ) -> None:
        self._queue = queue
        self._outbox = outbox

    def check(self, schedule: Schedule) -> None:
        """Raise ScheduleTargetError when nobody here takes what the schedule starts."""
        if isinstance(schedule.target, JobTarget):
            self._demand(schedule, self._queue, "jobs", "TasksModule.configure()")
        elif isinstance(schedule.target, MessageTarget):
            self._demand(schedule, self._outbox, "messages", "the module of an outbox")

    async def start(
        self, ticks: Sequence[tuple[Schedule, int]], *, manual: bool
    ) -> list[str | None]:
        """Enqueue jobs and stage messages; the id of each. Callbacks start by their record.

        The first that is refused raises: the transaction is then rolled back as a whole.
        """
        references: list[str | None] = [None] * len(ticks)
        jobs: list[tuple[int, Schedule, dict[str, Any]]] = []
        for index, (schedule, tick) in enumerate(ticks):
            self.check(schedule)
            if isinstance(schedule.target, JobTarget):
                jobs.append((index, schedule, _job(schedule.target, tick)))
            elif isinstance(schedule.target, MessageTarget):
                references[index] = await self._stage(schedule, schedule.target, tick, manual)
        answers = await self._enqueue([job for _, _, job in jobs])
        for (index, schedule, job), answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Err):
                raise ScheduleTargetError(
                    f"the queue did not take job {job['name']!r} of schedule {schedule.name!r}: "
                    f"{answer.error.message}",
                    details={"schedule": schedule.name, "job": job["name"]},
                    cause=answer.error,
                )
            references[index] = answer.unwrap()
        return references

    async def _enqueue(
        self, jobs: Sequence[dict[str, Any]]
    ) -> Sequence[Result[str, TaskQueueError]]:
        if not jobs:
            return []
        queue = self._queue
        assert queue is not None
        if isinstance(queue, JobControlProtocol):  # one statement instead of one each
            return await queue.enqueue_many(jobs)
        return [await queue.enqueue(job) for job in jobs]

    async def _stage(
        self, schedule: Schedule, target: MessageTarget, tick: int, manual: bool
    ) -> str:
        assert self._outbox is not None
        at = moment(tick).isoformat()
        message = BusMessage(
            # The same for the same tick, so that receivers can tell a duplicate.
            id=f"{schedule.name}@{at}{'+manual' if manual else ''}",
            topic=target.topic,
            payload=target.payload,
            headers={**target.headers, "schedule": schedule.name, "tick": at},
        )
        await self._outbox.stage(target.topic, message)
        return message.id

    def _demand(self, schedule: Schedule, part: object | None, what: str, module: str) -> None:
        if part is None:
            raise ScheduleTargetError(
                f"schedule {schedule.name!r} makes {what}, but this application has nothing "
                "that takes them",
                details={"schedule": schedule.name},
                hint=f"add {module} to the application, or let the schedule call a function",
            )


def _job(target: JobTarget, tick: int) -> dict[str, Any]:
    kwargs = dict(target.kwargs)
    if target.tick_argument is not None:
        kwargs[target.tick_argument] = moment(tick).isoformat()
    return {
        "name": target.name,
        "args": target.args,
        "kwargs": kwargs,
        "priority": target.priority,
    }

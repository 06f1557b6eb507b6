"""Urgent jobs first, then first in first out."""

from __future__ import annotations

from typing import Any

from lexigram.testing.conformance.tasks.spec import TaskQueueCapability, TaskQueueSpec, accepted


class OrderSpec(TaskQueueSpec, capability=TaskQueueCapability.ORDER):
    """The order of dequeue."""

    async def test_jobs_of_one_priority_come_in_the_order_of_arrival(self, subject: Any) -> None:
        ids = [await accepted(subject) for _ in range(5)]
        assert [(await subject.dequeue()).id for _ in ids] == ids

    async def test_higher_priority_comes_first(self, subject: Any) -> None:
        low = await accepted(subject, priority=-1)
        normal = await accepted(subject)
        high = await accepted(subject, priority=10)
        assert [(await subject.dequeue()).id for _ in range(3)] == [high, normal, low]

    async def test_a_job_given_back_comes_after_those_that_wait(self, subject: Any) -> None:
        first = await accepted(subject)
        second = await accepted(subject)
        await subject.dequeue()
        await subject.nack(first)
        assert [(await subject.dequeue()).id for _ in range(2)] == [second, first]

"""A job is handed out, with all it holds, until it is acknowledged."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.infra.tasks import Job, JobProtocol, JobStatus
from lexigram.testing.conformance.tasks.spec import TaskQueueCapability, TaskQueueSpec, accepted


class DeliverySpec(TaskQueueSpec, capability=TaskQueueCapability.DELIVERY):
    """enqueue, dequeue, ack, nack."""

    async def test_an_empty_queue_hands_out_nothing(self, subject: Any) -> None:
        assert await subject.dequeue() is None

    async def test_a_job_arrives_with_everything_it_was_given(self, subject: Any) -> None:
        data = {"text": "Ünïcödé ✓", "numbers": [1, 2.5, -3], "none": None, "deep": {"yes": True}}
        job_id = await accepted(
            subject,
            "mail",
            args=[1, "two"],
            kwargs={"data": data},
            priority=4,
            max_retries=7,
            timeout=2.5,
            correlation_id="c",
            causation_id="d",
        )
        job = await subject.dequeue()
        assert isinstance(job, JobProtocol)
        assert (job.id, job.name, job.args, dict(job.kwargs)) == (
            job_id,
            "mail",
            (1, "two"),
            {"data": data},
        )
        assert (job.priority, job.max_retries, job.timeout) == (4, 7, 2.5)
        assert (job.correlation_id, job.causation_id) == ("c", "d")

    async def test_the_defaults_of_a_mapping_are_those_of_a_job(self, subject: Any) -> None:
        await accepted(subject, "mail")
        job, plain = await subject.dequeue(), Job(name="mail")
        for field in ("args", "priority", "max_retries", "timeout"):
            assert getattr(job, field) == getattr(plain, field)

    async def test_a_job_object_keeps_its_id(self, subject: Any) -> None:
        assert (await subject.enqueue(Job(name="mail", id="mine"))).unwrap() == "mine"
        assert (await subject.dequeue()).id == "mine"

    async def test_any_object_with_the_fields_of_a_job_is_accepted(self, subject: Any) -> None:
        class Mine:
            id, name, args, kwargs, priority = "own", "mail", (1,), {"x": 2}, 3
            status, max_retries, timeout = JobStatus.PENDING, 1, None
            correlation_id, causation_id = None, None

        assert (await subject.enqueue(Mine())).unwrap() == "own"
        job = await subject.dequeue()
        assert (job.args, dict(job.kwargs), job.priority) == ((1,), {"x": 2}, 3)

    async def test_a_held_job_is_not_handed_out_again(self, subject: Any) -> None:
        await accepted(subject)
        assert await subject.dequeue() is not None
        assert await subject.dequeue() is None

    async def test_an_acknowledged_job_is_completed(self, subject: Any) -> None:
        job_id = await accepted(subject)
        await subject.dequeue()
        await subject.ack(job_id)
        assert (await subject.get_job(job_id)).status is JobStatus.COMPLETED
        assert await subject.dequeue() is None

    async def test_a_job_given_back_is_handed_out_again_under_its_id(self, subject: Any) -> None:
        job_id = await accepted(subject)
        await subject.dequeue()
        await subject.nack(job_id)
        assert (await subject.dequeue()).id == job_id

    async def test_a_job_given_up_has_failed(self, subject: Any) -> None:
        job_id = await accepted(subject)
        await subject.dequeue()
        await subject.nack(job_id, requeue=False)
        assert (await subject.get_job(job_id)).status is JobStatus.FAILED
        assert await subject.dequeue() is None

    async def test_settling_what_is_unknown_or_done_changes_nothing(self, subject: Any) -> None:
        await subject.ack("unknown")
        await subject.nack("unknown")
        job_id = await accepted(subject)
        await subject.dequeue()
        await subject.ack(job_id)
        await subject.nack(job_id)
        await subject.ack(job_id)
        assert (await subject.get_job(job_id)).status is JobStatus.COMPLETED

    async def test_a_snapshot_does_not_change_and_an_unknown_job_is_none(
        self, subject: Any
    ) -> None:
        job_id = await accepted(subject)
        before = await subject.get_job(job_id)
        await subject.dequeue()
        assert before.status is JobStatus.PENDING
        assert (await subject.get_job(job_id)).status is JobStatus.RUNNING
        assert await subject.get_job("unknown") is None

    async def test_what_the_caller_changes_afterwards_does_not_reach_the_queue(
        self, subject: Any
    ) -> None:
        kwargs = {"list": [1]}
        await accepted(subject, kwargs=kwargs)
        kwargs["list"].append(2)
        assert dict((await subject.dequeue()).kwargs) == {"list": [1]}

    async def test_closing_twice_is_closing_once(self, subject: Any) -> None:
        await subject.close()
        await subject.close()

"""How many jobs there are, and forgetting them."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.infra.tasks import JobStatus
from lexigram.testing.conformance.tasks.spec import TaskQueueCapability, TaskQueueSpec, accepted


class CountsSpec(TaskQueueSpec, capability=TaskQueueCapability.COUNTS):
    """count, get_task_count, delete_job, clear."""

    async def test_jobs_are_counted_by_status(self, subject: Any) -> None:
        done, failed, running, again, waiting = [await accepted(subject) for _ in range(5)]
        for _ in (done, failed, running, again):
            await subject.dequeue()
        await subject.ack(done)
        await subject.nack(failed, requeue=False)
        await subject.nack(again)
        counted = {status: await subject.count("default", status) for status in JobStatus}
        assert counted == {
            JobStatus.PENDING: 1,
            JobStatus.RUNNING: 1,
            JobStatus.COMPLETED: 1,
            JobStatus.FAILED: 1,
            JobStatus.RETRYING: 1,
            JobStatus.CANCELLED: 0,
        }
        assert await subject.count("default") == 5
        assert await subject.count("other") == 0
        assert await subject.get_task_count() == 2
        assert (await subject.get_job(waiting)).status is JobStatus.PENDING

    async def test_a_deleted_job_is_forgotten(self, subject: Any) -> None:
        job_id = await accepted(subject)
        assert await subject.delete_job(job_id) is True
        assert await subject.get_job(job_id) is None
        assert await subject.dequeue() is None
        assert await subject.delete_job(job_id) is False

    async def test_a_running_job_is_not_deleted(self, subject: Any) -> None:
        job_id = await accepted(subject)
        await subject.dequeue()
        assert await subject.delete_job(job_id) is False
        await subject.ack(job_id)
        assert await subject.delete_job(job_id) is True

    async def test_clear_forgets_what_waits_and_leaves_what_runs(self, subject: Any) -> None:
        running = await accepted(subject)
        await accepted(subject)
        await subject.dequeue()
        await subject.clear()
        assert await subject.get_task_count() == 0
        await subject.ack(running)
        assert (await subject.get_job(running)).status is JobStatus.COMPLETED

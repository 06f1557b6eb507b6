"""Results, cancelling, lists, another try, and forgetting what is old."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.infra.tasks import (
    EndKind,
    JobControlProtocol,
    JobStatus,
    LeaseState,
    UnknownJobError,
)
from lexigram.testing.conformance.tasks.spec import (
    HANG_GUARD_SECONDS,
    LONG_LEASE,
    SHORT_LEASE,
    TaskQueueCapability,
    TaskQueueSpec,
    accepted,
    claimed,
    ended,
    until,
)


class ControlSpec(TaskQueueSpec, capability=TaskQueueCapability.CONTROL):
    """JobControlProtocol; the suite claims jobs, so it needs LEASING too."""

    async def test_it_satisfies_the_control_contract(self, subject: Any) -> None:
        assert isinstance(subject, JobControlProtocol)

    async def test_many_are_accepted_in_order_and_bad_ones_are_refused_alone(
        self, subject: Any
    ) -> None:
        tasks: list[Any] = [{"name": "a"}, {"name": ""}, {"name": "b"}]
        answers = await subject.enqueue_many(tasks)
        assert [type(answer) for answer in answers] == [Ok, Err, Ok]
        assert [c.job.name for c in await claimed(subject)] == ["a", "b"]
        assert list(await subject.enqueue_many([])) == []

    async def test_a_result_is_kept(self, subject: Any) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(subject)
        value = {"list": [1, "zwei", None], "deep": {"ok": True}}
        await ended(subject, claim, EndKind.COMPLETED, value=value)
        result = await subject.get_result(job_id)
        assert (result.job_id, result.status, result.value) == (
            job_id,
            JobStatus.COMPLETED,
            value,
        )
        assert await subject.get_result("unknown") is None

    async def test_a_result_is_gone_after_its_time(self, subject: Any) -> None:
        job_id = await accepted(subject, result_ttl=SHORT_LEASE)
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.COMPLETED, value="short")

        async def is_gone() -> bool:
            return (await subject.get_result(job_id)).value is None

        await until(is_gone)
        assert (await subject.get_result(job_id)).status is JobStatus.COMPLETED

    async def test_a_result_without_a_form_fails_the_job_and_says_so(self, subject: Any) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(subject)
        assert await ended(subject, claim, EndKind.COMPLETED, value=object())
        result = await subject.get_result(job_id)
        assert result.status is JobStatus.FAILED
        assert "result" in result.error

    async def test_a_failure_tells_its_error(self, subject: Any) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.FAILED, error="ValueError: no", reason="exhausted")
        result = await subject.get_result(job_id)
        assert (result.status, result.error, result.reason) == (
            JobStatus.FAILED,
            "ValueError: no",
            "exhausted",
        )

    async def test_waiting_ends_when_the_job_does(self, subject: Any) -> None:
        job_id = await accepted(subject)
        results: list[Any] = []

        async def wait() -> None:
            results.append(await subject.wait(job_id))

        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                [claim] = await claimed(subject)
                await ended(subject, claim, EndKind.COMPLETED, value=7)
        assert results[0].value == 7

    async def test_waiting_for_an_unknown_job_or_too_long_raises(self, subject: Any) -> None:
        with pytest.raises(UnknownJobError):
            await subject.wait("unknown")
        job_id = await accepted(subject)
        with pytest.raises(TimeoutError):
            await subject.wait(job_id, timeout=0.01)

    async def test_a_waiting_job_is_cancelled_at_once(self, subject: Any) -> None:
        job_id = await accepted(subject)
        later = await accepted(subject, delay=3600)
        for name in (job_id, later):
            assert await subject.cancel(name) is True
            assert (await subject.get_job(name)).status is JobStatus.CANCELLED
            assert await subject.cancel(name) is False
        assert list(await claimed(subject)) == []
        assert await subject.cancel("unknown") is False

    async def test_the_holder_of_a_running_job_learns_that_it_is_to_stop(
        self, subject: Any
    ) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(subject)
        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with subject.listening("cancel") as news:
                assert await subject.cancel(job_id) is True
                while not await news.wait():
                    pass
        assert list(await subject.extend([claim], LONG_LEASE)) == [LeaseState.CANCEL_REQUESTED]
        assert (await subject.get_job(job_id)).cancel_requested
        await ended(subject, claim, EndKind.CANCELLED)
        assert (await subject.get_job(job_id)).status is JobStatus.CANCELLED

    async def test_a_cancelled_job_is_not_tried_again(self, subject: Any) -> None:
        for kind in (EndKind.RETRY, EndKind.RELEASED):
            job_id = await accepted(subject)
            [claim] = await claimed(subject)
            await subject.cancel(job_id)
            assert await ended(subject, claim, kind, delay=0.0)
            assert (await subject.get_job(job_id)).status is JobStatus.CANCELLED
        job_id = await accepted(subject)
        await claimed(subject, lease=SHORT_LEASE)
        await subject.cancel(job_id)

        async def has_ended() -> bool:
            await subject.tend()
            return (await subject.get_job(job_id)).status is JobStatus.CANCELLED

        await until(has_ended)

    async def test_a_job_that_completes_in_spite_of_it_is_completed(self, subject: Any) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(subject)
        await subject.cancel(job_id)
        assert await ended(subject, claim, EndKind.COMPLETED, value=1)
        assert (await subject.get_result(job_id)).value == 1

    async def test_lists_are_filtered_and_come_latest_first(self, subject: Any) -> None:
        ids = [await accepted(subject, f"n{i % 2}", queue=f"q{i % 2}") for i in range(4)]
        [claim] = await claimed(subject, 1)
        await ended(subject, claim, EndKind.COMPLETED)

        async def listed(**such: Any) -> list[str]:
            return [job.id for job in await subject.list_jobs(**such)]

        assert await listed() == ids[::-1]
        assert await listed(limit=2, offset=1) == [ids[2], ids[1]]
        assert await listed(queue_name="q1") == [ids[3], ids[1]]
        assert await listed(name="n0") == [ids[2], ids[0]]
        assert await listed(status=JobStatus.COMPLETED) == [ids[0]]
        assert await listed(status=JobStatus.PENDING) == [ids[3], ids[2], ids[1]]

    async def test_a_failed_or_cancelled_job_can_be_tried_again_from_the_start(
        self, subject: Any
    ) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(subject)
        assert await subject.retry_job(job_id) is False
        await ended(subject, claim, EndKind.RETRY)
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.FAILED, error="no")
        assert await subject.retry_job(job_id) is True
        [claim] = await claimed(subject)
        assert (claim.job.id, claim.job.retry_count, claim.job.last_error) == (job_id, 0, "")
        await ended(subject, claim, EndKind.COMPLETED)
        assert await subject.retry_job(job_id) is False
        cancelled = await accepted(subject)
        await subject.cancel(cancelled)
        assert await subject.retry_job(cancelled) is True
        [claim] = await claimed(subject)
        assert not claim.job.cancel_requested

    async def test_old_jobs_are_forgotten_failed_and_unfinished_ones_stay(
        self, subject: Any
    ) -> None:
        done, failed, cancelled = [await accepted(subject) for _ in range(3)]
        first, second = await claimed(subject, 2)
        await ended(subject, first, EndKind.COMPLETED)
        await ended(subject, second, EndKind.FAILED)
        await subject.cancel(cancelled)
        waiting = await accepted(subject)
        assert await subject.purge(3600) == 0
        assert await subject.purge(0) == 2
        left = [job.id for job in await subject.list_jobs()]
        assert left == [waiting, failed]
        assert await subject.get_result(done) is None

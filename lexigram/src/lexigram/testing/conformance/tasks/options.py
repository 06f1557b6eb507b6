"""Times, keys and dependencies of jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from lexigram.contracts.core.result import Err
from lexigram.contracts.infra.tasks import EndKind, JobNotUniqueError, JobStatus, UnknownJobError
from lexigram.testing.conformance.tasks.spec import (
    HANG_GUARD_SECONDS,
    TaskQueueCapability,
    TaskQueueSpec,
    accepted,
    claimed,
    ended,
    until,
)


class TimeSpec(TaskQueueSpec, capability=TaskQueueCapability.TIME):
    """delay and scheduled_at; needs LEASING."""

    async def test_a_job_of_later_is_not_handed_out_now(self, subject: Any) -> None:
        await accepted(subject, delay=3600)
        await accepted(subject, scheduled_at=datetime.now(UTC) + timedelta(hours=1))
        next_due = await subject.tend()
        assert list(await claimed(subject)) == []
        assert 3500 < next_due <= 3600
        assert await subject.get_task_count() == 2

    async def test_it_is_handed_out_when_its_time_has_come(self, subject: Any) -> None:
        delayed = await accepted(subject, delay=0.05)
        scheduled = await accepted(subject, scheduled_at=datetime.now(UTC) + timedelta(seconds=0.1))
        found: list[str] = []

        async def both() -> bool:
            await subject.tend()
            found.extend(claim.job.id for claim in await claimed(subject))
            return len(found) == 2

        await until(both)
        assert sorted(found) == sorted([delayed, scheduled])

    async def test_a_time_in_the_past_is_now(self, subject: Any) -> None:
        job_id = await accepted(subject, scheduled_at=datetime(2001, 1, 1, tzinfo=UTC))
        assert [claim.job.id for claim in await claimed(subject)] == [job_id]

    async def test_bad_times_are_refused(self, subject: Any) -> None:
        for wrong in (
            {"delay": -1},
            {"delay": float("inf")},
            {"delay": 1, "scheduled_at": datetime.now(UTC)},
            {"scheduled_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - that is the point
        ):
            assert isinstance(await subject.enqueue({"name": "x", **wrong}), Err)

    async def test_a_retry_waits_for_its_delay(self, subject: Any) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.RETRY, delay=3600.0)
        await subject.tend()
        assert list(await claimed(subject)) == []
        assert (await subject.get_job(job_id)).status is JobStatus.RETRYING


class UniquenessSpec(TaskQueueSpec, capability=TaskQueueCapability.UNIQUENESS):
    """unique_key; needs LEASING."""

    async def test_a_second_job_of_a_key_is_refused_while_the_first_waits_or_runs(
        self, subject: Any
    ) -> None:
        first = await accepted(subject, unique_key="k")
        for _ in range(2):
            answer = await subject.enqueue({"name": "x", "unique_key": "k"})
            error = answer.unwrap_err()
            assert isinstance(error, JobNotUniqueError)
            assert error.job_id == first
            await claimed(subject)
        await accepted(subject, unique_key="other")

    async def test_the_key_is_free_after_the_end_however_it_ended(self, subject: Any) -> None:
        for kind in (EndKind.COMPLETED, EndKind.FAILED, EndKind.CANCELLED):
            await accepted(subject, unique_key="k")
            [claim] = await claimed(subject)
            await ended(subject, claim, kind)
        await accepted(subject, unique_key="k")

    async def test_the_key_stays_taken_over_a_retry(self, subject: Any) -> None:
        await accepted(subject, unique_key="k")
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.RETRY, delay=60.0)
        assert isinstance(await subject.enqueue({"name": "x", "unique_key": "k"}), Err)

    async def test_one_of_many_at_once_wins(self, subject: Any) -> None:
        answers: list[Any] = []

        async def submit() -> None:
            answers.append(await subject.enqueue({"name": "x", "unique_key": "k"}))

        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(submit)
        assert sum(answer.is_ok() for answer in answers) == 1
        assert await subject.get_task_count() == 1

    async def test_a_failed_job_is_not_retried_over_one_that_took_its_key(
        self, subject: Any
    ) -> None:
        first = await accepted(subject, unique_key="k")
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.FAILED)
        await accepted(subject, unique_key="k")
        assert await subject.retry_job(first) is False


class IdempotencySpec(TaskQueueSpec, capability=TaskQueueCapability.IDEMPOTENCY):
    """idempotency_key; needs LEASING."""

    async def test_a_second_submission_is_the_first_job(self, subject: Any) -> None:
        first = await accepted(subject, idempotency_key="k", kwargs={"n": 1})
        assert await accepted(subject, idempotency_key="k", kwargs={"n": 2}) == first
        [claim] = await claimed(subject)
        assert dict(claim.job.kwargs) == {"n": 1}
        await ended(subject, claim, EndKind.COMPLETED, value="kept")
        again = await accepted(subject, idempotency_key="k")
        assert (await subject.get_result(again)).value == "kept"
        assert list(await claimed(subject)) == []

    async def test_many_at_once_are_one_job(self, subject: Any) -> None:
        ids: list[str] = []

        async def submit() -> None:
            ids.append(await accepted(subject, idempotency_key="k"))

        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(submit)
        assert len(ids) == 10
        assert len(set(ids)) == 1


class DependenciesSpec(TaskQueueSpec, capability=TaskQueueCapability.DEPENDENCIES):
    """depends_on; needs LEASING and CONTROL."""

    async def test_a_job_waits_for_all_it_depends_on(self, subject: Any) -> None:
        first, second = await accepted(subject), await accepted(subject)
        last = await accepted(subject, depends_on=[first, second])
        one, two = await claimed(subject)
        await ended(subject, one, EndKind.COMPLETED)
        assert list(await claimed(subject)) == []
        assert (await subject.get_job(last)).depends_on == (first, second)
        await ended(subject, two, EndKind.COMPLETED)
        assert [claim.job.id for claim in await claimed(subject)] == [last]

    async def test_a_dependency_that_completed_before_is_no_reason_to_wait(
        self, subject: Any
    ) -> None:
        first = await accepted(subject)
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.COMPLETED)
        last = await accepted(subject, depends_on=[first])
        assert [claim.job.id for claim in await claimed(subject)] == [last]

    async def test_a_failure_cancels_those_that_wait_and_those_that_wait_for_them(
        self, subject: Any
    ) -> None:
        first = await accepted(subject)
        second = await accepted(subject, depends_on=[first])
        third = await accepted(subject, depends_on=[second])
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.FAILED)
        for name in (second, third):
            job = await subject.get_job(name)
            assert (job.status, job.reason) == (JobStatus.CANCELLED, "dependency")
        late = await accepted(subject, depends_on=[first])
        assert (await subject.get_job(late)).status is JobStatus.CANCELLED

    async def test_a_job_may_run_in_spite_of_a_failure(self, subject: Any) -> None:
        first = await accepted(subject)
        last = await accepted(subject, depends_on=[first], on_dependency_failure="run")
        await subject.cancel(first)
        assert [claim.job.id for claim in await claimed(subject)] == [last]
        late = await accepted(subject, depends_on=[first], on_dependency_failure="run")
        assert [claim.job.id for claim in await claimed(subject)] == [late]

    async def test_a_retry_of_the_dependency_keeps_them_waiting(self, subject: Any) -> None:
        first = await accepted(subject)
        last = await accepted(subject, depends_on=[first])
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.RETRY)
        [claim] = await claimed(subject)
        assert claim.job.id == first
        await ended(subject, claim, EndKind.COMPLETED)
        assert [claim.job.id for claim in await claimed(subject)] == [last]

    async def test_deleting_a_dependency_counts_as_its_cancellation(self, subject: Any) -> None:
        first = await accepted(subject)
        last = await accepted(subject, depends_on=[first])
        assert await subject.delete_job(first)
        assert (await subject.get_job(last)).status is JobStatus.CANCELLED

    async def test_a_waiting_job_can_be_cancelled(self, subject: Any) -> None:
        first = await accepted(subject)
        last = await accepted(subject, depends_on=[first])
        assert await subject.cancel(last)
        [claim] = await claimed(subject)
        await ended(subject, claim, EndKind.COMPLETED)
        assert list(await claimed(subject)) == []

    async def test_unknown_dependencies_and_circles_are_refused(self, subject: Any) -> None:
        answer = await subject.enqueue({"name": "x", "depends_on": ["unknown"]})
        assert isinstance(answer.unwrap_err(), UnknownJobError)
        assert isinstance(
            await subject.enqueue({"name": "x", "id": "me", "depends_on": ["me"]}), Err
        )
        answers = await subject.enqueue_many(
            [
                {"name": "x", "id": "a", "depends_on": ["b"]},
                {"name": "x", "id": "b", "depends_on": ["a"]},
                {"name": "x", "id": "c"},
                {"name": "x", "id": "d", "depends_on": ["c"]},
            ]
        )
        assert [answer.is_ok() for answer in answers] == [False, False, True, True]

    async def test_jobs_that_end_at_once_let_those_that_wait_for_all_go_once(
        self, subject: Any
    ) -> None:
        ids = [await accepted(subject) for _ in range(8)]
        last = await accepted(subject, depends_on=ids)
        claims = await claimed(subject)
        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with anyio.create_task_group() as tasks:
                for claim in claims:
                    tasks.start_soon(ended, subject, claim, EndKind.COMPLETED)
        assert [claim.job.id for claim in await claimed(subject)] == [last]


class SharingSpec(TaskQueueSpec, capability=TaskQueueCapability.SHARING):
    """Two objects on one store, as two processes have them; needs LEASING and CONTROL."""

    async def test_one_accepts_and_the_other_hands_out(self, subject: Any, neighbour: Any) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(neighbour)
        assert claim.job.id == job_id
        assert list(await claimed(subject)) == []
        await ended(neighbour, claim, EndKind.COMPLETED, value=3)
        assert (await subject.wait(job_id, HANG_GUARD_SECONDS)).value == 3

    async def test_claims_of_both_never_overlap(self, subject: Any, neighbour: Any) -> None:
        ids = [await accepted(subject) for _ in range(40)]
        taken: list[str] = []

        async def take(queue: Any, holder: str) -> None:
            while found := await claimed(queue, 2, holder=holder):
                taken.extend(claim.job.id for claim in found)

        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(take, (subject, neighbour)[number % 2], f"h{number}")
        assert sorted(taken) == sorted(ids)

    async def test_a_running_job_is_cancelled_from_the_other_side(
        self, subject: Any, neighbour: Any
    ) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(neighbour)
        assert await subject.cancel(job_id)
        [state] = await neighbour.extend([claim], 60.0)
        assert state == "cancel_requested"

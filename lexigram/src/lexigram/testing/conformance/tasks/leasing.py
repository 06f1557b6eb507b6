"""Many jobs at a time under leases that can be lost, and fences that hold then."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio

from lexigram.contracts.infra.tasks import (
    ClaimedJob,
    EndKind,
    JobEnd,
    JobLeasingProtocol,
    JobStatus,
    LeaseState,
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


class LeasingSpec(TaskQueueSpec, capability=TaskQueueCapability.LEASING):
    """JobLeasingProtocol."""

    async def test_it_satisfies_the_leasing_contract(self, subject: Any) -> None:
        assert isinstance(subject, JobLeasingProtocol)

    async def test_a_claim_gives_no_more_than_asked_in_order(self, subject: Any) -> None:
        ids = [await accepted(subject, priority=p) for p in (0, 5, 0)]
        assert [c.job.id for c in await claimed(subject, 2)] == [ids[1], ids[0]]
        assert [c.job.id for c in await claimed(subject, 2)] == [ids[2]]
        assert list(await claimed(subject, 2)) == []

    async def test_claims_of_named_queues_leave_the_others(self, subject: Any) -> None:
        mail = await accepted(subject, queue="mail")
        await accepted(subject, queue="reports")
        assert [c.job.id for c in await claimed(subject, queues=["mail", "nothing"])] == [mail]
        assert len(await claimed(subject)) == 1

    async def test_no_queue_starves_while_another_is_full(self, subject: Any) -> None:
        for name in ("a", "b"):
            for _ in range(6):
                await accepted(subject, queue=name, priority=9 if name == "a" else 0)
        taken = Counter[str]()
        for _ in range(4):
            for claim in await claimed(subject, 1, queues=["a", "b"]):
                taken[claim.job.queue] += 1
        assert set(taken) == {"a", "b"}

    async def test_concurrent_claims_never_get_one_job_twice(self, subject: Any) -> None:
        ids = {await accepted(subject) for _ in range(60)}
        taken: list[str] = []

        async def take(holder: str) -> None:
            while found := await claimed(subject, 3, holder=holder):
                taken.extend(claim.job.id for claim in found)

        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with anyio.create_task_group() as tasks:
                for number in range(6):
                    tasks.start_soon(take, f"holder-{number}")
        assert sorted(taken) == sorted(ids)

    async def test_ends_are_written(self, subject: Any) -> None:
        ids = [await accepted(subject) for _ in range(5)]
        claims = await claimed(subject)
        kinds = list(EndKind)
        ends = [
            JobEnd(claim=claim, kind=kind, error="e")
            for claim, kind in zip(claims, kinds, strict=True)
        ]
        assert list(await subject.finish(ends)) == [True] * 5
        found = {
            kind: (await subject.get_job(job_id)) for kind, job_id in zip(kinds, ids, strict=True)
        }
        assert {kind: job.status for kind, job in found.items()} == {
            EndKind.COMPLETED: JobStatus.COMPLETED,
            EndKind.RETRY: JobStatus.RETRYING,
            EndKind.FAILED: JobStatus.FAILED,
            EndKind.CANCELLED: JobStatus.CANCELLED,
            EndKind.RELEASED: JobStatus.PENDING,
        }
        assert found[EndKind.RETRY].retry_count == 1
        assert found[EndKind.RELEASED].retry_count == 0

    async def test_a_second_end_does_not_count(self, subject: Any) -> None:
        job_id = await accepted(subject)
        [claim] = await claimed(subject)
        assert await ended(subject, claim, EndKind.COMPLETED)
        assert not await ended(subject, claim, EndKind.FAILED)
        assert (await subject.get_job(job_id)).status is JobStatus.COMPLETED

    async def test_a_lease_that_is_over_lets_the_job_go(self, subject: Any) -> None:
        job_id = await accepted(subject)
        [lost] = await claimed(subject, lease=SHORT_LEASE)
        [again] = await until(lambda: _tend_and_claim(subject))
        assert again.job.id == job_id
        assert again.job.lost_count == 1
        assert again.job.retry_count == 0
        assert list(await subject.extend([lost, again], LONG_LEASE)) == [
            LeaseState.LOST,
            LeaseState.KEPT,
        ]

    async def test_what_the_holder_of_a_lost_lease_reports_changes_nothing(
        self, subject: Any
    ) -> None:
        job_id = await accepted(subject)
        [lost] = await claimed(subject, lease=SHORT_LEASE)
        # The same holder again: the leases must differ all the same.
        [again] = await until(lambda: _tend_and_claim(subject))
        for kind in EndKind:
            assert not await ended(subject, lost, kind, error="stale")
        assert (await subject.get_job(job_id)).status is JobStatus.RUNNING
        assert await ended(subject, again, EndKind.COMPLETED)

    async def test_an_extended_lease_is_kept(self, subject: Any) -> None:
        await accepted(subject)
        [claim] = await claimed(subject, lease=5.0)
        assert list(await subject.extend([claim], LONG_LEASE)) == [LeaseState.KEPT]
        await subject.tend()
        assert list(await claimed(subject)) == []
        assert list(await subject.extend([], LONG_LEASE)) == []

    async def test_a_job_whose_workers_always_die_is_poison(self, subject: Any) -> None:
        job_id = await accepted(subject, max_deliveries=2, max_retries=0)
        for _ in range(2):
            await until(lambda: _tend_and_claim(subject, SHORT_LEASE))

        async def has_ended() -> bool:
            await subject.tend()
            return bool((await subject.get_job(job_id)).status.is_final)

        await until(has_ended)
        job = await subject.get_job(job_id)
        assert (job.status, job.reason, job.lost_count) == (JobStatus.FAILED, "poison", 2)

    async def test_a_released_job_uses_nothing_up(self, subject: Any) -> None:
        await accepted(subject, max_deliveries=1, max_retries=0)
        for _ in range(3):
            [claim] = await claimed(subject)
            assert await ended(subject, claim, EndKind.RELEASED)
        [claim] = await claimed(subject)
        assert (claim.job.retry_count, claim.job.lost_count) == (0, 0)

    async def test_listeners_are_woken_by_work_and_by_ends(self, subject: Any) -> None:
        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with subject.listening("work") as work, subject.listening("done") as done:
                await accepted(subject)
                await _wait_for_news(work)
                [claim] = await claimed(subject)
                await ended(subject, claim, EndKind.COMPLETED)
                await _wait_for_news(done)


async def _tend_and_claim(subject: Any, lease: float = LONG_LEASE) -> list[ClaimedJob]:
    await subject.tend()
    return list(await claimed(subject, lease=lease))


async def _wait_for_news(news: Any) -> None:
    while not await news.wait():
        pass

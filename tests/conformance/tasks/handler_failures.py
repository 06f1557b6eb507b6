"""What handlers of jobs do wrong, on every queue: a mixin for the suites."""

import anyio.lowlevel
from tests.failures import (
    FAILURES,
    TIME_LIMIT,
    block_the_loop,
    cancel_its_own_task,
    never_return,
)

from lexigram.contracts.infra.tasks import JobStatus
from lexigram.tasks import JobRetry, PoolSettings, TaskWorker, job

GUARD = 60.0  # seconds, against a hang
WAYS = {**FAILURES, "never_return": never_return, "cancel_its_own_task": cancel_its_own_task}


class HandlerFailures:
    """Jobs that fail in every way, beside jobs that do not."""

    async def test_jobs_that_fail_in_any_way_are_tried_again_then_failed_and_others_are_done(
        self, subject
    ):
        attempts = []

        @job("bad", retry=JobRetry(base_delay=0.0))
        async def bad(way):
            attempts.append(way)
            await WAYS[way]()

        async def good():
            return "done"

        settings = {"name": "bad", "max_retries": 1}
        failing = []
        for way in WAYS:
            limit = TIME_LIMIT if way == "never_return" else None
            given = {**settings, "args": (way,), "timeout": limit}
            failing.append((await subject.enqueue(given)).unwrap())
        fine = (await subject.enqueue({"name": "good"})).unwrap()
        worker = TaskWorker("w", subject, {"bad": bad, "good": good}, PoolSettings(concurrency=2))
        await worker.start()
        try:
            ended = [await subject.wait(one, GUARD) for one in failing]
            assert (await subject.wait(fine, GUARD)).value == "done"
            assert worker.is_alive
        finally:
            await worker.stop()
        assert [(one.status, one.reason) for one in ended] == [
            (JobStatus.FAILED, "exhausted")
        ] * len(WAYS)
        assert sorted(attempts) == sorted([*WAYS, *WAYS])

    async def test_a_job_that_blocks_the_loop_past_its_lease_is_done_and_so_are_others(
        self, subject
    ):
        lease, done = 0.2, []

        async def block(number):
            await anyio.lowlevel.checkpoint()
            block_the_loop(lease)
            done.append(number)

        given = [
            (await subject.enqueue({"name": "block", "args": (number,)})).unwrap()
            for number in range(2)
        ]
        settings = PoolSettings(concurrency=2, lease=lease)
        worker = TaskWorker("w", subject, {"block": block}, settings)
        await worker.start()
        try:
            ended = [await subject.wait(one, GUARD) for one in given]
            assert worker.is_alive
        finally:
            await worker.stop()
        assert [one.status for one in ended] == [JobStatus.COMPLETED] * 2
        assert set(done) == {0, 1}

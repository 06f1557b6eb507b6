"""What a tracker of progress promises."""

from __future__ import annotations

from typing import Any

import anyio

from lexigram.contracts.infra.tasks import (
    ProgressSnapshot,
    ProgressStatus,
    ProgressTrackerProtocol,
)
from lexigram.testing.conformance.suite import ConformanceSuite
from lexigram.testing.conformance.tasks.spec import HANG_GUARD_SECONDS


class ProgressConformance(ConformanceSuite):
    """Run it on a tracker: ``conformance_suite(ProgressConformance, MyTracker)``."""

    contract = ProgressTrackerProtocol

    async def test_the_latest_report_is_known(self, subject: Any) -> None:
        assert await subject.get("t") is None
        await subject.update("t", 1, 4, "first")
        await subject.update("t", 2, 4, "second")
        snapshot = await subject.get("t")
        assert snapshot == ProgressSnapshot("t", 2, 4, ProgressStatus.RUNNING, "second")
        assert snapshot.percent == 50.0

    async def test_progress_never_goes_back(self, subject: Any) -> None:
        await subject.update("t", 3, 4)
        await subject.update("t", 1, 4)
        assert (await subject.get("t")).current == 3
        await subject.update("t", 3, 5, "more to do")
        assert (await subject.get("t")).total == 5

    async def test_only_the_first_end_counts_and_nothing_changes_after_it(
        self, subject: Any
    ) -> None:
        await subject.update("good", 1, 2)
        await subject.complete("good", "done")
        await subject.fail("good", "no")
        await subject.update("good", 2, 2)
        good = await subject.get("good")
        assert (good.status, good.message, good.current) == (ProgressStatus.COMPLETE, "done", 1)
        assert good.percent == 100.0
        await subject.fail("bad", "no")
        await subject.complete("bad")
        bad = await subject.get("bad")
        assert (bad.status, bad.error) == (ProgressStatus.FAILED, "no")

    async def test_tasks_do_not_mix(self, subject: Any) -> None:
        await subject.update("a", 1, 2)
        await subject.update("b", 2, 2)
        assert (await subject.get("a")).current == 1

    async def test_a_reader_sees_progress_grow_and_the_end(self, subject: Any) -> None:
        seen: list[ProgressSnapshot] = []
        began = anyio.Event()

        async def read() -> None:
            async for snapshot in subject.subscribe("t"):
                seen.append(snapshot)
                began.set()

        await subject.update("t", 0, 50)
        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await began.wait()
                for number in range(1, 51):
                    await subject.update("t", number, 50)
                await subject.complete("t", "all")
        currents = [snapshot.current for snapshot in seen]
        assert currents == sorted(currents)
        assert (seen[-1].status, seen[-1].message) == (ProgressStatus.COMPLETE, "all")

    async def test_a_reader_that_comes_late_sees_the_end_at_once(self, subject: Any) -> None:
        await subject.fail("t", "no")
        with anyio.fail_after(HANG_GUARD_SECONDS):
            seen = [snapshot async for snapshot in subject.subscribe("t")]
        assert [snapshot.status for snapshot in seen] == [ProgressStatus.FAILED]

    async def test_a_reader_may_come_before_the_first_report(self, subject: Any) -> None:
        seen: list[ProgressSnapshot] = []

        async def read() -> None:
            seen.extend([snapshot async for snapshot in subject.subscribe("t")])

        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(read)
                await anyio.lowlevel.checkpoint()
                await subject.complete("t")
        assert [snapshot.status for snapshot in seen] == [ProgressStatus.COMPLETE] * 3

    async def test_a_slow_reader_never_misses_the_end(self, subject: Any) -> None:
        await subject.update("t", 0, 9)
        with anyio.fail_after(HANG_GUARD_SECONDS):
            reader = subject.subscribe("t")
            first = await anext(reader)
            for number in range(1, 10):
                await subject.update("t", number, 9)
            await subject.fail("t", "late")
            rest = [snapshot async for snapshot in reader]
        assert first.current == 0
        assert rest[-1].status is ProgressStatus.FAILED

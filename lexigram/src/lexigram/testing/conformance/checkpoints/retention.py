"""Forgetting."""

from __future__ import annotations

from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol, GraphRunStatus
from lexigram.testing.conformance.checkpoints.spec import (
    CheckpointCapability,
    CheckpointSpec,
    a_checkpoint,
    a_run,
    kept,
    numbers,
)


class RetentionSpec(CheckpointSpec, capability=CheckpointCapability.RETENTION):
    """prune, expire, delete."""

    async def test_pruning_keeps_the_last_ones_and_what_they_need(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 10, 3, 6)
        assert await subject.prune("r", 100) == 0
        assert await subject.prune("r", 3) == 6
        assert numbers(await subject.history("r")) == [6, 7, 8, 9]
        for seq in (7, 8, 9):
            stored = await subject.load("r", seq)
            assert stored is not None
            assert stored.checkpoints[0].whole
        assert await subject.load("r", 5) is None
        assert await subject.prune("r", 3) == 0
        assert await subject.prune("s", 3) == 0

    async def test_the_last_checkpoint_always_stays_usable(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 5, 2)
        await subject.prune("r", 0)
        assert await subject.load("r") is not None

    async def test_only_runs_that_ended_before_the_moment_expire(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        for status in GraphRunStatus:
            for at in (1.0, 9.0):
                name = f"{status.value}{at:.0f}"
                await subject.create(a_run(name, status=status, at=at), a_checkpoint(0, name))
        assert await subject.expire(5.0) == 3
        left = {run.run_id for run in await subject.runs()}
        assert left == {
            *("running1", "running9", "paused1", "paused9"),
            *("completed9", "failed9", "cancelled9"),
        }
        assert await subject.history("completed1") in ([], ())
        assert await subject.expire(5.0) == 0

    async def test_expiry_has_a_limit(self, subject: CheckpointStoreProtocol) -> None:
        for number in range(5):
            run = a_run(f"r{number}", status=GraphRunStatus.COMPLETED)
            await subject.create(run, a_checkpoint(0, run.run_id))
        assert await subject.expire(5.0, limit=3) == 3
        assert await subject.expire(5.0, limit=3) == 2

    async def test_a_deleted_run_is_gone_with_its_steps(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 3)
        assert await subject.delete("r") is True
        assert await subject.delete("r") is False
        assert await subject.load("r") is None
        assert await subject.history("r") in ([], ())
        await kept(subject, 1)  # the id is free again

"""One owner at a time."""

from __future__ import annotations

import anyio
import pytest

from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol, GraphRunStatus
from lexigram.contracts.workflow.errors import CheckpointConflictError
from lexigram.testing.conformance.checkpoints.spec import (
    CheckpointCapability,
    CheckpointSpec,
    a_checkpoint,
    a_run,
    kept,
    numbers,
)


class OwnersSpec(CheckpointSpec, capability=CheckpointCapability.OWNERS):
    """Numbers that are taken, statuses that moved."""

    async def test_an_id_is_used_once(self, subject: CheckpointStoreProtocol) -> None:
        await kept(subject, 2)
        with pytest.raises(CheckpointConflictError):
            await subject.create(a_run(graph="other"), a_checkpoint(0))
        assert [run.graph for run in await subject.runs()] == ["g"]
        assert numbers(await subject.history("r")) == [0, 1]

    async def test_a_number_is_used_once_and_the_first_stays(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 2)
        done = a_run(status=GraphRunStatus.COMPLETED)
        with pytest.raises(CheckpointConflictError):
            await subject.append(a_checkpoint(1, data=b"other"), done)
        stored = await subject.load("r")
        assert stored is not None
        assert stored.run.status is GraphRunStatus.RUNNING
        assert stored.checkpoints[-1].data != b"other"

    async def test_of_many_who_append_one_number_one_wins(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 1)
        won: list[int] = []

        async def append(number: int) -> None:
            try:
                await subject.append(a_checkpoint(1, data=bytes([number])))
            except CheckpointConflictError:
                return
            won.append(number)

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(append, number)
        stored = await subject.load("r")
        assert stored is not None
        assert len(won) == 1
        assert stored.checkpoints[-1].data == bytes(won)

    async def test_who_comes_with_a_number_that_was_pruned_is_refused(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 8, 6)
        assert await subject.prune("r", 1) == 6
        with pytest.raises(CheckpointConflictError):
            await subject.append(a_checkpoint(2))
        assert numbers(await subject.history("r")) == [6, 7]

    async def test_a_status_moves_only_from_where_it_is(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 1)
        paused, running = GraphRunStatus.PAUSED, GraphRunStatus.RUNNING
        assert not await subject.update(a_run(status=running), paused)
        assert await subject.update(a_run(status=paused, due_at=3.0), running)
        assert not await subject.update(a_run(status=paused), running)
        assert not await subject.update(a_run("s", status=paused), running)
        (run,) = await subject.runs()
        assert (run.status, run.due_at) == (paused, 3.0)

    async def test_of_many_who_move_a_status_one_wins(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 1)
        answers: list[bool] = []

        async def move() -> None:
            gone = a_run(status=GraphRunStatus.CANCELLED)
            answers.append(await subject.update(gone, GraphRunStatus.RUNNING))

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(move)
        assert answers.count(True) == 1

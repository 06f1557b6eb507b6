"""Runs and their steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lexigram.contracts.workflow.checkpoints import (
    CheckpointStoreProtocol,
    GraphRunStatus,
    StoredRun,
)
from lexigram.contracts.workflow.errors import WorkflowNotFoundError
from lexigram.testing.conformance.checkpoints.spec import (
    CheckpointCapability,
    CheckpointSpec,
    a_checkpoint,
    a_run,
    kept,
    numbers,
)


class StepsSpec(CheckpointSpec, capability=CheckpointCapability.STEPS):
    """create, append, load."""

    async def test_what_was_kept_comes_back_equal(self, subject: CheckpointStoreProtocol) -> None:
        run = replace(a_run(due_at=7.5, error="no"), parent_run="p", parent_seq=3)
        first = a_checkpoint(0, data=bytes(range(256)), nodes="ab")
        await subject.create(run, first)
        assert await subject.load("r") == StoredRun(run, (first,))

    async def test_nodes_may_have_any_name(self, subject: CheckpointStoreProtocol) -> None:
        first = replace(a_checkpoint(0), nodes=('a "b", c', "é\n", ""))
        await subject.create(a_run("r / 'x' é"), replace(first, run_id="r / 'x' é"))
        stored = await subject.load("r / 'x' é")
        assert stored is not None
        assert stored.checkpoints[0].nodes == first.nodes

    async def test_a_run_is_loaded_from_its_latest_whole_checkpoint_on(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 8, 4)
        stored = await subject.load("r")
        assert stored is not None
        assert numbers(stored.checkpoints) == [4, 5, 6, 7]

    async def test_a_run_is_loaded_as_it_was_at_a_checkpoint(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 8, 4)
        for seq, expected in [(0, [0]), (3, [0, 1, 2, 3]), (4, [4]), (6, [4, 5, 6])]:
            stored = await subject.load("r", seq)
            assert stored is not None
            assert numbers(stored.checkpoints) == expected

    async def test_what_is_unknown_is_none(self, subject: CheckpointStoreProtocol) -> None:
        assert await subject.load("r") is None
        await kept(subject, 2)
        assert await subject.load("r", 2) is None
        assert await subject.load("s", 0) is None

    async def test_a_step_may_say_how_the_run_stands(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 1)
        paused = a_run(status=GraphRunStatus.PAUSED, at=5.0, due_at=9.0)
        await subject.append(a_checkpoint(1), paused)
        stored = await subject.load("r")
        assert stored is not None
        assert stored.run.status is GraphRunStatus.PAUSED
        assert (stored.run.updated_at, stored.run.due_at) == (5.0, 9.0)

    async def test_a_step_of_an_unknown_run_is_refused(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        with pytest.raises(WorkflowNotFoundError):
            await subject.append(a_checkpoint(1))
        assert await subject.history("r") in ([], ())

    async def test_runs_do_not_mix(self, subject: CheckpointStoreProtocol) -> None:
        await kept(subject, 3, run_id="r")
        await kept(subject, 2, run_id="s")
        assert numbers(await subject.history("r")) == [0, 1, 2]
        assert numbers(await subject.history("s")) == [0, 1]

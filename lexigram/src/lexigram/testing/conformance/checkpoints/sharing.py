"""Several processes."""

from __future__ import annotations

import anyio
import pytest

from lexigram.contracts.workflow.checkpoints import CheckpointStoreProtocol
from lexigram.contracts.workflow.errors import CheckpointConflictError
from lexigram.testing.conformance.checkpoints.spec import (
    CheckpointCapability,
    CheckpointSpec,
    a_checkpoint,
    kept,
    numbers,
)


class SharingSpec(CheckpointSpec, capability=CheckpointCapability.SHARING):
    """Two store objects on one place."""

    async def test_the_other_sees_what_was_written(
        self, subject: CheckpointStoreProtocol, neighbour: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 3)
        assert numbers(await neighbour.history("r")) == [0, 1, 2]

    async def test_the_other_cannot_write_the_same_number(
        self, subject: CheckpointStoreProtocol, neighbour: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 3)
        with pytest.raises(CheckpointConflictError):
            await neighbour.append(a_checkpoint(2))

    async def test_both_write_different_runs_at_once(
        self, subject: CheckpointStoreProtocol, neighbour: CheckpointStoreProtocol
    ) -> None:
        async def work(store: CheckpointStoreProtocol, name: str) -> None:
            await kept(store, 20, run_id=name)

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(work, (subject, neighbour)[number % 2], f"r{number}")
        for number in range(4):
            assert numbers(await subject.history(f"r{number}")) == list(range(20))

"""What the specs of the checkpoint store contract share."""

from __future__ import annotations

from enum import StrEnum

import pytest

from lexigram.contracts.workflow.checkpoints import (
    Checkpoint,
    CheckpointStoreProtocol,
    GraphRun,
    GraphRunStatus,
)
from lexigram.testing.conformance.suite import ConformanceSuite


class CheckpointCapability(StrEnum):
    """What a store can do. All but the last are the core."""

    STEPS = "steps"  # create, append, load
    OWNERS = "owners"  # of two writers one wins
    LISTS = "lists"  # runs, history
    RETENTION = "retention"  # prune, expire, delete
    SHARING = "sharing"  # other processes see what was written; fixture `neighbour`


class CheckpointSpec(ConformanceSuite):
    """The contract, the core, and how runs and checkpoints are made."""

    contract = CheckpointStoreProtocol
    core = frozenset(CheckpointCapability) - {CheckpointCapability.SHARING}

    @pytest.fixture
    def neighbour(self, subject: CheckpointStoreProtocol) -> CheckpointStoreProtocol:
        """Another store object on the same place, as another process would have."""
        pytest.fail("declares 'sharing' but gives no fixture `neighbour`", pytrace=False)


def a_run(
    run_id: str = "r",
    *,
    graph: str = "g",
    status: GraphRunStatus = GraphRunStatus.RUNNING,
    at: float = 1.0,
    due_at: float | None = None,
    error: str | None = None,
) -> GraphRun:
    """A run for a test."""
    return GraphRun(
        run_id=run_id,
        graph=graph,
        version=1,
        status=status,
        created_at=at,
        updated_at=at,
        due_at=due_at,
        error=error,
    )


def a_checkpoint(
    seq: int, run_id: str = "r", *, whole: bool = False, data: bytes = b"\x00{}", nodes: str = ""
) -> Checkpoint:
    """A checkpoint for a test; ``nodes`` are one letter each."""
    return Checkpoint(run_id, seq, whole or seq == 0, data, tuple(nodes), float(seq))


async def kept(store: CheckpointStoreProtocol, count: int, *whole: int, run_id: str = "r") -> None:
    """A run with ``count`` checkpoints, those named being whole."""
    await store.create(a_run(run_id), a_checkpoint(0, run_id))
    for seq in range(1, count):
        await store.append(a_checkpoint(seq, run_id, whole=seq in whole))


def numbers(checkpoints: object) -> list[int]:
    """The numbers of checkpoints."""
    return [item.seq for item in checkpoints]  # type: ignore[attr-defined]

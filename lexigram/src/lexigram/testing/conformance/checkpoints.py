"""The conformance suite of CheckpointStoreProtocol."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import anyio
import pytest

from lexigram.contracts.workflow.checkpoints import (
    Checkpoint,
    CheckpointStoreProtocol,
    GraphRun,
    GraphRunStatus,
    StoredRun,
)
from lexigram.contracts.workflow.errors import CheckpointConflictError, WorkflowNotFoundError
from lexigram.testing.conformance.suite import ConformanceSuite

__all__ = ["CheckpointCapability", "CheckpointConformance"]


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


class ListsSpec(CheckpointSpec, capability=CheckpointCapability.LISTS):
    """runs, history."""

    async def test_runs_are_found_by_graph_and_status_latest_first(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        paused = GraphRunStatus.PAUSED
        for number in range(4):
            graph = "g" if number % 2 else "h"
            run = a_run(f"r{number}", graph=graph, at=float(number))
            await subject.create(run, a_checkpoint(0, run.run_id))
        await subject.update(a_run("r1", status=paused, at=9.0), GraphRunStatus.RUNNING)

        async def found(**wanted: object) -> list[str]:
            return [run.run_id for run in await subject.runs(**wanted)]  # type: ignore[arg-type]

        assert await found() == ["r1", "r3", "r2", "r0"]
        assert await found(graph="g") == ["r1", "r3"]
        assert await found(status=paused) == ["r1"]
        assert await found(graph="h", status=paused) == []
        assert await found(limit=2) == ["r1", "r3"]

    async def test_overdue_pauses_are_found(self, subject: CheckpointStoreProtocol) -> None:
        paused = GraphRunStatus.PAUSED
        for name, status, due in [
            ("late", paused, 5.0),
            ("later", paused, 50.0),
            ("patient", paused, None),
            ("running", GraphRunStatus.RUNNING, 5.0),
        ]:
            run = a_run(name, status=status, due_at=due)
            await subject.create(run, a_checkpoint(0, name))
        assert [run.run_id for run in await subject.runs(due_before=10.0)] == ["late"]
        assert await subject.runs(due_before=10.0, graph="other") in ([], ())
        assert await subject.runs(due_before=5.0) in ([], ())

    async def test_the_history_has_all_steps_oldest_first(
        self, subject: CheckpointStoreProtocol
    ) -> None:
        await kept(subject, 12, 5)
        assert numbers(await subject.history("r")) == list(range(12))
        assert await subject.history("s") in ([], ())


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


class CheckpointConformance(StepsSpec, OwnersSpec, ListsSpec, RetentionSpec, SharingSpec):
    """Run it on a store: ``conformance_suite(CheckpointConformance, MyStore)``."""

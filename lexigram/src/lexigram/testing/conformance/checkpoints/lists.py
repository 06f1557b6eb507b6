"""Runs by what they are, and the history of one."""

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

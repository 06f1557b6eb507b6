"""Questions for people: steps of any kind of run that wait for an answer, and the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from attrs import frozen

from lexigram.contracts.workflow.limits import check_optional_ids, check_optional_names, check_page
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import QuestionUnclearError, RunNotParkedError
from lexigram.workflow.durable.orchestrated.runs import OrchestratedRuns
from lexigram.workflow.durable.store.records import Row


@frozen(kw_only=True)
class OpenQuestion:
    """A step that waits for an answer."""

    # the run that waits: one that was submitted, or one that a run made
    run_id: int
    group_id: int
    # the run that made it
    parent_id: int | None
    workflow_id: str
    # the step, the node of a graph, the step of a pipeline
    step: str
    prompt: str
    # seconds since 1970
    asked_at: float
    # asked by a pipeline or graph, which receives the answer in its own form
    is_orchestrated: bool


class Questions:
    """The open questions of a database. Runs hold neither a slot nor a lock while they wait."""

    def __init__(self, engine: DurableEngine, orchestrated: OrchestratedRuns) -> None:
        self._engine = engine
        self._orchestrated = orchestrated

    async def open(
        self, *, group_id: int | None = None, limit: int = 100, offset: int = 0
    ) -> Sequence[OpenQuestion]:
        """Of all runs or those of a group, the oldest run first."""
        check_optional_ids(group_id=group_id)
        check_page(limit, offset)
        rows = await self._engine.store.open_questions(group_id, limit, offset)
        return [await self._question(row) for row in rows]

    async def of_run(self, run_id: int) -> Sequence[OpenQuestion]:
        """Of a run and of all that it made; raises RunNotFoundError."""
        await self._engine.run(run_id)
        rows = await self._engine.store.questions_of_run(run_id)
        return [await self._question(row) for row in rows]

    async def answer(self, run_id: int, value: Any, *, step: str | None = None) -> OpenQuestion:
        """Answer the question of a run, or of a run that it made; the question.

        The value is JSON-ready. Raises RunNotFoundError; RunNotParkedError when nothing waits
        for it, also for a second answer; QuestionUnclearError when several do; and the error of
        a step that refuses the answer: then it still waits.
        """
        check_optional_names(step=step)
        asked = _choose(run_id, step, await self.of_run(run_id))
        if asked.is_orchestrated:
            await self._orchestrated.answer(asked.run_id, value)
        else:
            await self._engine.answer(asked.run_id, value)
        return asked

    async def _question(self, row: Row) -> OpenQuestion:
        plan = await self._engine.plan(row["plan_id"])
        number = int(row["step_no"])
        is_orchestrated = plan.steps[number - 1].handler in self._orchestrated.handlers
        # The steps of a graph's plan are turns: its stored state names the node that asks.
        left: dict[str, Any] = orjson.loads(row["meta"] or "{}") if is_orchestrated else {}
        return OpenQuestion(
            run_id=row["run_id"],
            group_id=row["group_id"],
            parent_id=row["parent_id"],
            workflow_id=row["workflow_id"],
            step=str(left.get("asks", row["step"])),
            prompt=row["prompt"],
            asked_at=row["asked_at"],
            is_orchestrated=is_orchestrated,
        )


def _choose(run_id: int, step: str | None, questions: Sequence[OpenQuestion]) -> OpenQuestion:
    fitting = [one for one in questions if step is None or one.step == step]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = "; ".join(f"{one.step!r} of run {one.run_id}: {one.prompt}" for one in fitting)
        raise QuestionUnclearError(
            f"run {run_id} waits for {len(fitting)} answers: {listed}",
            details={
                "run_id": run_id,
                "questions": [{"run_id": one.run_id, "step": one.step} for one in fitting],
            },
            hint="name the step, or answer the run that asks",
        )
    names = ", ".join(repr(one.step) for one in questions) or "none"
    raise RunNotParkedError(
        f"run {run_id} does not wait for an answer" + (f" at {step!r}" if step else ""),
        details={"run_id": run_id, "step": step},
        hint=f"steps that wait: {names}",
    )

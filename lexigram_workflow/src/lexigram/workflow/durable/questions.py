"""Questions that runs ask somebody and wait for, whoever asked; and the answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from attrs import frozen

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import QuestionUnclearError, RunNotParkedError
from lexigram.workflow.durable.orchestrated.runs import OrchestratedRuns
from lexigram.workflow.durable.store import Row
from lexigram.workflow.durable.store_base import translated

_OPEN = """
SELECT r.id AS run_id, r.group_id AS group_id, r.parent_id AS parent_id, r.plan_id AS plan_id,
    r.step_no AS step_no, p.workflow_id AS workflow_id, s.name AS step, r.parked AS prompt,
    r.status_at AS asked_at, h.meta AS meta
FROM lexigram_durable_runs r
JOIN lexigram_durable_plans p ON p.id = r.plan_id
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = r.fence
WHERE r.parked IS NOT NULL AND r.completed_at IS NULL"""
# ix_lexigram_durable_runs_parked, the oldest question first; the rest by primary keys. No locks.
OPEN = f"""{_OPEN}
    AND (CAST(? AS BIGINT) IS NULL OR r.group_id = CAST(? AS BIGINT))
ORDER BY r.id LIMIT ? OFFSET ?"""
# ix_lexigram_durable_runs_children: of a run, and of all that it made.
OPEN_OF_RUN = f"""{_OPEN} AND r.id IN (
    WITH RECURSIVE tree(id) AS (SELECT CAST(? AS BIGINT) UNION ALL
        SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)
ORDER BY r.id"""  # noqa: S608 - pieces of this file


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
    # a pipeline or graph asked: it gets the answer in its own way
    is_orchestrated: bool


class Questions:
    """What the runs of a database wait for. Neither a slot nor a lock is held meanwhile."""

    def __init__(self, engine: DurableEngine, orchestrated: OrchestratedRuns) -> None:
        self._engine = engine
        self._orchestrated = orchestrated

    async def open(
        self, *, group_id: int | None = None, limit: int = 100, offset: int = 0
    ) -> Sequence[OpenQuestion]:
        """Of all runs or those of a group, the oldest run first."""
        return await self._read(OPEN, (group_id, group_id, limit, offset))

    async def of_run(self, run_id: int) -> Sequence[OpenQuestion]:
        """Of a run and of all that it made; raises RunNotFoundError."""
        await self._engine.run(run_id)
        return await self._read(OPEN_OF_RUN, (run_id,))

    async def answer(self, run_id: int, value: Any, *, step: str | None = None) -> OpenQuestion:
        """Answer the question of a run, or of a run that it made; the question.

        The value is JSON-ready. Raises RunNotFoundError; RunNotParkedError when nothing waits
        for it, also for a second answer; QuestionUnclearError when several do; and what the step
        says about an answer that it cannot take: then it still waits.
        """
        asked = _chosen(run_id, step, await self.of_run(run_id))
        if asked.is_orchestrated:
            await self._orchestrated.answer(asked.run_id, value)
        else:
            await self._engine.answer(asked.run_id, value)
        return asked

    async def _read(self, statement: str, params: Sequence[Any]) -> Sequence[OpenQuestion]:
        result: QueryResult = await translated(
            lambda: self._engine.database.execute_query(statement, params)
        )
        return [await self._question(row) for row in result.rows]

    async def _question(self, row: Row) -> OpenQuestion:
        plan = await self._engine.plan(row["plan_id"])
        number = int(row["step_no"])
        is_orchestrated = plan.steps[number - 1].handler in self._orchestrated.handlers
        # The steps of a graph's plan are turns: what it left says which node asks.
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


def _chosen(run_id: int, step: str | None, questions: Sequence[OpenQuestion]) -> OpenQuestion:
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

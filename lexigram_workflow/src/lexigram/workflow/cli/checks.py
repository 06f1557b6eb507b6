"""Whether orchestration works here: one small pipeline and one small graph are run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.result import Err
from lexigram.workflow.graph.builder import WorkflowBuilder
from lexigram.workflow.pipeline.context import PipelineContext
from lexigram.workflow.pipeline.pipeline import Pipeline
from lexigram.workflow.pipeline.steps import FunctionStep


async def check_workflow_engine() -> HealthCheckResult:
    """HEALTHY when a graph with a pipeline in it comes to the right end."""
    pipeline = Pipeline("check", [FunctionStep("double", _double)])
    engine = (
        WorkflowBuilder("check")
        .add_node("pipeline", pipeline, output_key="doubled")
        .add_node("end", _end)
        .add_edge("pipeline", "end")
        .set_entry("pipeline")
        .set_terminal("end")
        .build()
    )
    outcome = await engine.execute(3)
    problem = str(outcome.error) if isinstance(outcome, Err) else None
    if problem is None and not isinstance(outcome, Err) and outcome.value.output != 7:
        problem = f"a graph gave {outcome.value.output!r} instead of 7"
    return HealthCheckResult(
        component="workflow_engine_status",
        status=HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY,
        message=problem or "a graph with a pipeline in it ran",
        error=problem,
    )


def _double(context: PipelineContext) -> int:
    return 2 * int(context.metadata["input"])


def _end(state: Mapping[str, Any]) -> int:
    return int(state["doubled"]) + 1

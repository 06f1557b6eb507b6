"""Pipelines: steps in the order of their dependencies."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.workflow.pipeline.base import PipelineStep
    from lexigram.workflow.pipeline.context import (
        PipelineContext,
        StepExecutionResult,
        StepStatus,
    )
    from lexigram.workflow.pipeline.factories import (
        conditional,
        parallel,
        pipeline_step,
        step,
    )
    from lexigram.workflow.pipeline.nested import ApprovalGate, GraphStep
    from lexigram.workflow.pipeline.pipeline import Pipeline
    from lexigram.workflow.pipeline.steps import ConditionalStep, FunctionStep, ParallelStep
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.workflow.pipeline.context": [
                "PipelineContext",
                "StepExecutionResult",
                "StepStatus",
            ],
            "lexigram.workflow.pipeline.factories": [
                "conditional",
                "parallel",
                "pipeline_step",
                "step",
            ],
            "lexigram.workflow.pipeline.nested": ["ApprovalGate", "GraphStep"],
            "lexigram.workflow.pipeline.pipeline": ["Pipeline"],
            "lexigram.workflow.pipeline.base": ["PipelineStep"],
            "lexigram.workflow.pipeline.steps": [
                "ConditionalStep",
                "FunctionStep",
                "ParallelStep",
            ],
        },
    )

__all__ = [
    "ApprovalGate",
    "ConditionalStep",
    "FunctionStep",
    "GraphStep",
    "ParallelStep",
    "Pipeline",
    "PipelineContext",
    "PipelineStep",
    "StepExecutionResult",
    "StepStatus",
    "conditional",
    "parallel",
    "pipeline_step",
    "step",
]

"""Lexigram orchestration: pipelines, graphs, sagas, bulk work and state machines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.workflow.config import BulkOperationConfig, GraphConfig, WorkflowConfig
    from lexigram.workflow.core.definition import WorkflowDefinition
    from lexigram.workflow.core.instance import WorkflowInstance
    from lexigram.workflow.core.pipe import TransformPipe
    from lexigram.workflow.decorators import saga_step, workflow
    from lexigram.workflow.di.provider import WorkflowProvider
    from lexigram.workflow.durable.fleet import DurableFleet
    from lexigram.workflow.execution.history import ExecutionHistory
    from lexigram.workflow.execution.runner import WorkflowRunner
    from lexigram.workflow.graph.builder import WorkflowBuilder
    from lexigram.workflow.graph.engine import WorkflowEngine
    from lexigram.workflow.module import WorkflowModule
    from lexigram.workflow.pipeline.context import PipelineContext
    from lexigram.workflow.pipeline.pipeline import Pipeline
    from lexigram.workflow.saga.base import AbstractSaga
    from lexigram.workflow.workflows import WorkflowRunInfo, Workflows
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.workflow.config": ["BulkOperationConfig", "GraphConfig", "WorkflowConfig"],
            "lexigram.workflow.core.definition": ["WorkflowDefinition"],
            "lexigram.workflow.core.instance": ["WorkflowInstance"],
            "lexigram.workflow.core.pipe": ["TransformPipe"],
            "lexigram.workflow.decorators": ["saga_step", "workflow"],
            "lexigram.workflow.di.provider": ["WorkflowProvider"],
            "lexigram.workflow.durable.fleet": ["DurableFleet"],
            "lexigram.workflow.execution.history": ["ExecutionHistory"],
            "lexigram.workflow.execution.runner": ["WorkflowRunner"],
            "lexigram.workflow.graph.builder": ["WorkflowBuilder"],
            "lexigram.workflow.graph.engine": ["WorkflowEngine"],
            "lexigram.workflow.module": ["WorkflowModule"],
            "lexigram.workflow.pipeline.context": ["PipelineContext"],
            "lexigram.workflow.pipeline.pipeline": ["Pipeline"],
            "lexigram.workflow.saga.base": ["AbstractSaga"],
            "lexigram.workflow.workflows": ["WorkflowRunInfo", "Workflows"],
        },
    )

__all__ = [
    "AbstractSaga",
    "BulkOperationConfig",
    "DurableFleet",
    "ExecutionHistory",
    "GraphConfig",
    "Pipeline",
    "PipelineContext",
    "TransformPipe",
    "WorkflowBuilder",
    "WorkflowConfig",
    "WorkflowDefinition",
    "WorkflowEngine",
    "WorkflowInstance",
    "WorkflowModule",
    "WorkflowProvider",
    "WorkflowRunInfo",
    "WorkflowRunner",
    "Workflows",
    "saga_step",
    "workflow",
]

"""Contracts of workflows: pipelines, graphs, sagas, state machines, durable runs."""

from lexigram.contracts.workflow.content_checkpoint import (
    ContentCheckpointEntry,
    ContentCheckpointKey,
    ContentCheckpointStoreProtocol,
)
from lexigram.contracts.workflow.durable import (
    DurableRunsProtocol,
    RunDocument,
    RunGroupStats,
    RunStatus,
)
from lexigram.contracts.workflow.errors import (
    PipelineExecutionError,
    PipelineStepError,
    SagaStepError,
    SagaVersionMismatchError,
    StateVersionConflictError,
)
from lexigram.contracts.workflow.protocols import (
    ApprovalProtocol,
    BulkProcessorProtocol,
    ExecutionProtocol,
    PipelineContextProtocol,
    PipelineProtocol,
    PipelineStepProtocol,
    SagaProtocol,
    SagaStoreProtocol,
    StateMachineProtocol,
    StatePersistenceProtocol,
    WorkflowGraphProtocol,
    WorkflowNodeProtocol,
)
from lexigram.contracts.workflow.types import SagaState, SagaStep, StateTransitionRecord

__all__ = [
    "ApprovalProtocol",
    "BulkProcessorProtocol",
    "ContentCheckpointEntry",
    "ContentCheckpointKey",
    "ContentCheckpointStoreProtocol",
    "DurableRunsProtocol",
    "ExecutionProtocol",
    "PipelineContextProtocol",
    "PipelineExecutionError",
    "PipelineProtocol",
    "PipelineStepError",
    "PipelineStepProtocol",
    "RunDocument",
    "RunGroupStats",
    "RunStatus",
    "SagaProtocol",
    "SagaState",
    "SagaStep",
    "SagaStepError",
    "SagaStoreProtocol",
    "SagaVersionMismatchError",
    "StateMachineProtocol",
    "StatePersistenceProtocol",
    "StateTransitionRecord",
    "StateVersionConflictError",
    "WorkflowGraphProtocol",
    "WorkflowNodeProtocol",
]

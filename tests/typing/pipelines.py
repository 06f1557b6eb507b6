"""Read by type checkers only: implementers of contracts, and pipes that know their types."""

from __future__ import annotations

from typing import assert_type

from lexigram.contracts.workflow import (
    CheckpointStoreProtocol,
    ExecutionProtocol,
    PipelineContextProtocol,
    PipelineProtocol,
    PipelineStepProtocol,
    SagaStoreProtocol,
    StatePersistenceProtocol,
    WorkflowGraphProtocol,
)
from lexigram.workflow import (
    Pipeline,
    PipelineContext,
    TransformPipe,
    WorkflowBuilder,
    WorkflowEngine,
    Workflows,
)
from lexigram.workflow.checkpoint import InMemoryCheckpointStore, SqlCheckpointStore
from lexigram.workflow.pipeline import ConditionalStep, FunctionStep, ParallelStep
from lexigram.workflow.saga import InMemorySagaStore, SqlSagaStore
from lexigram.workflow.state import DatabaseStatePersistence, InMemoryStatePersistence


def table(
    pipeline: Pipeline,
    function: FunctionStep,
    conditional: ConditionalStep,
    parallel: ParallelStep,
    context: PipelineContext,
    builder: WorkflowBuilder,
    engine: WorkflowEngine,
    workflows: Workflows,
) -> None:
    _1: PipelineProtocol = pipeline
    _2: list[PipelineStepProtocol] = [function, conditional, parallel]
    _3: PipelineContextProtocol = context
    _4: WorkflowGraphProtocol = builder
    _5: list[ExecutionProtocol] = [engine, workflows]


def stores(
    checkpoints: SqlCheckpointStore | InMemoryCheckpointStore,
    sagas: SqlSagaStore | InMemorySagaStore,
    states: DatabaseStatePersistence | InMemoryStatePersistence,
) -> None:
    _1: CheckpointStoreProtocol = checkpoints
    _2: SagaStoreProtocol = sagas
    _3: StatePersistenceProtocol = states


def length(text: str) -> int:
    return len(text)


async def halved(number: int) -> float:
    return number / 2


async def pipes() -> None:
    pipe = TransformPipe[str]().pipe(length).pipe(halved)
    assert_type(pipe, TransformPipe[str, float])
    assert_type(await pipe.execute("abc"), float)

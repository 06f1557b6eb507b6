"""Read by the type checkers only: who satisfies which contract of graphs."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.result import Result
from lexigram.contracts.workflow import (
    CheckpointStoreProtocol,
    ExecutionProtocol,
    WorkflowGraphProtocol,
    WorkflowNodeProtocol,
)
from lexigram.sql import Database
from lexigram.workflow.checkpoint import InMemoryCheckpointStore, SqlCheckpointStore
from lexigram.workflow.errors import GraphExecutionError
from lexigram.workflow.graph import (
    AbstractWorkflowNode,
    GraphResult,
    NodeResult,
    WorkflowBuilder,
    WorkflowEngine,
)
from lexigram.workflow.nodes import GateNode, HumanNode


class Custom(AbstractWorkflowNode):
    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"n": 1}


def satisfied(builder: WorkflowBuilder, engine: WorkflowEngine, database: Database) -> None:
    graph: WorkflowGraphProtocol = builder
    execution: ExecutionProtocol = engine
    nodes: list[WorkflowNodeProtocol] = [Custom("a"), HumanNode("b"), GateNode("c")]
    stores: list[CheckpointStoreProtocol] = [
        InMemoryCheckpointStore(),
        SqlCheckpointStore(database),
    ]


async def used(builder: WorkflowBuilder) -> None:
    engine: WorkflowEngine = builder.add_node("a", Custom("a")).set_entry("a").build()
    result: Result[GraphResult, GraphExecutionError] = await engine.execute("x")
    again: Result[GraphResult, GraphExecutionError] = await engine.resume("run", "yes")
    one: Result[GraphResult, GraphExecutionError] = await engine.resume("yes")
    async for node in engine.stream("x"):
        finished: NodeResult = node

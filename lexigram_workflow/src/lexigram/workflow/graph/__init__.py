"""Graphs: nodes, edges with conditions, joins, reducers, pauses, checkpoints."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.workflow.graph.builder import WorkflowBuilder
    from lexigram.workflow.graph.edge import WorkflowEdge
    from lexigram.workflow.graph.engine import WorkflowEngine
    from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType
    from lexigram.workflow.graph.state import WorkflowState
    from lexigram.workflow.graph.stream import NodeStream
    from lexigram.workflow.types import GraphResult, NodeResult
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.workflow.graph.builder": ["WorkflowBuilder"],
            "lexigram.workflow.graph.edge": ["WorkflowEdge"],
            "lexigram.workflow.graph.engine": ["WorkflowEngine"],
            "lexigram.workflow.graph.node": ["AbstractWorkflowNode", "NodeType"],
            "lexigram.workflow.graph.state": ["WorkflowState"],
            "lexigram.workflow.graph.stream": ["NodeStream"],
            "lexigram.workflow.types": ["GraphResult", "NodeResult"],
        },
    )

__all__ = [
    "AbstractWorkflowNode",
    "GraphResult",
    "NodeResult",
    "NodeStream",
    "NodeType",
    "WorkflowBuilder",
    "WorkflowEdge",
    "WorkflowEngine",
    "WorkflowState",
]

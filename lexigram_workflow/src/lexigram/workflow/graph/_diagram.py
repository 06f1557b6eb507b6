"""The diagram of a graph: mermaid or DOT, plain or coloured by the progress of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lexigram.diagram import Diagram, Edge, Line, Node, Shape
from lexigram.workflow.graph.edge import Condition, WorkflowEdge
from lexigram.workflow.graph.node import NodeType

_SHAPES = {
    NodeType.GATE: Shape.DIAMOND,
    NodeType.HUMAN: Shape.PARALLELOGRAM,
    NodeType.SUBWORKFLOW: Shape.NESTED,
}


def mermaid(
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str | None,
    terminals: Mapping[str, Condition | None],
    progress: Mapping[str, str] | None = None,
) -> str:
    """A flowchart from top to bottom."""
    return _diagram("", nodes, edges, entry, terminals, progress).mermaid()


def dot(
    title: str,
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str | None,
    terminals: Mapping[str, Condition | None],
    progress: Mapping[str, str] | None = None,
) -> str:
    """A digraph from top to bottom."""
    return _diagram(title, nodes, edges, entry, terminals, progress).dot()


def _diagram(
    title: str,
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str | None,
    terminals: Mapping[str, Condition | None],
    progress: Mapping[str, str] | None,
) -> Diagram:
    ids = {name: f"n{number}" for number, name in enumerate(nodes)}  # names may hold anything
    status = progress or {}
    boxes = [
        Node(id=ids[name], label=name, shape=_shape(node), status=status.get(name))
        for name, node in nodes.items()
    ]
    lines = [
        Edge(
            source=ids[edge.source],
            target=ids[edge.target],
            label=edge.label or ("each" if edge.each is not None else ""),
            line=_line(edge),
        )
        for edge in edges
    ]
    if entry in ids:
        boxes.append(Node(id="start", label="start", shape=Shape.CIRCLE))
        lines.insert(0, Edge(source="start", target=ids[entry]))
    ends = {name: condition for name, condition in terminals.items() if name in ids}
    if ends:
        boxes.append(Node(id="stop", label="end", shape=Shape.CIRCLE))
    lines += [
        Edge(
            source=ids[name],
            target="stop",
            line=Line.SOLID if condition is None else Line.DASHED,
        )
        for name, condition in ends.items()
    ]
    return Diagram(name=title, nodes=boxes, edges=lines, direction="TB")


def _shape(node: Any) -> Shape:
    return _SHAPES.get(getattr(node, "node_type", None) or NodeType.CUSTOM, Shape.BOX)


def _line(edge: WorkflowEdge) -> Line:
    if edge.condition is not None:
        return Line.DASHED
    return Line.THICK if edge.each else Line.SOLID

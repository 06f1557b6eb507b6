"""Nodes and edges, rendered as a mermaid flowchart or as a DOT digraph."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, Literal

from attrs import field, frozen

from lexigram.diagram.text import escape

# Fill colours by the status of a run, a step or a node.
_COLOURS: Final[Mapping[str, str]] = {
    "done": "#b7e1cd",
    "completed": "#b7e1cd",
    "running": "#a4c2f4",
    "paused": "#ffe599",
    "failed": "#f4b6b6",
    "waiting": "#eeeeee",
    "skipped": "#eeeeee",
    "pending": "#ffffff",
}


class Shape(Enum):
    """The brackets of a node in mermaid, and its shape in DOT."""

    BOX = ("[", "]", "box")
    PILL = ("([", "])", "oval")
    FLAG = (">", "]", "cds")
    HEXAGON = ("{{", "}}", "hexagon")
    DIAMOND = ("{", "}", "diamond")
    PARALLELOGRAM = ("[/", "/]", "parallelogram")
    NESTED = ("[[", "]]", "box3d")
    CIRCLE = ("((", "))", "circle")


class Line(Enum):
    """The arrow of an edge in mermaid, and its style in DOT."""

    SOLID = ("-->", "solid")
    DASHED = ("-.->", "dashed")
    THICK = ("==>", "bold")


@frozen(kw_only=True)
class Node:
    """``id`` is letters and digits; the label may hold anything."""

    id: str
    label: str
    shape: Shape = Shape.BOX
    # gives the colour: done, completed, running, paused, failed, waiting, skipped or pending
    status: str | None = None


@frozen(kw_only=True)
class Edge:
    """From the id of a node to the id of another."""

    source: str
    target: str
    label: str = ""
    line: Line = Line.SOLID


@frozen(kw_only=True)
class Group:
    """Nodes in a frame."""

    label: str
    nodes: Sequence[Node]


@frozen(kw_only=True)
class Diagram:
    """``TB`` runs from top to bottom, ``LR`` from left to right."""

    name: str
    edges: Sequence[Edge]
    nodes: Sequence[Node] = field(factory=tuple)
    groups: Sequence[Group] = field(factory=tuple)
    direction: Literal["LR", "TB"] = "LR"

    def mermaid(self) -> str:
        """A flowchart for a Markdown page."""
        lines = [f"flowchart {self.direction}"]
        lines += [f"    {_mermaid_node(node)}" for node in self.nodes]
        for number, group in enumerate(self.groups):
            lines.append(f'    subgraph m{number}["{escape(group.label)}"]')
            lines += [f"        {_mermaid_node(node)}" for node in group.nodes]
            lines.append("    end")
        for edge in self.edges:
            label = f'|"{escape(edge.label)}"|' if edge.label else ""
            lines.append(f"    {edge.source} {edge.line.value[0]}{label} {edge.target}")
        coloured = [node for node in self._every_node() if node.status is not None]
        for status in sorted({node.status for node in coloured if node.status}):
            lines.append(f"    classDef {status} fill:{_COLOURS[status]}")
        lines += [f"    class {node.id} {node.status}" for node in coloured]
        return "\n".join(lines) + "\n"

    def dot(self) -> str:
        """A digraph for Graphviz."""
        lines = [f"digraph {_quote(self.name)} {{", f"    rankdir={self.direction};"]
        lines += [f"    {_dot_node(node)}" for node in self.nodes]
        for number, group in enumerate(self.groups):
            lines.append(f"    subgraph cluster_m{number} {{ label={_quote(group.label)};")
            lines += [f"        {_dot_node(node)}" for node in group.nodes]
            lines.append("    }")
        for edge in self.edges:
            facts = [f"label={_quote(edge.label)}"] if edge.label else []
            if edge.line is not Line.SOLID:
                facts.append(f"style={edge.line.value[1]}")
            shown = f" [{', '.join(facts)}]" if facts else ""
            lines.append(f"    {edge.source} -> {edge.target}{shown};")
        return "\n".join([*lines, "}"]) + "\n"

    def _every_node(self) -> Iterator[Node]:
        yield from self.nodes
        for group in self.groups:
            yield from group.nodes


def _mermaid_node(node: Node) -> str:
    left, right, _ = node.shape.value
    return f'{node.id}{left}"{escape(node.label)}"{right}'


def _dot_node(node: Node) -> str:
    facts = [f"label={_quote(node.label)}", f"shape={node.shape.value[2]}"]
    if node.status is not None:
        facts.append(f'style=filled, fillcolor="{_COLOURS[node.status]}"')
    return f"{node.id} [{', '.join(facts)}];"


def _quote(text: str) -> str:
    # A string of DOT knows the escapes of JSON, but not \uXXXX.
    return json.dumps(text, ensure_ascii=False)

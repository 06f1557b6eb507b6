"""A graph as a picture: mermaid or DOT, plain or coloured by the progress of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lexigram.workflow.graph.edge import Condition, WorkflowEdge
from lexigram.workflow.graph.node import NodeType

_COLOURS = {
    "done": "#b7e1cd",
    "running": "#a4c2f4",
    "paused": "#ffe599",
    "failed": "#f4b6b6",
    "waiting": "#eeeeee",
}
# Brackets of a box in mermaid, and its shape in DOT, by the type of the node.
_SHAPES = {
    NodeType.GATE: ("{", "}", "diamond"),
    NodeType.HUMAN: ("[/", "/]", "parallelogram"),
    NodeType.SUBWORKFLOW: ("[[", "]]", "box3d"),
}
_BOX = ("[", "]", "box")


def mermaid(
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str | None,
    terminals: Mapping[str, Condition | None],
    progress: Mapping[str, str] | None = None,
) -> str:
    """A flowchart; names may hold anything, so boxes are numbered."""
    ids = {name: f"n{number}" for number, name in enumerate(nodes)}
    lines = ["flowchart TD"]
    for name, node in nodes.items():
        left, right, _ = _SHAPES.get(getattr(node, "node_type", None) or NodeType.CUSTOM, _BOX)
        lines.append(f'    {ids[name]}{left}"{_escaped(name)}"{right}')
    if entry in ids:
        lines.append(f"    start((start)) --> {ids[entry]}")
    for edge in edges:
        arrow = "-.->" if edge.condition is not None else "==>" if edge.each else "-->"
        label = _label(edge)
        shown = f'|"{_escaped(label)}"|' if label else ""
        lines.append(f"    {ids[edge.source]} {arrow}{shown} {ids[edge.target]}")
    if any(name in ids for name in terminals):
        lines.append("    stop((end))")
    for name, condition in terminals.items():
        if name in ids:
            lines.append(f"    {ids[name]} {'-->' if condition is None else '-.->'} stop")
    if progress is not None:
        used = sorted(set(progress.values()))
        lines += [f"    classDef {status} fill:{_COLOURS[status]}" for status in used]
        lines += [f"    class {ids[name]} {status}" for name, status in progress.items()]
    return "\n".join(lines) + "\n"


def dot(
    title: str,
    nodes: Mapping[str, Any],
    edges: Sequence[WorkflowEdge],
    entry: str | None,
    terminals: Mapping[str, Condition | None],
    progress: Mapping[str, str] | None = None,
) -> str:
    """A digraph; the entry is bold, terminal nodes have two borders."""
    lines = [f"digraph {json.dumps(title)} {{", "    rankdir=TB;"]
    for name, node in nodes.items():
        shape = _SHAPES.get(getattr(node, "node_type", None) or NodeType.CUSTOM, _BOX)[2]
        facts = [f"shape={shape}"]
        styles = ["bold"] if name == entry else []
        if name in terminals:
            facts.append("peripheries=2")
        if progress is not None and name in progress:
            styles.append("filled")
            facts.append(f'fillcolor="{_COLOURS[progress[name]]}"')
        if styles:
            facts.append(f'style="{",".join(styles)}"')
        lines.append(f"    {json.dumps(name)} [{', '.join(facts)}];")
    for edge in edges:
        facts = [f"label={json.dumps(_label(edge))}"] if _label(edge) else []
        if edge.condition is not None:
            facts.append("style=dashed")
        shown = f" [{', '.join(facts)}]" if facts else ""
        lines.append(f"    {json.dumps(edge.source)} -> {json.dumps(edge.target)}{shown};")
    return "\n".join([*lines, "}"]) + "\n"


def _label(edge: WorkflowEdge) -> str:
    return edge.label or ("each" if edge.each is not None else "")


def _escaped(text: str) -> str:
    return text.replace('"', "#quot;").replace("\n", " ")

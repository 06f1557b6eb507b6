"""State machines as mermaid diagrams."""

from __future__ import annotations

from collections.abc import Mapping

from lexigram.diagram import escape
from lexigram.workflow.state.models import State


def mermaid(states: Mapping[str, State], initial: str, current: str) -> str:
    """A ``stateDiagram-v2``; states without a way out lead to the end mark."""
    ids = {name: f"s{number}" for number, name in enumerate(states)}
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{_safe(name)}" as {ids[name]}' for name in states]
    lines.append(f"    [*] --> {ids[initial]}")
    for state in states.values():
        for event, move in state.transitions.items():
            guard = " [guarded]" if move.guard is not None else ""
            lines.append(f"    {ids[state.name]} --> {ids[move.target]}: {_safe(event)}{guard}")
        if not state.transitions:
            lines.append(f"    {ids[state.name]} --> [*]")
    lines += ["    classDef current stroke-width:3px", f"    class {ids[current]} current"]
    return "\n".join(lines)


def _safe(text: str) -> str:
    return escape(text.replace(":", "#58;"))

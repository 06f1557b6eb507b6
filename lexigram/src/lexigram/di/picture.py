"""Draw an object graph: mermaid, DOT, JSON, and the explanation of one binding."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from lexigram.di.binding import Binding
from lexigram.di.problems import bound_in

_SHAPES = {"singleton": ("([", "])"), "scoped": ("[", "]"), "transient": (">", "]")}


@frozen
class Picture:
    """An object graph in the forms people and tools read."""

    name: str
    bindings: Sequence[Binding]

    def mermaid(self) -> str:
        """A mermaid flowchart, one subgraph per module."""
        lines = ["flowchart LR"]
        for module, members in self._by_module():
            lines.append(f'    subgraph {_id(module)}["{module}"]')
            for binding in members:
                left, right = _SHAPES[binding.lifetime.value]
                lines.append(f'        b{binding.order}{left}"{_escape(binding.name)}"{right}')
            lines.append("    end")
        lines += [
            f"    b{source.order} -->|{label}| b{target.order}"
            for source, label, target in self._edges()
        ]
        return "\n".join(lines) + "\n"

    def dot(self) -> str:
        """A Graphviz digraph, one cluster per module."""
        lines = [f'digraph "{_escape(self.name)}" {{', "    rankdir=LR;"]
        for module, members in self._by_module():
            lines.append(f'    subgraph "cluster_{_id(module)}" {{ label="{module}";')
            lines += [
                f'        b{item.order} [label="{_escape(item.name)}\\n{item.lifetime.value}"];'
                for item in members
            ]
            lines.append("    }")
        lines += [
            f'    b{source.order} -> b{target.order} [label="{label}"];'
            for source, label, target in self._edges()
        ]
        return "\n".join([*lines, "}"]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Nodes and edges as JSON-ready data."""
        return {
            "name": self.name,
            "nodes": [
                {
                    "id": item.order,
                    "service": item.name,
                    "lifetime": item.lifetime.value,
                    "module": item.module.name,
                    "provider": item.owner.name if item.owner else None,
                    "site": str(item.site) if item.site else None,
                    "built": item.made,
                }
                for item in self.bindings
            ],
            "edges": [
                {"from": source.order, "to": target.order, "parameter": label}
                for source, label, target in self._edges()
            ],
        }

    def json(self) -> str:
        """``to_dict`` as text."""
        return json.dumps(self.to_dict(), indent=2)

    def _by_module(self) -> Iterator[tuple[str, list[Binding]]]:
        modules: dict[str, list[Binding]] = {}
        for binding in self.bindings:
            modules.setdefault(binding.module.name, []).append(binding)
        yield from modules.items()

    def _edges(self) -> Iterator[tuple[Binding, str, Binding]]:
        for binding in self.bindings:
            yield from edges_of(binding)


def edges_of(binding: Binding) -> Iterator[tuple[Binding, str, Binding]]:
    """Every edge of a binding, the deferred ones too: itself, parameter, target."""
    for name, edge in binding.provider.kwargs.items():
        for member in getattr(edge, "members", (edge,)):
            target = getattr(member, "binding", None)
            if target is not None:
                yield binding, name, target


def describe(binding: Binding, source: str) -> str:
    """One binding for a person: owner, lifetime, edges, state, and its generated source."""
    lines = [f"{binding.name}  {bound_in(binding)}"]
    lines.append(f"  built by {binding.kind.name.lower().replace('_', ' ')}: {binding.target!r}")
    for _, name, target in edges_of(binding):
        lines.append(f"  {name}: {target.name}  {bound_in(target)}")
    if binding.is_singleton:
        lines.append(f"  made: {'yes' if binding.made else 'not yet'}")
    if source:
        lines += ["  source:", *(f"    {line}" for line in source.splitlines())]
    return "\n".join(lines)


def _id(name: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in name)


def _escape(text: str) -> str:
    return text.replace('"', "'")

"""Draw an object graph: mermaid, DOT, JSON, and the explanation of one binding."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lexigram.di.binding import Binding
from lexigram.di.problems import bound_in

if TYPE_CHECKING:
    from lexigram.di.module import ModuleNode

_SHAPES = {"singleton": ("([", "])"), "scoped": ("[", "]"), "transient": (">", "]")}


@frozen
class Picture:
    """An object graph in the forms people and tools read."""

    name: str
    bindings: Sequence[Binding]

    def mermaid(self) -> str:
        """A mermaid flowchart, one subgraph per module."""
        lines = ["flowchart LR"]
        for number, (module, members) in enumerate(self._by_module()):
            lines.append(f'    subgraph m{number}["{_escape(module.name)}"]')
            for index, binding in members:
                left, right = _SHAPES[binding.lifetime.value]
                lines.append(f'        b{index}{left}"{_escape(binding.name)}"{right}')
            lines.append("    end")
        lines += [
            f"    b{source} -->|{label}| b{target}" for source, label, target in self._edges()
        ]
        return "\n".join(lines) + "\n"

    def dot(self) -> str:
        """A Graphviz digraph, one cluster per module."""
        lines = [f'digraph "{_escape(self.name)}" {{', "    rankdir=LR;"]
        for number, (module, members) in enumerate(self._by_module()):
            lines.append(f'    subgraph cluster_m{number} {{ label="{_escape(module.name)}";')
            lines += [
                f'        b{index} [label="{_escape(item.name)}\\n{item.lifetime.value}"];'
                for index, item in members
            ]
            lines.append("    }")
        lines += [
            f'    b{source} -> b{target} [label="{label}"];'
            for source, label, target in self._edges()
        ]
        return "\n".join([*lines, "}"]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Nodes and edges as JSON-ready data."""
        return {
            "name": self.name,
            "nodes": [
                {
                    "id": index,
                    "service": item.name,
                    "lifetime": item.lifetime.value,
                    "module": item.module.name,
                    "provider": item.owner.name if item.owner else None,
                    "site": str(item.site) if item.site else None,
                    "built": item.made,
                }
                for index, item in enumerate(self.bindings)
            ],
            "edges": [
                {"from": source, "to": target, "parameter": label}
                for source, label, target in self._edges()
            ],
        }

    def json(self) -> str:
        """``to_dict`` as text."""
        return json.dumps(self.to_dict(), indent=2)

    def _by_module(self) -> list[tuple[ModuleNode, list[tuple[int, Binding]]]]:
        modules: dict[ModuleNode, list[tuple[int, Binding]]] = {}
        for index, binding in enumerate(self.bindings):
            modules.setdefault(binding.module, []).append((index, binding))
        return list(modules.items())

    def _edges(self) -> Iterator[tuple[int, str, int]]:
        numbers = {binding: index for index, binding in enumerate(self.bindings)}
        for binding, index in numbers.items():
            for label, target in edges_of(binding):
                yield index, label, numbers[target]


def edges_of(binding: Binding) -> Iterator[tuple[str, Binding]]:
    """Every edge of a binding, the deferred ones too: parameter and target."""
    for name, edge in binding.provider.kwargs.items():
        for member in getattr(edge, "members", (edge,)):
            target = getattr(member, "binding", None)
            if target is not None:
                yield name, target


def describe(binding: Binding, source: str) -> str:
    """One binding for a person: owner, lifetime, edges, state, and its generated source."""
    lines = [f"{binding.name}  {bound_in(binding)}"]
    lines.append(f"  built by {binding.kind.name.lower().replace('_', ' ')}: {binding.target!r}")
    lines += [f"  {name}: {target.name}  {bound_in(target)}" for name, target in edges_of(binding)]
    if binding.is_singleton:
        lines.append(f"  made: {'yes' if binding.made else 'not yet'}")
    elif source:
        lines += ["  source:", *(f"    {line}" for line in source.splitlines())]
    else:
        lines.append("  source: written once the singletons under it are made")
    return "\n".join(lines)


def _escape(text: str) -> str:
    return text.replace('"', "'")

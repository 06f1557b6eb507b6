"""The diagram of an object graph: mermaid, DOT, JSON; and the explanation of one binding."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lexigram.di._problems import describe_binding
from lexigram.di.binding import Binding

if TYPE_CHECKING:
    from lexigram.di.module import ModuleNode
    from lexigram.diagram import Diagram


@frozen
class ObjectGraphDiagram:
    """An object graph in the forms people and tools read."""

    name: str
    bindings: Sequence[Binding]

    def mermaid(self) -> str:
        """A mermaid flowchart, one subgraph per module."""
        return self._diagram().mermaid()

    def dot(self) -> str:
        """A Graphviz digraph, one cluster per module."""
        return self._diagram().dot()

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

    def _diagram(self) -> Diagram:
        # Imported where it is used: every application imports this module.
        from lexigram.diagram import Diagram, Edge, Group, Node, Shape

        shapes = {"singleton": Shape.PILL, "scoped": Shape.BOX, "transient": Shape.FLAG}
        modules: dict[ModuleNode, list[Node]] = {}
        for index, binding in enumerate(self.bindings):
            shape = shapes[binding.lifetime.value]
            node = Node(id=f"b{index}", label=binding.name, shape=shape)
            modules.setdefault(binding.module, []).append(node)
        return Diagram(
            name=self.name,
            groups=[Group(label=module.name, nodes=nodes) for module, nodes in modules.items()],
            edges=[
                Edge(source=f"b{source}", target=f"b{target}", label=label)
                for source, label, target in self._edges()
            ],
        )

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
    lines = [f"{binding.name}  {describe_binding(binding)}"]
    lines.append(f"  built by {binding.kind.name.lower().replace('_', ' ')}: {binding.target!r}")
    lines += [
        f"  {name}: {target.name}  {describe_binding(target)}" for name, target in edges_of(binding)
    ]
    if binding.is_singleton:
        lines.append(f"  made: {'yes' if binding.made else 'not yet'}")
    elif source:
        lines += ["  source:", *(f"    {line}" for line in source.splitlines())]
    else:
        lines.append("  source: written once the singletons under it are made")
    return "\n".join(lines)

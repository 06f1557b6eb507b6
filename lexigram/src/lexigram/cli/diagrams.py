"""The diagram of the modules of an application: mermaid, DOT and plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from lexigram.di.markers import show
from lexigram.di.module import ModuleNode
from lexigram.diagram import Diagram, Edge, Node, Shape


@frozen
class ModuleGraphDiagram:
    """Modules and their imports."""

    name: str
    nodes: Sequence[ModuleNode]

    def mermaid(self) -> str:
        """A mermaid flowchart; an arrow points to what is imported."""
        return self._diagram().mermaid()

    def dot(self) -> str:
        """A Graphviz digraph; an arrow points to what is imported."""
        return self._diagram().dot()

    def to_dict(self) -> dict[str, Any]:
        """Modules and imports as JSON-ready data."""
        return {
            "name": self.name,
            "nodes": [
                {"id": number, **describe_module(node)} for number, node in enumerate(self.nodes)
            ],
            "edges": [{"from": source, "to": target} for source, target in self._edges()],
        }

    def _diagram(self) -> Diagram:
        return Diagram(
            name=self.name,
            nodes=[
                Node(
                    id=f"m{number}",
                    label=node.name,
                    shape=Shape.HEXAGON if node.is_global else Shape.BOX,
                )
                for number, node in enumerate(self.nodes)
            ],
            edges=[
                Edge(source=f"m{source}", target=f"m{target}") for source, target in self._edges()
            ],
        )

    def _edges(self) -> Iterator[tuple[int, int]]:
        numbers = {id(node): number for number, node in enumerate(self.nodes)}
        for number, node in enumerate(self.nodes):
            for imported in node.imports:
                yield number, numbers[id(imported)]


def describe_module(node: ModuleNode) -> dict[str, Any]:
    """One module as JSON-ready data."""
    return {
        "module": node.name,
        "imports": [imported.name for imported in node.imports],
        "providers": [
            *(provider.name for provider in node.providers),
            *(marked.__name__ for marked in node.injectables),
        ],
        "exports": [
            *(show(key) for key in node.exported_keys()),
            *(f"all of {passed_on.name}" for passed_on in node.reexported()),
        ],
        "global": node.is_global,
        "site": str(node.site) if node.site else None,
    }

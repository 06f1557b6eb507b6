"""A place to part ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexigram.workflow.graph.edge import Condition
from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType


class GateNode(AbstractWorkflowNode):
    """Does nothing; the conditions of its edges decide. ``routes`` are shown in pictures."""

    writes = frozenset()

    def __init__(self, name: str, *, routes: Mapping[str, Condition] | None = None) -> None:
        super().__init__(name, NodeType.GATE)
        self.routes = dict(routes or {})

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """Nothing changes."""
        return {}

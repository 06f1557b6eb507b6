"""What a node of a graph is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Any


class NodeType(StrEnum):
    """What kind of work a node does; shown in pictures."""

    AGENT = "agent"
    TOOL = "tool"
    LLM = "llm"
    GATE = "gate"
    HUMAN = "human"
    SUBWORKFLOW = "subworkflow"
    CUSTOM = "custom"


class AbstractWorkflowNode(ABC):
    """One node: reads the state, returns what changes in it; an exception fails the run.

    The state it is given is shared by all nodes of a step and cannot be changed. ``writes`` names
    the keys it may return, so that the builder can find two parallel nodes that write one key;
    None means any.
    """

    writes: frozenset[str] | None = None

    def __init__(self, name: str, node_type: NodeType = NodeType.CUSTOM) -> None:
        self._name = name
        self._node_type = node_type

    @property
    def name(self) -> str:
        """Unique within the graph."""
        return self._name

    @property
    def node_type(self) -> NodeType:
        """The kind of work."""
        return self._node_type

    @abstractmethod
    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """Do the work. May be called again for the same state after a crash."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"

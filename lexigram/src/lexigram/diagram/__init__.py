"""Diagrams of nodes and edges: mermaid for pages, DOT for Graphviz."""

from lexigram.diagram.diagram import Diagram, Edge, Group, Line, Node, Shape
from lexigram.diagram.text import escape

__all__ = ["Diagram", "Edge", "Group", "Line", "Node", "Shape", "escape"]

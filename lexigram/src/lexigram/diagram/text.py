"""Text inside a mermaid diagram."""

from __future__ import annotations


def escape(text: str) -> str:
    """The text for a quoted label, whatever it contains."""
    return text.replace('"', "#quot;").replace("\n", " ")

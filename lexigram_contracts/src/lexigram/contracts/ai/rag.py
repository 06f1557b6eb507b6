"""Documents, and the pieces they are cut into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class DocumentProtocol(Protocol):
    """A parsed document."""

    @property
    def content(self) -> str:
        """The text."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Where it came from and what is known about it."""
        ...


@runtime_checkable
class ChunkProtocol(Protocol):
    """A piece of a document."""

    @property
    def text(self) -> str:
        """The text of the piece."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What its document had, and its place in it."""
        ...

    @property
    def score(self) -> float | None:
        """How well it answers a query; None outside a search."""
        ...


@runtime_checkable
class ChunkerProtocol(Protocol):
    """Cuts a text into pieces."""

    def chunk(
        self, text: str, metadata: Mapping[str, Any] | None = None
    ) -> Sequence[ChunkProtocol]:
        """Pieces in the order of the text, each with the metadata; empty for an empty text.

        The same text gives the same pieces. Not guaranteed: that they cover the text without
        overlap.
        """
        ...

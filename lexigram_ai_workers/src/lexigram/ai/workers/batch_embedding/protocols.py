"""What batch embedding needs of others."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class EmbeddingProvider(Protocol):
    """Turns texts into vectors, and no more: the form of the 0.1 line.

    The worker needs EmbeddingProviderProtocol, which also tells its model and dimension;
    ``NamedEmbeddings(provider, model_id=…, dimension=…)`` makes one of this.
    """

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, in the order of the texts."""
        ...

"""Protocols of batch embedding."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class EmbeddingProvider(Protocol):
    """Embeds texts; the protocol of the 0.1 line.

    The worker needs EmbeddingProviderProtocol, which also has a model id and a dimension;
    ``NamedEmbeddings(provider, model_id=…, dimension=…)`` adds them.
    """

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, in the order of the texts."""
        ...

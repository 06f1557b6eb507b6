"""Gives a name to a function or object that turns texts into vectors and has none."""

from __future__ import annotations

from typing import Protocol

from lexigram.ai.workers.embeddings.checks import checked_vectors


class TextEmbedder(Protocol):
    """All that an embedding provider of the 0.1 line has."""

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, in order."""
        ...


class NamedEmbeddings:
    """Implements EmbeddingProviderProtocol on something that has ``embed_texts`` only.

    Its vectors are checked against the dimension, so a change of the model behind it is noticed
    at least where the length changes.
    """

    def __init__(self, embedder: TextEmbedder, *, model_id: str, dimension: int) -> None:
        self.embedder = embedder
        self.model_id = model_id
        self.dimension = dimension

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """What the embedder gives, checked."""
        vectors = await self.embedder.embed_texts(texts)
        return checked_vectors(vectors, len(texts), self.dimension, self.model_id)

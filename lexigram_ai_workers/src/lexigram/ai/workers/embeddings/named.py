"""Add a model id and a dimension to an object with ``embed_texts``."""

from __future__ import annotations

from typing import Protocol

from lexigram.ai.workers.embeddings.checks import check_vectors


class TextEmbedder(Protocol):
    """The embedding provider protocol of the 0.1 line."""

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, in order."""
        ...


class NamedEmbeddings:
    """Implements EmbeddingProviderProtocol with an object that has only ``embed_texts``.

    The length of the vectors is checked against ``dimension``.
    """

    def __init__(self, embedder: TextEmbedder, *, model_id: str, dimension: int) -> None:
        self.embedder = embedder
        self.model_id = model_id
        self.dimension = dimension

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """Embed texts and check the vectors."""
        vectors = await self.embedder.embed_texts(texts)
        return check_vectors(vectors, len(texts), self.dimension, self.model_id)

"""An application with the AI workers, and an embedding model that is unavailable at first."""

from __future__ import annotations

from lexigram.ai.workers import DeadLetterConfig, WorkersConfig, WorkersModule
from lexigram.ai.workers.embeddings import EmbeddingConfig, HashingEmbeddings
from lexigram.ai.workers.vectors import VectorConfig
from lexigram.app import Application
from lexigram.contracts.ai import EmbeddingProviderProtocol
from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.di import Provider


class Flaky(HashingEmbeddings):
    """A model that is unavailable until ``available`` is set."""

    available = False

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """Embed texts; fails while the model is unavailable."""
        if not self.available:
            raise ConnectionError("the model is unavailable")
        return await super().embed_texts(texts)


class ModelProvider(Provider):
    """Binds the model; bindings of the application replace those of the module."""

    name = "model"

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the model."""
        container.singleton(EmbeddingProviderProtocol, Flaky())


def create() -> Application:
    """Create the application; dead letters are retried after a tenth of a second."""
    config = WorkersConfig(
        embeddings=EmbeddingConfig(provider="hashing"),
        vectors=VectorConfig(provider="memory"),
        dlq_check_interval=1,
        dead_letters=DeadLetterConfig(base_backoff=0.1),
    )
    return Application(
        "shelf", modules=[WorkersModule.configure(config)], providers=[ModelProvider()]
    )

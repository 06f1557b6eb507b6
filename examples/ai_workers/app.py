"""An application with the AI workers, and an embedding model that is away at first."""

from __future__ import annotations

from lexigram.ai.workers import DeadLetterConfig, WorkersConfig, WorkersModule
from lexigram.ai.workers.embeddings import EmbeddingConfig, HashingEmbeddings
from lexigram.ai.workers.vectors import VectorConfig
from lexigram.app import Application
from lexigram.contracts.ai import EmbeddingProviderProtocol
from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.di import Provider


class Flaky(HashingEmbeddings):
    """A model that cannot be reached until somebody mends it."""

    away = True

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """As the base class, once it is mended."""
        if self.away:
            raise ConnectionError("the model is away")
        return await super().embed_texts(texts)


class ModelProvider(Provider):
    """What an application binds for a contract wins over what the module would choose."""

    name = "model"

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind the model."""
        container.singleton(EmbeddingProviderProtocol, Flaky())


def create() -> Application:
    """The application; a dead letter is tried again after a tenth of a second."""
    config = WorkersConfig(
        embeddings=EmbeddingConfig(provider="hashing"),
        vectors=VectorConfig(provider="memory"),
        dlq_check_interval=1,
        dead_letters=DeadLetterConfig(base_backoff=0.1),
    )
    return Application(
        "shelf", modules=[WorkersModule.configure(config)], providers=[ModelProvider()]
    )

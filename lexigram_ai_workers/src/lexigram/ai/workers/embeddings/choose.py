"""Create the configured embedding provider."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio.to_thread

from lexigram.ai.workers.embeddings.config import EmbeddingConfig
from lexigram.ai.workers.embeddings.errors import EmbeddingModelError
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol


async def open_embeddings(config: EmbeddingConfig) -> EmbeddingProviderProtocol:
    """Create the provider; a local model is read in a thread."""
    if config.provider == "onnx":
        return await anyio.to_thread.run_sync(partial(make_embeddings, config))
    return make_embeddings(config)


async def close_embeddings(provider: EmbeddingProviderProtocol) -> None:
    """Close the connections of the provider, if it has any; a second call does nothing."""
    close: Any = getattr(provider, "aclose", None)
    if close is not None:
        await close()


def make_embeddings(config: EmbeddingConfig) -> EmbeddingProviderProtocol:
    """Create the provider in the calling thread; large libraries are imported on first use."""
    provider = _create(config)
    if config.dimension not in (None, provider.dimension):
        raise EmbeddingModelError(
            f"{provider.model_id} has dimension {provider.dimension}, not {config.dimension}",
            hint="remove embeddings.dimension; this model has a fixed dimension",
        )
    return provider


def _create(config: EmbeddingConfig) -> EmbeddingProviderProtocol:
    if config.provider == "onnx":
        from lexigram.ai.workers.embeddings.onnx import OnnxEmbeddings

        if not config.model:
            raise EmbeddingModelError(
                "embeddings.provider onnx requires embeddings.model, the folder of the model",
                hint="set LEX_AI_WORKERS__EMBEDDINGS__MODEL to the folder",
            )
        return OnnxEmbeddings(
            config.model,
            batch_size=config.batch_size,
            graph_cache=config.graph_cache or None,
            threads=config.threads,
        )
    if config.provider == "openai":
        from lexigram.ai.workers.embeddings.openai import OpenAIEmbeddings

        return OpenAIEmbeddings(config)
    if config.model:
        raise EmbeddingModelError(
            f"embeddings.provider {config.provider} does not support a model name: {config.model!r}",
            hint="remove embeddings.model, or use the provider onnx or openai",
        )
    if config.provider == "hashing":
        from lexigram.ai.workers.embeddings.hashing import DIMENSION, HashingEmbeddings

        return HashingEmbeddings(config.dimension or DIMENSION)
    from lexigram.ai.workers.embeddings.wordllama import WordLlamaEmbeddings

    return WordLlamaEmbeddings(batch_size=config.batch_size)

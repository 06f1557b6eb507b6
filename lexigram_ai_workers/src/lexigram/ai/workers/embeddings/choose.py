"""The embedding provider that the settings name."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio.to_thread

from lexigram.ai.workers.embeddings.config import EmbeddingConfig
from lexigram.ai.workers.embeddings.errors import EmbeddingModelError
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol


async def open_embeddings(config: EmbeddingConfig) -> EmbeddingProviderProtocol:
    """The provider, ready to be asked for its name; a folder is read in a thread."""
    if config.provider == "onnx":
        return await anyio.to_thread.run_sync(partial(make_embeddings, config))
    return make_embeddings(config)


async def close_embeddings(provider: EmbeddingProviderProtocol) -> None:
    """Let go of connections, where the provider has any; a second call does nothing."""
    close: Any = getattr(provider, "aclose", None)
    if close is not None:
        await close()


def make_embeddings(config: EmbeddingConfig) -> EmbeddingProviderProtocol:
    """The same as ``open_embeddings``, in the calling thread. Nothing heavy is imported yet."""
    provider = _made(config)
    if config.dimension not in (None, provider.dimension):
        raise EmbeddingModelError(
            f"{provider.model_id} has vectors of {provider.dimension}, not {config.dimension}",
            hint="leave embeddings.dimension out; this model knows its own",
        )
    return provider


def _made(config: EmbeddingConfig) -> EmbeddingProviderProtocol:
    if config.provider == "onnx":
        from lexigram.ai.workers.embeddings.onnx import OnnxEmbeddings

        if not config.model:
            raise EmbeddingModelError(
                "embeddings.provider onnx needs embeddings.model: the folder of the model",
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
            f"embeddings.provider {config.provider} has one model, not {config.model!r}",
            hint="leave embeddings.model empty, or choose the provider onnx or openai",
        )
    if config.provider == "hashing":
        from lexigram.ai.workers.embeddings.hashing import DIMENSION, HashingEmbeddings

        return HashingEmbeddings(config.dimension or DIMENSION)
    from lexigram.ai.workers.embeddings.wordllama import WordLlamaEmbeddings

    return WordLlamaEmbeddings(batch_size=config.batch_size)

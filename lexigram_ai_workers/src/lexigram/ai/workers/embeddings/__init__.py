"""Embedding providers: the model in a wheel, local ONNX models, OpenAI-compatible endpoints."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.ai.workers.embeddings.choose import (
        close_embeddings,
        make_embeddings,
        open_embeddings,
    )
    from lexigram.ai.workers.embeddings.config import EmbeddingConfig
    from lexigram.ai.workers.embeddings.errors import (
        EmbeddingEndpointError,
        EmbeddingInputError,
        EmbeddingLibraryError,
        EmbeddingMismatchError,
        EmbeddingModelError,
        EmbeddingsUnavailableError,
        ModelsMixedError,
    )
    from lexigram.ai.workers.embeddings.hashing import HashingEmbeddings
    from lexigram.ai.workers.embeddings.named import NamedEmbeddings
    from lexigram.ai.workers.embeddings.onnx import OnnxEmbeddings
    from lexigram.ai.workers.embeddings.openai import OpenAIEmbeddings
    from lexigram.ai.workers.embeddings.wordllama import WordLlamaEmbeddings
    from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol

    # Type checkers prove here that each class satisfies its contract.
    _providers: tuple[type[EmbeddingProviderProtocol], ...] = (
        WordLlamaEmbeddings,
        OnnxEmbeddings,
        OpenAIEmbeddings,
        HashingEmbeddings,
        NamedEmbeddings,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.ai.workers.embeddings.choose": [
                "close_embeddings",
                "make_embeddings",
                "open_embeddings",
            ],
            "lexigram.ai.workers.embeddings.config": ["EmbeddingConfig"],
            "lexigram.ai.workers.embeddings.errors": [
                "EmbeddingEndpointError",
                "EmbeddingInputError",
                "EmbeddingLibraryError",
                "EmbeddingMismatchError",
                "EmbeddingModelError",
                "EmbeddingsUnavailableError",
                "ModelsMixedError",
            ],
            "lexigram.ai.workers.embeddings.hashing": ["HashingEmbeddings"],
            "lexigram.ai.workers.embeddings.named": ["NamedEmbeddings"],
            "lexigram.ai.workers.embeddings.onnx": ["OnnxEmbeddings"],
            "lexigram.ai.workers.embeddings.openai": ["OpenAIEmbeddings"],
            "lexigram.ai.workers.embeddings.wordllama": ["WordLlamaEmbeddings"],
        },
    )

__all__ = [
    "EmbeddingConfig",
    "EmbeddingEndpointError",
    "EmbeddingInputError",
    "EmbeddingLibraryError",
    "EmbeddingMismatchError",
    "EmbeddingModelError",
    "EmbeddingsUnavailableError",
    "HashingEmbeddings",
    "ModelsMixedError",
    "NamedEmbeddings",
    "OnnxEmbeddings",
    "OpenAIEmbeddings",
    "WordLlamaEmbeddings",
    "close_embeddings",
    "make_embeddings",
    "open_embeddings",
]

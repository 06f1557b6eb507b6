"""The default model: static word vectors, included in the wheel of wordllama."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import anyio

from lexigram.ai.workers._imports import import_without
from lexigram.ai.workers.embeddings.batching import embed_in_thread
from lexigram.ai.workers.embeddings.checks import check_texts
from lexigram.ai.workers.embeddings.errors import EmbeddingLibraryError, EmbeddingModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL = "l2_supercat"  # the one whose weights and vocabulary are in the wheel
DIMENSION = 256
BATCH_SIZE = 64


class WordLlamaEmbeddings:
    """Implements EmbeddingProviderProtocol without a download or a server.

    A vector is the mean of the word vectors: fast (thousands of pages a second) and suitable for
    topic search; word order is ignored. The model is loaded on first use, in a thread, once per
    process.
    """

    model_id = f"wordllama-{MODEL}-{DIMENSION}"
    dimension = DIMENSION

    def __init__(self, batch_size: int = BATCH_SIZE) -> None:
        self.batch_size = batch_size
        self._limiter = anyio.CapacityLimiter(1)

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """Return one unit vector per text."""
        return await embed_in_thread(check_texts(texts), self.batch_size, _embed, self._limiter)

    async def count_tokens(self, texts: list[str]) -> list[int]:
        """Count the tokens of each text; the model has no token limit."""
        return await anyio.to_thread.run_sync(_count, texts, limiter=self._limiter)


def _embed(texts: Sequence[str]) -> list[list[float]]:
    """Return normalized means of the word vectors, as ``WordLlamaInference.embed(norm=True)``.

    The library pads all texts and multiplies by a mask: 2,000 to 2,900 chunks of 900 characters
    a second; this function does 5,400, with the same result.
    """
    import numpy as np

    vocabulary, weights = _get_model()
    encoded = vocabulary.encode_batch_fast(list(texts), add_special_tokens=False)
    sums: NDArray[np.float32] = np.empty((len(encoded), DIMENSION), dtype=np.float32)
    for number, item in enumerate(encoded):
        ids: list[int] = item.ids
        weights.take(ids, axis=0, mode="clip").sum(axis=0, out=sums[number])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    found: list[list[float]] = (sums / np.maximum(lengths, 1e-12)).tolist()
    return found


def _count(texts: Sequence[str]) -> list[int]:
    vocabulary, _ = _get_model()
    encoded = vocabulary.encode_batch_fast(list(texts), add_special_tokens=False)
    return [len(item.ids) for item in encoded]


_loading = Lock()
_model: tuple[Any, NDArray[np.float32]] | None = None


def _get_model() -> tuple[Any, NDArray[np.float32]]:
    """Return vocabulary and vectors; 16 MB, shared by all providers of the process."""
    global _model  # noqa: PLW0603 - one model per process
    with _loading:
        if _model is None:
            _model = _load()
        return _model


def _load() -> tuple[Any, NDArray[np.float32]]:
    wordllama = _import_library()
    # With its own folder as the cache, load() finds the included vocabulary; by default it would
    # download it.
    folder = Path(wordllama.__file__).parent
    try:
        model = wordllama.WordLlama.load(MODEL, cache_dir=folder, disable_download=True)
    except (OSError, ValueError) as error:
        raise EmbeddingModelError(
            f"cannot read the model in the wheel of wordllama: {error}",
            details={"folder": str(folder)},
            hint="run pip install --force-reinstall wordllama",
            cause=error,
        ) from error
    vocabulary = model.tokenizer
    vocabulary.no_padding()
    vocabulary.no_truncation()
    return vocabulary, model.embedding


def _import_library() -> Any:
    """Import wordllama; a root handler keeps it from configuring logging."""
    root, placeholder = logging.getLogger(), logging.NullHandler()
    root.addHandler(placeholder)
    try:
        # It downloads other models with requests; this one is in its wheel.
        wordllama = import_without("wordllama", "requests")
    except ImportError as error:
        raise EmbeddingLibraryError(
            f"cannot import wordllama: {error}",
            hint="run pip install lexigram-ai-workers, or use another embeddings.provider",
            cause=error,
        ) from error
    finally:
        root.removeHandler(placeholder)
    return wordllama

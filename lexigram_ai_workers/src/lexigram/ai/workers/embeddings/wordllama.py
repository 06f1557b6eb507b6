"""The embedded default: static word vectors that are inside the wheel of wordllama."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import anyio

from lexigram.ai.workers.embeddings.batching import in_thread
from lexigram.ai.workers.embeddings.checks import checked_texts
from lexigram.ai.workers.embeddings.errors import EmbeddingLibraryError, EmbeddingModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL = "l2_supercat"  # the one whose weights and vocabulary are in the wheel
DIMENSION = 256
BATCH_SIZE = 64


class WordLlamaEmbeddings:
    """Implements EmbeddingProviderProtocol with nothing to download and no server.

    A vector is the mean of the vectors of the words: fast (thousands of pages a second) and
    good for search by topic; the order of words does not count. Loaded at first use, in a
    thread, once per process.
    """

    model_id = f"wordllama-{MODEL}-{DIMENSION}"
    dimension = DIMENSION

    def __init__(self, batch_size: int = BATCH_SIZE) -> None:
        self.batch_size = batch_size
        self._limiter = anyio.CapacityLimiter(1)

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """One vector of length 1 per text."""
        return await in_thread(checked_texts(texts), self.batch_size, _embed, self._limiter)

    async def count_tokens(self, texts: list[str]) -> list[int]:
        """How many tokens each text has for this model; it has no longest text."""
        return await anyio.to_thread.run_sync(_count, texts, limiter=self._limiter)


def _embed(texts: Sequence[str]) -> list[list[float]]:
    """Mean of the word vectors, made to length 1, as ``WordLlamaInference.embed(norm=True)``.

    That one pads all texts to the longest and multiplies by a mask: 2,000 to 2,900 chunks of
    900 characters a second, this 5,400, with the same result.
    """
    import numpy as np

    vocabulary, weights = _loaded()
    encoded = vocabulary.encode_batch_fast(list(texts), add_special_tokens=False)
    sums: NDArray[np.float32] = np.empty((len(encoded), DIMENSION), dtype=np.float32)
    for number, item in enumerate(encoded):
        ids: list[int] = item.ids
        weights.take(ids, axis=0, mode="clip").sum(axis=0, out=sums[number])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    found: list[list[float]] = (sums / np.maximum(lengths, 1e-12)).tolist()
    return found


def _count(texts: Sequence[str]) -> list[int]:
    vocabulary, _ = _loaded()
    encoded = vocabulary.encode_batch_fast(list(texts), add_special_tokens=False)
    return [len(item.ids) for item in encoded]


_loading = Lock()
_model: tuple[Any, NDArray[np.float32]] | None = None


def _loaded() -> tuple[Any, NDArray[np.float32]]:
    """Vocabulary and vectors; 16 MB that all providers of the process share."""
    global _model  # noqa: PLW0603 - one model per process
    with _loading:
        if _model is None:
            _model = _load()
        return _model


def _load() -> tuple[Any, NDArray[np.float32]]:
    wordllama = _library()
    # Its own folder as the cache: there the vocabulary is found, which its plain load() looks
    # for beside the code under a wrong name and then fetches from the network.
    folder = Path(wordllama.__file__).parent
    try:
        model = wordllama.WordLlama.load(MODEL, cache_dir=folder, disable_download=True)
    except (OSError, ValueError) as error:
        raise EmbeddingModelError(
            f"the model in the wheel of wordllama cannot be read: {error}",
            details={"folder": str(folder)},
            hint="install it again: pip install --force-reinstall wordllama",
            cause=error,
        ) from error
    vocabulary = model.tokenizer
    vocabulary.no_padding()
    vocabulary.no_truncation()
    return vocabulary, model.embedding


def _library() -> Any:
    """The module, which sets up logging when it is imported unless the root has a handler."""
    root, placeholder = logging.getLogger(), logging.NullHandler()
    root.addHandler(placeholder)
    try:
        import wordllama  # type: ignore[import-untyped]
    except ImportError as error:
        raise EmbeddingLibraryError(
            f"wordllama cannot be imported: {error}",
            hint="pip install lexigram-ai-workers, or choose another embeddings.provider",
            cause=error,
        ) from error
    finally:
        root.removeHandler(placeholder)
    return wordllama

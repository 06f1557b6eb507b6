"""Divide texts into batches by number and tokens, and embed batches in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import anyio.to_thread

_BYTES_PER_TOKEN = (
    4  # for English in most vocabularies; other scripts have more bytes per character
)


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text without a vocabulary; at least 1.

    The estimate uses bytes, because Chinese characters have about one token each.
    """
    return len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN + 1


def batches(
    texts: Sequence[str],
    max_texts: int,
    max_tokens: int | None = None,
    count: Callable[[str], int] = estimate_tokens,
) -> Iterator[range]:
    """Yield ranges of texts, each within the limits of texts and tokens.

    A text above the token limit is a separate batch; the model decides whether to accept it.
    """
    start, tokens = 0, 0
    for number, text in enumerate(texts):
        size = 0 if max_tokens is None else count(text)
        too_many = max_tokens is not None and tokens + size > max_tokens
        if number > start and (number - start >= max_texts or too_many):
            yield range(start, number)
            start, tokens = number, 0
        tokens += size
    if len(texts) > start:
        yield range(start, len(texts))


async def embed_in_thread(
    texts: Sequence[str],
    batch_size: int,
    embed: Callable[[Sequence[str]], list[list[float]]],
    limiter: anyio.CapacityLimiter,
) -> list[list[float]]:
    """Run ``embed`` on the batches, one after the other, in a thread.

    A thread cannot be interrupted: cancellation takes effect after the current batch.
    """
    vectors: list[list[float]] = []
    for part in batches(texts, batch_size):
        chunk = texts[part.start : part.stop]
        vectors += await anyio.to_thread.run_sync(embed, chunk, limiter=limiter)
    return vectors

"""Cuts many texts into batches by number and by tokens, and runs a model on them in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import anyio.to_thread

_BYTES_PER_TOKEN = 4  # of English in most vocabularies; other scripts have more bytes a letter


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has, without the vocabulary of the model; at least 1.

    Counted in bytes, so that a text of Chinese letters is not taken for a short one.
    """
    return len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN + 1


def batches(
    texts: Sequence[str],
    max_texts: int,
    max_tokens: int | None = None,
    count: Callable[[str], int] = estimated_tokens,
) -> Iterator[range]:
    """Ranges of texts in order, none with more texts or tokens than allowed.

    A text that alone has too many tokens is a batch of its own: whether it can be used is for
    the model to say.
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


async def in_thread(
    texts: Sequence[str],
    batch_size: int,
    embed: Callable[[Sequence[str]], list[list[float]]],
    limiter: anyio.CapacityLimiter,
) -> list[list[float]]:
    """What ``embed`` makes of the batches, one after the other, off the event loop.

    A thread cannot be interrupted: a cancelled caller is gone after the batch that runs.
    """
    vectors: list[list[float]] = []
    for part in batches(texts, batch_size):
        chunk = texts[part.start : part.stop]
        vectors += await anyio.to_thread.run_sync(embed, chunk, limiter=limiter)
    return vectors

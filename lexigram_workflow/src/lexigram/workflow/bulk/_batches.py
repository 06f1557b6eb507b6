"""Items of any source cut into batches, read no further ahead than asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from itertools import islice
from typing import Generic, TypeVar

from lexigram.concurrency import call

T = TypeVar("T")


class Batches(Generic[T]):
    """``take()`` gives the next batch of a plain source, ``read()`` waits for that of a stream."""

    def __init__(self, items: Iterable[T] | AsyncIterable[T], size: int) -> None:
        self._size = size
        self._plain = None if isinstance(items, AsyncIterable) else iter(items)
        self._stream: AsyncIterator[T] | None = (
            aiter(items) if isinstance(items, AsyncIterable) else None
        )
        self._is_over = False

    def is_over(self) -> bool:
        """True after the last batch was given."""
        return self._is_over

    @property
    def is_stream(self) -> bool:
        """True when a batch must be waited for."""
        return self._stream is not None

    async def next(self) -> list[T]:
        """The next batch of either; empty at its end."""
        return await self.read() if self.is_stream else self.take()

    def take(self) -> list[T]:
        """The next batch of a plain iterable; empty at its end."""
        assert self._plain is not None
        batch = list(islice(self._plain, self._size))
        self._is_over = len(batch) < self._size
        return batch

    async def read(self) -> list[T]:
        """The next batch of a stream; empty at its end."""
        assert self._stream is not None
        batch: list[T] = []
        if self._is_over:
            return batch
        async for item in self._stream:
            batch.append(item)
            if len(batch) == self._size:
                return batch
        self._is_over = True
        return batch

    async def close(self) -> None:
        """Tell a generator that nobody reads it any more."""
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await call(close)


def size_of(items: Iterable[T] | AsyncIterable[T]) -> int:
    """How many items there are, 0 when nobody knows."""
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:
        return 0


async def ended(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel tasks and wait until they are gone."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)

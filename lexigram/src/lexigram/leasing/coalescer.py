"""Group commit: what many tasks write at the same moment becomes one transaction."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Coalescer(Generic[Item, Answer]):
    """``await coalescer.add(item)``: done when a batch with the item is committed.

    While one batch is written the next one gathers, so a lone item never waits for company.
    ``write`` gets up to ``limit`` items and returns one answer for each, in one transaction: when
    it raises, nothing was written, and every item of the batch is tried by itself, so that a
    bad one fails alone.
    """

    def __init__(
        self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, limit: int = 100
    ) -> None:
        self._write = write
        self._limit = limit
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: Item) -> Answer:
        """The answer for this item, or its error. A cancelled item is left out if it still can."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((item, future))
        if self._task is None or self._task.done():
            # An empty context: the batch must not join the transaction of its first item.
            self._task = loop.create_task(self._work_off(), context=contextvars.Context())
        return await future

    async def _work_off(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
            wanted = [(item, future) for item, future in taken if not future.done()]
            if wanted:
                await self._write_batch(wanted)

    async def _write_batch(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._write([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - the boundary: it is raised in the tasks
            if len(batch) > 1:
                for entry in batch:
                    await self._write_batch([entry])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

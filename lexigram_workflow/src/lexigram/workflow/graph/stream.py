"""The results of nodes while a run goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio

from lexigram.contracts.core.result import Err, Result
from lexigram.workflow.errors import GraphExecutionError
from lexigram.workflow.types import GraphResult, NodeResult

Drive = Callable[
    [Callable[[NodeResult], object]], Awaitable[Result[GraphResult, GraphExecutionError]]
]


class NodeStream:
    """``async for node in stream``; then ``stream.result``.

    The run lives as long as the loop: leaving it, or ``aclose()``, cancels the run.
    """

    def __init__(self, drive: Drive) -> None:
        self._items = self._generate(drive)
        # the end of the run, after the last node
        self.result: GraphResult | None = None

    def __aiter__(self) -> NodeStream:
        return self

    async def __anext__(self) -> NodeResult:
        return await self._items.__anext__()

    async def aclose(self) -> None:
        """Cancel the run, if it still goes on, and wait until it is gone."""
        await self._items.aclose()

    async def _generate(self, drive: Drive) -> AsyncGenerator[NodeResult, None]:
        queue: asyncio.Queue[NodeResult | None] = asyncio.Queue()

        async def work() -> Any:
            try:
                return await drive(queue.put_nowait)
            finally:
                queue.put_nowait(None)

        task = asyncio.create_task(work())
        try:
            while (item := await queue.get()) is not None:
                yield item
            ended = await task
        finally:
            # Also when the consumer stops or is cancelled: the run never outlives this block.
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
        self.result = _unwrap(ended)


def _unwrap(ended: Result[GraphResult, GraphExecutionError]) -> GraphResult:
    if isinstance(ended, Err):
        raise ended.error
    return ended.value

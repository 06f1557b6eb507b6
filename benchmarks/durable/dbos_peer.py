"""The same runs on DBOS: workflows of five steps, fifty at a time, each step kept before the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from durable.ours import STEPS

AT_ONCE = 50  # its documentation starts workflows side by side; more was not faster


class Dbos:
    """Workflows are started directly: its queues poll, which would measure the pause."""

    def __init__(self, workflow: Any) -> None:
        self._workflow = workflow

    async def work(self, count: int) -> int:
        """Nanoseconds until all workflows have ended."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with room:
                assert await self._workflow() == len(STEPS)

        start = time.perf_counter_ns()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count // len(STEPS)):
                tasks.create_task(one())
        return time.perf_counter_ns() - start


@asynccontextmanager
async def on_database(url: str) -> AsyncIterator[Dbos]:
    """In a new database."""
    from dbos import DBOS

    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "CRITICAL"})

    @DBOS.step()
    async def step(number: int) -> int:
        return number

    @DBOS.workflow()
    async def workflow() -> int:
        return len([await step(number) for number in range(len(STEPS))])

    DBOS.launch()
    try:
        yield Dbos(workflow)
    finally:
        DBOS.destroy()

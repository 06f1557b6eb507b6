"""Lexigram's durable runs as a contestant."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.workflow.durable import (
    DurableEngine,
    NewRun,
    RunPlan,
    StepPlan,
    Worker,
    WorkerConfig,
)

clock = time.perf_counter_ns
LIMIT_SECONDS = 120.0  # against a hang only
IDLE_SECONDS = 0.003  # before every run whose start is measured
STEPS = ("parse", "chunk", "embed", "store", "route")
GROUPS = 20


class NoMetrics:
    """Counts nothing: the log is not what is measured."""

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """Nothing."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Nothing."""


class Ours:
    """One worker; runs of five steps are submitted before the clock starts."""

    def __init__(self, engine: DurableEngine, *, consumers: int) -> None:
        self.engine = engine
        self._started: asyncio.Future[int] | None = None
        self._left = 0
        self._done = anyio.Event()
        steps = [StepPlan(name=kind, step_type=kind, handler="noop", retries=3) for kind in STEPS]
        self.plan = RunPlan(workflow_id="bench", steps=steps)
        stamp = StepPlan(name="stamp", step_type="stamp", handler="stamp")
        self._stamped = RunPlan(workflow_id="stamp", steps=[stamp])
        self.worker = Worker(
            WorkerConfig(consumers={"*": consumers}),
            engine,
            {"noop": self._noop, "stamp": self._stamp},
            metrics=NoMetrics(),
        )

    async def _noop(self) -> dict[str, int]:
        self._left -= 1
        if not self._left:
            self._done.set()
        return {"ok": 1}

    async def _stamp(self) -> None:
        assert self._started is not None
        self._started.set_result(clock())

    async def work(self, count: int) -> int:
        """Nanoseconds until all steps are done and written."""
        runs = count // len(STEPS)
        self._left, self._done = runs * len(STEPS), anyio.Event()
        groups = [
            await self.engine.submit(
                self.plan, [NewRun(priority=n % 3) for n in range(runs // GROUPS)]
            )
            for _ in range(GROUPS)
        ]
        start = clock()
        await self.worker.start()
        with anyio.fail_after(LIMIT_SECONDS):
            await self._done.wait()
        await self.worker.stop()  # waits for the last reports
        spent = clock() - start
        for group in groups:
            assert (await self.engine.stats(group.group_id)).group_status == "COMPLETED"
        return spent

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """An idle worker, for ``latency``."""
        await self.worker.start()
        yield
        await self.worker.stop()

    async def latency(self, _: int) -> int:
        """Nanoseconds from the call of ``submit`` to the first line of the handler."""
        await anyio.sleep(IDLE_SECONDS)
        self._started = asyncio.get_running_loop().create_future()
        start = clock()
        await self.engine.submit(self._stamped, [NewRun()])
        with anyio.fail_after(LIMIT_SECONDS):
            return await self._started - start


@asynccontextmanager
async def on_database(url: str, *, consumers: int = 100) -> AsyncIterator[Ours]:
    """In a new database."""
    async with Database(url) as database:
        await upgrade(database)
        yield Ours(DurableEngine(database), consumers=consumers)

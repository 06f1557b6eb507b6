"""A worker process: ``process.py URL LEASE``. Runs until SIGTERM, then hands back and ends with 0."""

import os
import random
import signal
import sys

import anyio

from lexigram.sql import Database
from lexigram.tasks import (
    JobContext,
    JobRetry,
    PoolSettings,
    ProgressTracker,
    SqlProgress,
    SqlTaskQueue,
    TaskWorker,
    job,
)

SOON = JobRetry(base_delay=0.01, max_delay=0.05)


@job("square", retry=SOON)
async def square(number: int, failures: int, context: JobContext) -> int:
    """Fails so often, then returns; reports progress on the way."""
    for step in range(3):
        await context.progress(step, 3)
        await anyio.sleep(random.random() * 0.01)
    if context.attempt <= failures:
        raise OSError(f"attempt {context.attempt}")
    return number * number


@job("forever")
async def forever(context: JobContext) -> None:
    """Ends only by being cancelled; counts as long as it runs."""
    step = context.job.lost_count * 1_000_000
    while True:
        step += 1
        await context.progress(step, 0)
        await anyio.sleep(0.02)


@job("deadly", max_retries=0)
async def deadly() -> None:
    """Ends the process in which it runs."""
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, lease: float) -> None:
    async with Database(url) as database:
        queue = SqlTaskQueue(database, poll=0.1)
        progress = ProgressTracker(SqlProgress(database, poll=0.1), queue)
        settings = PoolSettings(concurrency=20, lease=lease, drain_timeout=0.5)
        handlers = {"square": square, "forever": forever, "deadly": deadly}
        worker = TaskWorker("w", queue, handlers, settings, progress=progress)
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            await worker.start()
            print("ready", flush=True)
            async for _ in signals:
                break
        await worker.stop()


anyio.run(main, sys.argv[1], float(sys.argv[2]))

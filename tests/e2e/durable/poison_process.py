"""A worker whose handler of poison kills its process: ``poison_process.py <url> <lease> <limit>``."""

import os
import signal
import sys

import anyio

from lexigram.sql import Database
from lexigram.workflow.durable import DurableEngine, Terms, Worker, WorkerConfig


async def main():
    url, lease, limit = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    async with Database(url) as database:
        engine = DurableEngine(database, Terms(lease=lease, max_lost=limit))

        async def note(step_id, what):
            await database.execute(
                "INSERT INTO effects (what, step_id) VALUES (?, ?)", (what, step_id)
            )

        async def work(run_step, is_poison=False):
            await note(run_step.id, "begun")
            if is_poison:
                os.kill(os.getpid(), signal.SIGKILL)
            await anyio.sleep(0.01)
            await note(run_step.id, "done")

        worker = Worker(WorkerConfig(consumers={"*": 5}, poll_interval=0.1), engine, {"work": work})
        await worker.start()
        await worker.ended()


if __name__ == "__main__":
    anyio.run(main)

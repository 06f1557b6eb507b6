"""A worker with some of the handlers: ``rolling_process.py <url> <lease> <handler>…``."""

import sys

import anyio

from lexigram.sql import Database
from lexigram.workflow.durable import DurableEngine, Terms, Worker, WorkerConfig


def handler(name):
    async def work():
        await anyio.sleep(0.002)
        return {"by": name}

    return work


async def main():
    url, lease, *names = sys.argv[1:]
    async with Database(url) as database:
        engine = DurableEngine(database, Terms(lease=float(lease)))
        config = WorkerConfig(consumers={"parse": 2, "*": 3}, poll_interval=0.1)
        worker = Worker(config, engine, {name: handler(name) for name in names})
        await worker.start()
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        await worker.stop(5.0)


if __name__ == "__main__":
    anyio.run(main)

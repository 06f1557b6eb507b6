"""A worker of jobs over a broker: ``process.py '<json>'``; writes a line per run, until killed."""

import json
import os
import signal
import sys
from contextlib import AsyncExitStack

import anyio

from lexigram.queue.backends.nats import NATSDriver
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.backends.redis import RedisDriver
from lexigram.queue.tasks import BusTaskQueue, RedisJobs
from lexigram.sql import Database
from lexigram.tasks import JobContext, JobRetry, PoolSettings, TaskWorker, job
from lexigram.tasks.store_sql import SqlStore

POLL = 0.5


def driver_of(place):
    kinds = {
        "redis": lambda: RedisDriver(place["url"], prefix=place["prefix"]),
        "rabbitmq": lambda: RabbitMQDriver(place["url"], exchange=place["prefix"]),
        "nats": lambda: NATSDriver(place["url"], stream=place["prefix"]),
    }
    return kinds[place["kind"]]()


async def queue_of(place, stack):
    driver = driver_of(place)
    await driver.connect()
    stack.push_async_callback(driver.close)
    if "database" in place:
        state = SqlStore(await stack.enter_async_context(Database(place["database"])), poll=POLL)
    else:
        state = RedisJobs(place["redis"], prefix=place["prefix"] + ":{jobs}", poll=POLL)
        stack.push_async_callback(state.aclose)
    return BusTaskQueue(driver, state, poll=POLL)


def handler(log):
    @job("square", retry=JobRetry(base_delay=0.01, max_delay=0.05))
    async def square(number: int, failures: int, context: JobContext) -> int:
        os.write(log, f"{context.job.id}\n".encode())  # one write: lines never mix
        await anyio.sleep(0.02)
        if context.attempt <= failures:
            raise OSError(f"attempt {context.attempt}")
        return number * number

    return square


@job("deadly", max_retries=0)
async def deadly() -> None:
    """Ends the process in which it runs."""
    os.kill(os.getpid(), signal.SIGKILL)


async def main(place):
    log = os.open(place["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with AsyncExitStack() as stack:
        queue = await queue_of(place, stack)
        settings = PoolSettings(concurrency=10, lease=1.5, drain_timeout=0.5)
        worker = TaskWorker("w", queue, {"square": handler(log), "deadly": deadly}, settings)
        await worker.start()
        print("ready", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))

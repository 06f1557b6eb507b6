"""A consumer of the Kafka kill test: ``kafka_worker.py SERVERS FOLDER``, until it is killed.

Writes what it begins and what is settled, with the time of the machine's one monotonic clock, to
files of its own; a line is there before the next thing happens.
"""

import asyncio
import os
import random
import sys
import time
from pathlib import Path

from lexigram.queue import BusOptions
from lexigram.queue.backends.kafka import KafkaQueue
from lexigram.queue.options import ConsumerOptions

SETTINGS = {"session_timeout": 2.0, "timeout": 5.0, "rebalance_timeout": 10.0}


async def main():
    servers, folder = sys.argv[1], Path(sys.argv[2])
    queue = KafkaQueue(servers, options=BusOptions(), **SETTINGS)
    with (
        (folder / f"begun.{os.getpid()}").open("ab", buffering=0) as begun,
        (folder / f"settled.{os.getpid()}").open("ab", buffering=0) as settled,
    ):
        acknowledge = queue.driver.ack_many

        async def ack_many(deliveries):
            valid = [one for one in deliveries if one.receipt.is_valid]
            await acknowledge(deliveries)
            now = time.monotonic_ns()
            settled.write(b"".join(b"%d %s\n" % (now, one.message.id.encode()) for one in valid))

        async def handle(message):
            begun.write(b"%d %s\n" % (time.monotonic_ns(), message.id.encode()))
            await asyncio.sleep(random.random() * 0.004)

        queue.driver.ack_many = ack_many
        await queue.connect(wait=30)
        await queue.consume(
            ConsumerOptions(topics=("chaos",), group="chaos", prefetch=50, concurrency=8), handle
        )
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

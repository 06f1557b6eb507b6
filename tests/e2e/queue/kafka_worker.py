"""A consumer of the Kafka kill test: ``kafka_worker.py SERVERS FOLDER``, until it is killed.

Writes what it begins, what it ends and what is settled, with the time of the machine's one
monotonic clock, to files of its own; a line is there before the next thing happens. Settled is
what an acknowledgement that returned has written, not what it tried.
"""

import asyncio
import logging
import os
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from lexigram.queue import BusOptions
from lexigram.queue.backends.kafka import KafkaQueue
from lexigram.queue.config import KafkaDriverConfig
from lexigram.queue.options import ConsumerOptions

# The mock gives members a second less than a session to join again, however busy the machine is.
SETTINGS = {"session_timeout": 4.0, "timeout": 20.0, "rebalance_timeout": 10.0}


async def main():
    servers, folder = sys.argv[1], Path(sys.argv[2])
    logging.basicConfig(format="%(asctime)s %(message)s")
    queue = KafkaQueue(servers, config=KafkaDriverConfig(**SETTINGS), options=BusOptions())
    with ExitStack() as files:
        begun, ended, settled = (
            files.enter_context((folder / f"{kind}.{os.getpid()}").open("ab", buffering=0))
            for kind in ("begun", "ended", "settled")
        )
        acknowledge = queue.driver.ack_many

        def note(file, *names):
            now = time.monotonic_ns()
            file.write(b"".join(b"%d %s\n" % (now, name.encode()) for name in names))

        async def ack_many(deliveries):
            await acknowledge(deliveries)
            # A record has no ticket when it had gone to another member before.
            written = [one for one in deliveries if one.receipt.record.ticket is not None]
            note(settled, *(one.message.id for one in written))

        async def handle(message):
            note(begun, message.id)
            await asyncio.sleep(random.random() * 0.004)
            note(ended, message.id)

        queue.driver.ack_many = ack_many
        await queue.connect(wait=30)
        await queue.consume(
            ConsumerOptions(topics=("chaos",), group="chaos", prefetch=50, concurrency=8), handle
        )
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

"""A process of the lease tests: ``cloud_holder.py <json>``; see ``harness.Place``.

A handler writes ``<pid> <id> <retry count>`` to the file ``begun``, waits until there is a file
``go``, and then writes the id to the file ``handled``. So a test says how long it takes.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from worker import queue_of

from lexigram.queue.options import ConsumerOptions


async def main():
    place = json.loads(sys.argv[1])
    folder, queue = Path(place["folder"]), queue_of(place)

    def write(name, line):
        with (folder / name).open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    async def hold(message):
        write("begun", f"{os.getpid()} {message.id} {message.retry_count}")
        while not (folder / "go").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)
        write("handled", message.id)

    await queue.connect(wait=30)
    options = ConsumerOptions(topics=(place["topic"],), group="chaos", prefetch=1, concurrency=1)
    await queue.consume(options, hold)
    write("ready", os.getpid())
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

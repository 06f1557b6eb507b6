"""One process of several that ask for one missing key: ``worker.py URL FOLDER NAME MODE``."""

import asyncio
import os
import sys
from pathlib import Path

import anyio

from lexigram.cache import Cache, RedisCache, RedisConnection, SqlCache
from lexigram.sql import Database

CALLERS = 100


async def main(url, folder, name, mode):
    folder = Path(folder)
    address, _, prefix = url.partition("#")
    lease = 2 if mode == "hang" else 30  # that of one who will be killed is waited for
    if address.startswith("redis"):
        connection = RedisConnection(address)
        cache, aclose = (
            Cache(RedisCache(connection, prefix=prefix), load_lease=lease),
            connection.aclose,
        )
    else:
        database = Database(address)
        await database.connect()
        cache, aclose = Cache(SqlCache(database), load_lease=lease), database.close

    async def load():
        # One file per run of a loader, by any process.
        (folder / f"load-{name}-{os.urandom(4).hex()}").touch()
        if mode == "hang":
            await anyio.sleep_forever()
        await anyio.sleep(0.5)
        return {"by": name}

    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    answers = await asyncio.gather(*(cache.get_or_set("key", load) for _ in range(CALLERS)))
    print(*sorted({answer.unwrap()["by"] for answer in answers}), flush=True)
    await aclose()


asyncio.run(main(*sys.argv[1:]))

"""One process of a test: start on a database that nobody has prepared, or hold it half changed."""

import sys
import time

import anyio

from lexigram.sql import Database, Migrate, SqlConfig, SqlModule
from lexigram.sql.migrate import status
from lexigram.testing import boot


async def start(url: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()  # all processes at once
    async with boot(SqlModule.configure(SqlConfig(url=url, migrate=Migrate.ALWAYS))) as app:
        for item in await status(await app.container.resolve(Database)):
            print(item.distribution, item.current, item.state, flush=True)


async def hold(url: str) -> None:
    def change(connection):
        connection.exec_driver_sql("CREATE TABLE half_done (id INTEGER)")
        print("ready", flush=True)
        time.sleep(600)  # until it is killed

    async with Database(url) as database:
        await database.restructure(change)


anyio.run({"start": start, "hold": hold}[sys.argv[1]], sys.argv[2])

"""A writer process: ``process.py FOLDER SEED ROUNDS [URL]``; with a URL on shared storage.

Writes ids that other writers write too, prints ``ready`` before and a count after every round.
"""

import random
import sys
from contextlib import AsyncExitStack

import anyio

from lexigram.ai.workers.vectors import LanceVectorStore, VectorConfig
from lexigram.contracts.data.vector import CollectionConfig, VectorRecord
from lexigram.sql import Database
from lexigram.sql.locks import SqlResourceLocks

IDS = 200


def records(chance: random.Random) -> list[VectorRecord]:
    start = chance.randrange(IDS)
    return [
        VectorRecord(
            id=f"r{n % IDS}",
            vector=[chance.random() for _ in range(8)],
            content=f"text {n}",
            metadata={"document_id": f"d{n % IDS // 10}"},
        )
        for n in range(start, start + 20)
    ]


async def main(folder: str, seed: str, rounds: str, url: str | None = None) -> None:
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        config, locks = VectorConfig(), None
        if url is not None:
            database = await stack.enter_async_context(Database(url))
            config, locks = (
                VectorConfig(shared_storage=True, lock_ttl=1.0),
                SqlResourceLocks(database),
            )
        store = LanceVectorStore(folder, config, locks=locks)
        collection = await store.create_collection(CollectionConfig(name="c", dimension=8))
        print("ready", flush=True)
        for number in range(int(rounds)):
            await collection.upsert(records(chance))
            print(number, flush=True)
        await store.disconnect()


anyio.run(main, *sys.argv[1:])

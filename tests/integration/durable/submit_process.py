"""Submits documents until it is killed: ``python submit_process.py URL BLOBS NUMBER``."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.conformance.durable.documents_kit import Fleet, document

from lexigram.blobs.config import BlobConfig
from lexigram.blobs.store import BlobStore
from lexigram.sql import Database


async def main(url: str, root: str, number: str) -> None:
    async with Database(url) as database:
        fleet = Fleet(database, await BlobStore.open(BlobConfig(root=root)))
        print("ready", flush=True)
        turn = 0
        while True:
            turn += 1
            names = [f"{number}/{turn}/{n}" for n in range(20)]
            await fleet.runs.submit([document(name, name.encode()) for name in names])
            # the same contents again, removed and brought by others meanwhile
            await fleet.runs.cancel(await fleet.runs.submit([document("shared", b"shared")]))


asyncio.run(main(*sys.argv[1:]))

"""Blobs in a folder, beside files written by hand with the same promises."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

from anyio import to_thread
from harness import Case, Plan, Section, Target, Work, measure

from lexigram.blobs import BlobConfig, BlobStore

TITLE = "Blobs"
PEERS = ("opendal",)

HAND, OURS, RAW = "files, flushed and renamed", "lexigram", "files, just written"
SIZES = {"4 KiB": 4096, "1 MiB": 1024 * 1024}
NOTE = (
    "A blob in a folder. By hand: a thread writes a temporary file, flushes it to the disk and "
    "renames it, which is what an upload promises; a thread reads the whole file. The last row of a "
    "write promises nothing after a crash. Ours also looks for links that lead out of the folder."
)


async def parts(plan: Plan) -> AsyncIterator[Section]:
    with tempfile.TemporaryDirectory() as folder:
        store = await BlobStore.open(BlobConfig(root=f"{folder}/ours"))
        plain = Path(folder) / "plain"
        plain.mkdir()
        works = []
        for title, size in SIZES.items():
            data = os.urandom(size)
            works += [put(title, data, store, plain), await get(title, data, store, plain)]
        await measure(works, plan)
        yield Section("A folder", NOTE, works)


def put(title: str, data: bytes, store: BlobStore, plain: Path) -> Work:
    def by_hand() -> None:
        temporary = plain / uuid4().hex
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(plain / "blob")

    cases = [
        Case(HAND, timed(lambda: to_thread.run_sync(by_hand))),
        Case(OURS, timed(lambda: store.upload("blob", data))),
        Case(RAW, timed(lambda: to_thread.run_sync((plain / "raw").write_bytes, data))),
    ]
    return Work(f"put {title}", "µs", HAND, cases, {OURS: Target(2.0, HAND)})


async def get(title: str, data: bytes, store: BlobStore, plain: Path) -> Work:
    name = f"read-{len(data)}"
    (plain / name).write_bytes(data)
    await store.upload(name, data)
    assert await store.download(name) == data
    cases = [
        Case(HAND, timed(lambda: to_thread.run_sync((plain / name).read_bytes))),
        Case(OURS, timed(lambda: store.download(name))),
    ]
    return Work(f"get {title}", "µs", HAND, cases)


def timed(call):
    async def run(loops: int) -> int:
        start = time.perf_counter_ns()
        for _ in range(loops):
            await call()
        return time.perf_counter_ns() - start

    return run

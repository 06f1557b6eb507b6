"""A writer is killed with SIGKILL at random moments: no half blob, and nothing left for ever."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from tests.processes import Popen

from lexigram.blobs import BlobConfig, BlobStore

HANG_GUARD = 60  # seconds
ROUNDS = int(os.environ.get("LEX_CHAOS_ROUNDS", "5"))
PIECE = 1024 * 1024
OLD = b"the old content"

# Uploads one stream after the other for ever, each piece filled with the number of the upload.
WRITER = f"""
import sys
import anyio
from lexigram.blobs import BlobConfig, BlobStore

async def pieces(number):
    for n in range(32):
        yield bytes([number % 256]) * {PIECE}

async def main(root):
    store = await BlobStore.open(BlobConfig(root=root))
    number = 0
    while True:
        number += 1
        print(number, flush=True)
        await store.upload_stream("replaced", pieces(number))
        await store.upload_stream(f"new/{{number}}", pieces(number))

anyio.run(main, sys.argv[1])
"""


@pytest.mark.promise
@pytest.mark.anyio
@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_a_writer_killed_half_way_leaves_no_readable_half_blob(tmp_path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    root = tmp_path / "blobs"
    store = await BlobStore.open(BlobConfig(root=str(root), stale_upload_after=0.001))
    await store.upload("replaced", OLD)
    halves = 0
    for _ in range(ROUNDS):
        kill_a_writer(root, dice)
        halves += len(list((root / ".uploads").iterdir()))
        async for info in store.list():
            await assert_whole(store, info)
        time.sleep(0.01)  # noqa: ASYNC251 - older than stale_upload_after
        await store.sweep()
        assert list((root / ".uploads").iterdir()) == []
        for path in [info.path async for info in store.list("new/")]:
            await store.delete(path)
    assert halves > 0, "no round killed a writer half-way: the test proved nothing"


async def assert_whole(store, info):
    data = await store.download(info.path)
    if data == OLD:
        return
    assert len(data) == 32 * PIECE
    assert data == data[:1] * len(data)


def kill_a_writer(root, dice):
    with Popen(
        [sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        wanted = dice.randint(1, 3)
        for line in writer.stdout:
            if int(line) >= wanted:
                break
        deadline = time.monotonic() + HANG_GUARD
        # Half-way: something is being written right now.
        while time.monotonic() < deadline:
            if any(size_of(path) > 0 for path in (root / ".uploads").iterdir()):
                break
        time.sleep(dice.random() * 0.02)
        writer.send_signal(signal.SIGKILL)
        assert writer.wait(HANG_GUARD) == -signal.SIGKILL


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

"""Uploads to a disk that is really full."""

import pytest
from tests.disks import run_on_small_disk

UPLOAD = """
import asyncio, pathlib, shutil, sys
from lexigram.blobs import BlobConfig, BlobStore
from lexigram.contracts.data.blobs import BlobError
from lexigram.testing import wait_until

folder = pathlib.Path(sys.argv[1])

async def pieces():
    for _ in range(100):
        yield b"new" * 10_000

async def has_room():
    return shutil.disk_usage(folder).free > 500_000

async def refused(upload):
    try:
        await upload
    except BlobError as error:
        return str(error)
    raise AssertionError("there was room")

async def main():
    store = await BlobStore.open(BlobConfig(root=str(folder)))
    await store.upload("report", b"old")
    print(await refused(store.upload("report", b"new" * 1_000_000)))
    print(await refused(store.upload_stream("report", pieces())))
    assert await store.download("report") == b"old"
    assert [info.path async for info in store.list()] == ["report"]
    assert list((folder / ".uploads").iterdir()) == [], "half an upload takes the last room"
    await wait_until(has_room)  # a thread of opendal closes the file of the half upload
    await store.upload("report", b"new")
    assert await store.download("report") == b"new"

asyncio.run(main())
"""


@pytest.mark.promise
def test_a_full_disk_refuses_an_upload_and_leaves_the_old_blob(tmp_path):
    done = run_on_small_disk(UPLOAD, tmp_path, size="1m")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert "report could not be written" in line
        assert "no storage space" in line

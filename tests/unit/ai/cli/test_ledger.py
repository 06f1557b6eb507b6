"""The ledger only saves work: what cannot be read counts as nothing."""

import pytest

from lexigram.ai.workers.cli.ledger import Ledgers
from lexigram.blobs.config import BlobConfig
from lexigram.blobs.store import BlobStore

pytestmark = pytest.mark.anyio


@pytest.fixture
async def blobs():
    return await BlobStore.open(BlobConfig(scheme="memory"))


async def test_a_ledger_is_found_again_by_paths_and_what_else_was_asked_for(blobs):
    ledgers = Ledgers(blobs)
    ledger = await ledgers.read(["/b", "/a"], ["batch", None])
    ledger.group, ledger.files = 3, {"/a/x.md": "sha256-1"}
    await ledgers.write(ledger)
    assert await ledgers.read(["/a", "/b"], ["batch", None]) == ledger
    assert (await ledgers.read(["/a"], ["batch", None])).group is None
    assert (await ledgers.read(["/a", "/b"])).group is None
    assert [one async for one in ledgers.all()] == [ledger]


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"roots": [], "new": 1}', b"\xff"])
async def test_what_another_version_wrote_counts_as_nothing(blobs, data):
    ledgers = Ledgers(blobs)
    await ledgers.write(await ledgers.read(["/a"]))
    [info] = [one async for one in blobs.list("ingest/")]
    await blobs.upload(info.path, data)
    assert (await ledgers.read(["/a"])).files == {}
    assert [one async for one in ledgers.all()] == []

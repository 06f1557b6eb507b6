"""Processes that submit documents are killed: no row is without its bytes, what is left is swept."""

import sys
from pathlib import Path

import anyio
import pytest
from tests.conformance.durable.documents_kit import Fleet

from lexigram.blobs.config import BlobConfig
from lexigram.blobs.store import BlobStore
from lexigram.sql import Database

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).with_name("submit_process.py")
KILLS = 4


@pytest.mark.promise
async def test_killed_submissions_leave_no_row_without_its_bytes(sqlite_url, tmp_path):
    root = str(tmp_path / "blobs")
    async with Database(sqlite_url) as database:
        fleet = Fleet(database, await BlobStore.open(BlobConfig(root=root)))
        for number in range(KILLS):
            await _killed(database, sqlite_url, root, number)
            await _check(fleet)
        await fleet.documents.sweep(older_than=-1)
        kept = [info.path async for info in fleet.artifacts.blobs.list()]
        documents = await database.execute_query("SELECT hash FROM lexigram_durable_documents")
        assert sorted(kept) == sorted(f"raw/{row['hash']}" for row in documents.rows)


async def _killed(database, url, root, number):
    """Let it submit something, then kill it at whatever it is doing."""
    count = "SELECT count(*) AS n FROM lexigram_durable_groups"
    before = (await database.execute_query(count)).rows[0]["n"]
    async with await anyio.open_process(
        [sys.executable, str(PROGRAM), url, root, str(number)], stderr=None
    ) as process:
        while (await database.execute_query(count)).rows[0]["n"] < before + 3 + number:
            assert process.returncode is None
            await anyio.sleep(0.003 * (number + 1))
        process.kill()
        await process.wait()


async def _check(fleet):
    documents = await fleet.engine.database.execute_query(
        "SELECT hash FROM lexigram_durable_documents"
    )
    for row in documents.rows:
        assert await fleet.artifacts.document(row["hash"]).exists()
    # rows of one submission come together
    lonely = await fleet.engine.database.execute_query(
        "SELECT id FROM lexigram_durable_batches b WHERE NOT EXISTS (SELECT 1 FROM"
        " lexigram_durable_groups g WHERE g.batch_id = b.id)"
    )
    assert lonely.rows == []

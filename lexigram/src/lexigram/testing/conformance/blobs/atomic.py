"""A blob is there in full, or as it was before, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.testing.conformance.blobs.spec import LARGE, BlobCapability, BlobSpec, pattern, pieces


class Broken(Exception):
    """The source of a stream failed."""


async def breaking(data: bytes) -> AsyncIterator[bytes]:
    async for piece in pieces(data):
        yield piece
    raise Broken


class AtomicSpec(BlobSpec, capability=BlobCapability.ATOMIC):
    """What a failed, a cancelled and a competing write leave."""

    async def test_a_source_that_fails_leaves_no_blob(self, subject: BlobStoreProtocol) -> None:
        with pytest.raises(Broken):
            await subject.upload_stream("a/new", breaking(pattern(LARGE)))
        assert not await subject.exists("a/new")
        assert [info async for info in subject.list()] == []

    async def test_a_source_that_fails_leaves_the_old_blob(
        self, subject: BlobStoreProtocol
    ) -> None:
        await subject.upload("a", b"old")
        with pytest.raises(Broken):
            await subject.upload_stream("a", breaking(pattern(LARGE)))
        assert await subject.download("a") == b"old"

    async def test_a_cancelled_upload_leaves_the_old_blob(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a", b"old")
        reached = anyio.Event()

        async def hanging() -> AsyncIterator[bytes]:
            async for piece in pieces(pattern(LARGE)):
                yield piece
            reached.set()
            await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subject.upload_stream, "a", hanging())
            await reached.wait()
            assert await subject.download("a") == b"old"
            tasks.cancel_scope.cancel()
        assert await subject.download("a") == b"old"
        assert [info.path async for info in subject.list()] == ["a"]

    async def test_of_concurrent_writes_one_wins_whole(self, subject: BlobStoreProtocol) -> None:
        contents = [pattern(300_000 + n, seed=n * 1_000_000) for n in range(6)]
        async with anyio.create_task_group() as tasks:
            for content in contents:
                tasks.start_soon(subject.upload_stream, "a", pieces(content, 50_000))
        assert await subject.download("a") in contents

    async def test_a_reader_sees_one_version_while_the_blob_is_replaced(
        self, subject: BlobStoreProtocol
    ) -> None:
        old, new = pattern(LARGE), pattern(LARGE, seed=1 << 40)
        await subject.upload("a", old)
        got = b""
        async for piece in subject.download_stream("a"):
            if not got:
                await subject.upload("a", new)
            got += piece
        assert got in {old, new}
        assert await subject.download("a") == new

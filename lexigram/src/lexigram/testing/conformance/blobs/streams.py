"""Pieces in, pieces out, never the whole in memory."""

from __future__ import annotations

import hashlib

import pytest

from lexigram.contracts.data.blobs import BlobCorruptError, BlobStoreProtocol
from lexigram.testing.conformance.blobs.spec import LARGE, BlobCapability, BlobSpec, pattern, pieces


class StreamsSpec(BlobSpec, capability=BlobCapability.STREAMS):
    """upload_stream, download_stream."""

    async def test_a_large_stream_comes_back_in_order(self, subject: BlobStoreProtocol) -> None:
        data = pattern(LARGE)
        await subject.upload_stream("large", pieces(data, 700_001))
        got = [piece async for piece in subject.download_stream("large")]
        assert b"".join(got) == data
        assert max(map(len, got)) <= LARGE // 2  # a piece is a piece

    async def test_pieces_may_be_tiny_empty_or_none_at_all(
        self, subject: BlobStoreProtocol
    ) -> None:
        await subject.upload_stream("tiny", pieces(b"abc", 1))
        assert await subject.download("tiny") == b"abc"
        await subject.upload_stream("nothing", pieces(b""))
        assert await subject.download("nothing") == b""

    async def test_a_wrong_hash_is_told_after_the_last_piece(
        self, subject: BlobStoreProtocol
    ) -> None:
        data = pattern(100_000)
        await subject.upload("a", data)
        right = hashlib.sha256(data).hexdigest()
        assert b"".join([p async for p in subject.download_stream("a", sha256=right)]) == data
        got = bytearray()

        async def read() -> None:
            async for piece in subject.download_stream("a", sha256="0" * 64):
                got.extend(piece)

        with pytest.raises(BlobCorruptError):
            await read()
        assert got == data

    async def test_a_reader_may_stop_early(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a", pattern(LARGE))
        stream = subject.download_stream("a")
        async for piece in stream:
            assert piece
            break
        await stream.aclose()  # type: ignore[attr-defined]
        assert await subject.delete("a")

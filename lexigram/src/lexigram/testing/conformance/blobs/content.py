"""Bytes come back as they were written."""

from __future__ import annotations

import hashlib

import pytest

from lexigram.contracts.data.blobs import BlobCorruptError, BlobNotFoundError, BlobStoreProtocol
from lexigram.testing.conformance.blobs.spec import BlobCapability, BlobSpec


class ContentSpec(BlobSpec, capability=BlobCapability.CONTENT):
    """upload, download, stat, exists, delete."""

    async def test_what_was_uploaded_is_downloaded_by_the_reference(
        self, subject: BlobStoreProtocol
    ) -> None:
        reference = await subject.upload("reports/2026/may.bin", b"\x00\xff bytes")
        assert await subject.download(reference) == b"\x00\xff bytes"

    async def test_an_empty_blob_is_a_blob(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("empty", b"")
        assert await subject.download("empty") == b""
        info = await subject.stat("empty")
        assert info is not None
        assert info.size == 0

    async def test_the_second_upload_replaces_the_first(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a/b", b"the first, which is longer")
        await subject.upload("a/b", b"second")
        assert await subject.download("a/b") == b"second"

    async def test_names_are_kept_as_they_are(self, subject: BlobStoreProtocol) -> None:
        names = ["Äpfel & Birnen.txt", "100%25.txt", "a b/c+d.txt", "x?y=z#f", "UPPER", "upper"]
        for name in names:
            await subject.upload(name, name.encode())
        assert [await subject.download(name) for name in names] == [n.encode() for n in names]

    async def test_stat_tells_path_and_size(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a/b", b"12345")
        info = await subject.stat("a/b")
        assert info is not None
        assert (info.path, info.size) == ("a/b", 5)

    async def test_what_is_not_there_is_told_by_every_method(
        self, subject: BlobStoreProtocol
    ) -> None:
        await subject.upload("a/b", b"1")
        for missing in ("none", "a/none", "a"):
            assert await subject.stat(missing) is None
            assert not await subject.exists(missing)
            assert not await subject.delete(missing)
            with pytest.raises(BlobNotFoundError, match=missing):
                await subject.download(missing)
            with pytest.raises(BlobNotFoundError, match=missing):
                [piece async for piece in subject.download_stream(missing)]

    async def test_a_deleted_blob_is_gone(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a/b", b"1")
        assert await subject.exists("a/b")
        assert await subject.delete("a/b")
        assert not await subject.exists("a/b")
        assert not await subject.delete("a/b")

    async def test_the_hash_is_checked_when_asked_for(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a", b"content")
        right = hashlib.sha256(b"content").hexdigest()
        assert await subject.download("a", sha256=right) == b"content"
        with pytest.raises(BlobCorruptError, match="a does not have the hash"):
            await subject.download("a", sha256=hashlib.sha256(b"other").hexdigest())

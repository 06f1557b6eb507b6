"""The conformance suite of BlobStoreProtocol."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import anyio
import pytest

from lexigram.contracts.data.blobs import (
    BlobCorruptError,
    BlobNotFoundError,
    BlobPathError,
    BlobStoreProtocol,
)
from lexigram.testing.conformance.suite import ConformanceSuite

__all__ = ["BlobCapability", "BlobConformance"]


# More than a store is likely to send in one piece.
LARGE = 12 * 1024 * 1024


class BlobCapability(StrEnum):
    """What a blob store can do. The first five are the core."""

    CONTENT = "content"  # write, read, replace, remove, look at
    STREAMS = "streams"  # pieces in both directions
    ATOMIC = "atomic"  # a write that fails leaves nothing to read
    LISTING = "listing"
    PATHS = "paths"  # what could lead out of the store is refused
    CONTENT_TYPES = "content_types"  # stat returns the type that upload got
    TIMES = "times"  # stat tells when a blob was written


class BlobSpec(ConformanceSuite):
    """The contract and its core."""

    contract = BlobStoreProtocol
    core = frozenset(
        {
            BlobCapability.CONTENT,
            BlobCapability.STREAMS,
            BlobCapability.ATOMIC,
            BlobCapability.LISTING,
            BlobCapability.PATHS,
        }
    )


async def pieces(data: bytes, size: int = 1024 * 1024) -> AsyncIterator[bytes]:
    """The data in pieces."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


def pattern(size: int, seed: int = 0) -> bytes:
    """Bytes that are different everywhere, so that a wrong order or a hole shows."""
    words = range(seed, seed + size // 8 + 1)
    return b"".join(word.to_bytes(8) for word in words)[:size]


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

    async def test_every_method_reports_a_missing_blob(self, subject: BlobStoreProtocol) -> None:
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

    async def test_a_wrong_hash_is_reported_after_the_last_piece(
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


class ListingSpec(BlobSpec, capability=BlobCapability.LISTING):
    """list."""

    async def test_a_new_store_is_empty(self, subject: BlobStoreProtocol) -> None:
        assert [info async for info in subject.list()] == []
        assert [info async for info in subject.list("nowhere/")] == []

    async def test_blobs_are_listed_with_their_sizes_and_folders_are_not(
        self, subject: BlobStoreProtocol
    ) -> None:
        await subject.upload("a", b"1")
        await subject.upload("b/c/d", b"22")
        found = {info.path: info.size async for info in subject.list()}
        assert found == {"a": 1, "b/c/d": 2}

    async def test_a_prefix_is_the_beginning_of_the_path(self, subject: BlobStoreProtocol) -> None:
        for path in ("ab", "abc/x", "abd", "b/ab"):
            await subject.upload(path, b"")
        assert {info.path async for info in subject.list("ab")} == {"ab", "abc/x", "abd"}
        assert {info.path async for info in subject.list("abc")} == {"abc/x"}
        assert {info.path async for info in subject.list("abc/")} == {"abc/x"}

    async def test_many_blobs_are_all_listed(self, subject: BlobStoreProtocol) -> None:
        paths = {f"many/{n:04}" for n in range(300)}
        for path in paths:
            await subject.upload(path, b"")
        assert {info.path async for info in subject.list("many/")} == paths

    async def test_a_prefix_that_leads_out_is_refused(self, subject: BlobStoreProtocol) -> None:
        for prefix in ("../", "/", "a/../..", "a\x00"):
            with pytest.raises(BlobPathError):
                [info async for info in subject.list(prefix)]


REFUSED = (
    *("", "/", ".", "..", "../x", "a/../x", "a/../../x", "a/.."),
    *("/etc/passwd", "//host/share", "C:/x", "c:x"),
    *("a\x00b", "a\nb", "..\\x", "a\\..\\..\\x", "\\\\host\\share"),
    *("a//b", "a/", "./a", "a/./b", " a", "a ", "a\ud800", "x" * 300, "x/" * 600 + "x"),
)


class PathsSpec(BlobSpec, capability=BlobCapability.PATHS):
    """BlobPathError by every method, naming the path."""

    @pytest.mark.parametrize("path", REFUSED)
    async def test_a_path_that_could_lead_out_is_refused_by_every_method(
        self, subject: BlobStoreProtocol, path: str
    ) -> None:
        calls = (
            lambda: subject.upload(path, b""),
            lambda: subject.upload_stream(path, pieces(b"x")),
            lambda: subject.download(path),
            lambda: subject.stat(path),
            lambda: subject.exists(path),
            lambda: subject.delete(path),
        )
        for call in calls:
            with pytest.raises(BlobPathError) as caught:
                await call()
            assert repr(path) in str(caught.value)
        with pytest.raises(BlobPathError):
            [piece async for piece in subject.download_stream(path)]
        assert [info async for info in subject.list()] == []

    async def test_dots_inside_a_name_are_fine(self, subject: BlobStoreProtocol) -> None:
        for path in ("..a", "a..", "...", ".hidden", "a/..b/c"):
            await subject.upload(path, b"x")
            assert await subject.download(path) == b"x"


class ContentTypesSpec(BlobSpec, capability=BlobCapability.CONTENT_TYPES):
    """The type given to upload."""

    async def test_the_content_type_is_kept(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a", b"x", "text/markdown")
        await subject.upload_stream("b", pieces(b"x"), "image/png")
        described = [await subject.stat(path) for path in ("a", "b")]
        assert [info and info.content_type for info in described] == ["text/markdown", "image/png"]


class TimesSpec(BlobSpec, capability=BlobCapability.TIMES):
    """The time of the write."""

    async def test_the_time_of_the_write_has_a_zone(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a", b"x")
        info = await subject.stat("a")
        assert info is not None
        assert info.modified_at is not None
        assert abs(datetime.now(UTC) - info.modified_at) < timedelta(hours=1)


class BlobConformance(
    ContentSpec, StreamsSpec, AtomicSpec, ListingSpec, PathsSpec, ContentTypesSpec, TimesSpec
):
    """Run it on a blob store: ``conformance_suite(BlobConformance, make_store)``."""

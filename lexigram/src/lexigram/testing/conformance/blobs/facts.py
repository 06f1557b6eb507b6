"""What some stores remember about a blob."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.testing.conformance.blobs.spec import BlobCapability, BlobSpec, pieces


class ContentTypesSpec(BlobSpec, capability=BlobCapability.CONTENT_TYPES):
    """The type given to upload."""

    async def test_the_content_type_is_kept(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a", b"x", "text/markdown")
        await subject.upload_stream("b", pieces(b"x"), "image/png")
        told = [await subject.stat(path) for path in ("a", "b")]
        assert [info and info.content_type for info in told] == ["text/markdown", "image/png"]


class TimesSpec(BlobSpec, capability=BlobCapability.TIMES):
    """The time of the write."""

    async def test_the_time_of_the_write_has_a_zone(self, subject: BlobStoreProtocol) -> None:
        await subject.upload("a", b"x")
        info = await subject.stat("a")
        assert info is not None
        assert info.modified_at is not None
        assert abs(datetime.now(UTC) - info.modified_at) < timedelta(hours=1)

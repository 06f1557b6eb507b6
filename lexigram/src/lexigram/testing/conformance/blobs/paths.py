"""No path leads out of the store."""

from __future__ import annotations

import pytest

from lexigram.contracts.data.blobs import BlobPathError, BlobStoreProtocol
from lexigram.testing.conformance.blobs.spec import BlobCapability, BlobSpec, pieces

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

"""What is there can be found."""

from __future__ import annotations

import pytest

from lexigram.contracts.data.blobs import BlobPathError, BlobStoreProtocol
from lexigram.testing.conformance.blobs.spec import BlobCapability, BlobSpec


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

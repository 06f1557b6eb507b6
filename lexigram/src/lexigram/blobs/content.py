"""Blobs named by what is in them: the same bytes are kept once, and reading checks them."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import AsyncIterable, AsyncIterator
from typing import IO, Final

import anyio
from anyio import to_thread

from lexigram.blobs.paths import check_path
from lexigram.blobs.store import READ_SIZE, update_hash
from lexigram.contracts.data.blobs import BlobPathError, BlobStoreProtocol

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# A stream up to this size waits in memory for its hash, a larger one in a temporary file.
_IN_MEMORY: Final = 4 * READ_SIZE


class ContentStore:
    """Puts bytes under their sha256 and gives them back checked.

    Putting what is there already writes nothing; of the blob that is there only the size is
    compared, so damage is found by reading.
    """

    def __init__(self, blobs: BlobStoreProtocol, *, folder: str = "sha256") -> None:
        check_path(folder)
        self._blobs = blobs
        self._folder = folder

    def path(self, sha256: str) -> str:
        """Where the content with this hash lies, whether or not it is there."""
        if not _SHA256.fullmatch(sha256):
            raise BlobPathError(
                f"{sha256!r} is not a sha256",
                details={"path": sha256},
                hint="64 hexadecimal digits in lower case, as put() returns them",
            )
        # Folders of moderate size: file systems are slow with a million names in one.
        return f"{self._folder}/{sha256[:2]}/{sha256}"

    async def put(self, data: bytes, content_type: str | None = None) -> str:
        """Keep the bytes; returns their sha256."""
        hasher = hashlib.sha256()
        await update_hash(hasher, data)
        digest = hasher.hexdigest()
        if not await self._has(digest, len(data)):
            await self._blobs.upload(self.path(digest), data, content_type)
        return digest

    async def put_stream(
        self, chunks: AsyncIterable[bytes], content_type: str | None = None
    ) -> str:
        """The same from pieces, in bounded memory; nothing is kept when ``chunks`` raises."""
        spool = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed in a thread
        try:
            digest, size = await _fill(spool, chunks)
            if not await self._has(digest, size):
                await self._blobs.upload_stream(self.path(digest), _drain(spool), content_type)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(spool.close)
        return digest

    async def get(self, sha256: str) -> bytes:
        """The bytes. Raises BlobNotFoundError, or BlobCorruptError when they were damaged."""
        return await self._blobs.download(self.path(sha256), sha256=sha256)

    def get_stream(self, sha256: str) -> AsyncIterator[bytes]:
        """The bytes in chunks; a damaged blob raises BlobCorruptError after the last one."""
        return self._blobs.download_stream(self.path(sha256), sha256=sha256)

    async def exists(self, sha256: str) -> bool:
        """True when there is content with this hash."""
        return await self._blobs.exists(self.path(sha256))

    async def delete(self, sha256: str) -> bool:
        """Remove the content, for all who put it; False when there was none."""
        return await self._blobs.delete(self.path(sha256))

    async def _has(self, digest: str, size: int) -> bool:
        found = await self._blobs.stat(self.path(digest))
        return found is not None and found.size == size


async def _fill(spool: IO[bytes], chunks: AsyncIterable[bytes]) -> tuple[str, int]:
    hasher = hashlib.sha256()
    size = 0
    async for piece in chunks:
        await update_hash(hasher, piece)
        await to_thread.run_sync(spool.write, piece)
        size += len(piece)
    return hasher.hexdigest(), size


async def _drain(spool: IO[bytes]) -> AsyncIterator[bytes]:
    await to_thread.run_sync(spool.seek, 0)
    while piece := await to_thread.run_sync(spool.read, READ_SIZE):
        yield piece

"""Files by path, wherever they are kept."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from lexigram.contracts.core.errors import InfrastructureError


class BlobError(InfrastructureError):
    """The blob store failed."""

    code = "LEX_ERR_BLOB_001"


class BlobNotFoundError(BlobError, LookupError):
    """There is no blob at this path."""

    code = "LEX_ERR_BLOB_002"


class BlobCorruptError(BlobError):
    """The content does not have the hash it should have."""

    code = "LEX_ERR_BLOB_003"


class BlobPathError(BlobError, ValueError):
    """The path could lead out of the store, or is not a path at all."""

    code = "LEX_ERR_BLOB_004"
    is_retryable = False


@dataclass(frozen=True)
class BlobInfo:
    """What is known about a blob without reading it."""

    path: str
    size: int
    # None where the store does not keep it
    modified_at: datetime | None = None
    content_type: str | None = None


@runtime_checkable
class BlobStoreProtocol(Protocol):
    """Bytes under relative paths with ``/``.

    A write is atomic: a reader sees the old blob, the new one or none, never a half, also after
    a crash. The last of two concurrent writes wins. Listing is not a snapshot. Every method
    raises BlobPathError for a path that is empty, absolute, has ``..`` or NUL, or leaves the
    store by a link, and BlobError when the store fails.
    """

    async def upload(self, path: str, data: bytes, content_type: str | None = None) -> str:
        """Write the bytes, replacing what was there; returns the reference for ``download``."""
        ...

    async def upload_stream(
        self, path: str, chunks: AsyncIterable[bytes], content_type: str | None = None
    ) -> str:
        """The same from pieces; an exception in ``chunks`` leaves the old blob untouched."""
        ...

    async def download(self, path: str, *, sha256: str | None = None) -> bytes:
        """The bytes. Raises BlobNotFoundError, or BlobCorruptError when they lack the hash."""
        ...

    def download_stream(self, path: str, *, sha256: str | None = None) -> AsyncIterator[bytes]:
        """The bytes in pieces; errors as for ``download``, a wrong hash after the last piece."""
        ...

    async def stat(self, path: str) -> BlobInfo | None:
        """What is known about the blob, or None when there is none."""
        ...

    async def exists(self, path: str) -> bool:
        """True when there is a blob; may already be stale."""
        ...

    async def delete(self, path: str) -> bool:
        """Remove the blob; False when there was none."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        """The blobs whose path starts with the prefix, in no order."""
        ...

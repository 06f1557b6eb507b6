"""What the specs of the blob contract share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum

from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.testing.conformance.suite import ConformanceSuite

# More than a store is likely to send in one piece.
LARGE = 12 * 1024 * 1024


class BlobCapability(StrEnum):
    """What a blob store can do. The first five are the core."""

    CONTENT = "content"  # write, read, replace, remove, look at
    STREAMS = "streams"  # pieces in both directions
    ATOMIC = "atomic"  # a write that fails leaves nothing to read
    LISTING = "listing"
    PATHS = "paths"  # what could lead out of the store is refused
    CONTENT_TYPES = "content_types"  # stat tells what upload was told
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

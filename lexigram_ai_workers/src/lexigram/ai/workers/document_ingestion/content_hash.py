"""Content hashes, in the format of durable runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def content_hash(data: bytes) -> str:
    """Return the content hash of some bytes."""
    return content_hash_of((data,))


def content_hash_of(pieces: Iterable[bytes]) -> str:
    """Return the content hash of bytes in pieces."""
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return f"sha256-{hasher.hexdigest()}"

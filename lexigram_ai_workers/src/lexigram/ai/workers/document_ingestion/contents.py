"""The name of a content: the same wherever its bytes are met, and as durable runs give it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def content_hash(data: bytes) -> str:
    """The name of these bytes."""
    return content_hash_of((data,))


def content_hash_of(pieces: Iterable[bytes]) -> str:
    """The name of a content that comes in pieces, however it is cut."""
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return f"sha256-{hasher.hexdigest()}"

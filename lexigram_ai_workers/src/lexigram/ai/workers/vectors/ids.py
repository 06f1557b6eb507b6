"""Record ids of chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def chunk_ids(chunks: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return the ids of chunks, each given as source, heading path and text.

    Ids are deterministic, so that storing a chunk again replaces it. Equal texts of a source
    under the same heading are numbered.
    """
    seen: dict[str, int] = {}
    ids: list[str] = []
    for source, heading, text in chunks:
        base = f"{source}\0{heading}\0{text}"
        seen[base] = number = seen.get(base, -1) + 1
        data = f"{base}\0{number}".encode("utf-8", "surrogatepass")
        ids.append(hashlib.sha256(data).hexdigest()[:32])
    return ids

"""What the steps of ingestion did in this process, for whoever shows progress."""

from __future__ import annotations

from attrs import define


@define
class IngestionFigures:
    """Counts since the start of the application; the steps add to them."""

    # chunks that got a vector, and those of them whose vector was known
    embedded: int = 0
    cache_hits: int = 0
    # chunks written to the index, and documents that were in it as they are
    stored: int = 0
    unchanged: int = 0

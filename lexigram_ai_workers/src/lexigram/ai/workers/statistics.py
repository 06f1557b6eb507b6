"""Statistics of the ingestion steps of this process, for progress displays."""

from __future__ import annotations

from attrs import define


@define
class IngestionStatistics:
    """Counts since the start of the application, updated by the steps."""

    # embedded chunks, and cache hits among them
    embedded: int = 0
    cache_hits: int = 0
    # chunks written to the index, and unchanged documents
    stored: int = 0
    unchanged: int = 0

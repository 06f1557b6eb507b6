"""Content checkpoint entries as JSON-ready data and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lexigram.contracts.workflow.content_checkpoint import ContentCheckpointEntry


def entry_to_data(entry: ContentCheckpointEntry) -> dict[str, Any]:
    """The entry as plain data."""
    return {
        "output": entry.output,
        "output_blob_ref": entry.output_blob_ref,
        "completed_at": entry.completed_at.isoformat(),
        "stage_handler_version": entry.stage_handler_version,
        "output_size_bytes": entry.output_size_bytes,
        "metadata": dict(entry.metadata),
    }


def entry_from_data(data: Mapping[str, Any]) -> ContentCheckpointEntry:
    """The inverse."""
    values = dict(data)
    values["completed_at"] = datetime.fromisoformat(data["completed_at"])
    return ContentCheckpointEntry(**values)

"""The import path of canonical JSON in the 0.1 line."""

from lexigram.contracts.workflow.content_checkpoint import canonical_json_bytes

__all__ = ["canonical_json_bytes"]

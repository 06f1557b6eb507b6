"""Remember the output of a stage by the content of its inputs, so equal work is done once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, Self, runtime_checkable


@dataclass(frozen=True)
class ContentCheckpointKey:
    """The stage, its owner, its inputs and settings."""

    stage_id: str
    tenant_id: str | None
    input_hash: bytes
    config_hash: bytes

    @classmethod
    def compute(
        cls,
        stage_id: str,
        tenant_id: str | None,
        inputs: Any,
        stage_handler_version: str,
        config_affecting_output: Mapping[str, Any],
    ) -> Self:
        """The key for these inputs; equal in every process. TypeError for values not JSON."""
        config = {"handler_version": stage_handler_version, "config": config_affecting_output}
        return cls(stage_id, tenant_id, _sha256(inputs), _sha256(config))

    def as_str(self) -> str:
        """``stage|tenant|inputs|config``, hashes in hex, ``_global`` without a tenant."""
        tenant = self.tenant_id or "_global"
        return f"{self.stage_id}|{tenant}|{self.input_hash.hex()}|{self.config_hash.hex()}"


@dataclass(frozen=True)
class ContentCheckpointEntry:
    """The output of a stage, here or in a blob."""

    output: Any
    # set when the output is too large to be kept here
    output_blob_ref: str | None
    completed_at: datetime
    stage_handler_version: str
    output_size_bytes: int
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@runtime_checkable
class ContentCheckpointStoreProtocol(Protocol):
    """Keeps entries by key. May forget any of them (the work is then done again)."""

    async def get(self, key: ContentCheckpointKey) -> ContentCheckpointEntry | None:
        """The entry, or None."""
        ...

    async def set(self, key: ContentCheckpointKey, entry: ContentCheckpointEntry) -> None:
        """Keep the entry. A second call may keep either: equal keys mean equal outputs."""
        ...

    async def evict(self, key: ContentCheckpointKey) -> None:
        """Forget the entry; unknown is fine."""
        ...

    async def list_by_stage(
        self, stage_id: str, tenant_id: str | None = None, limit: int = 100
    ) -> Sequence[ContentCheckpointEntry]:
        """Entries of a stage and tenant, latest first."""
        ...


def canonical_json_bytes(value: Any) -> bytes:
    """JSON that is equal for equal values: sorted keys, no spaces, UTF-8, ISO datetimes.

    Raises TypeError for what JSON does not know and ValueError for NaN and infinity.
    """
    text = json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        default=_iso,
    )
    return text.encode()


def _iso(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r}")


def _sha256(value: Any) -> bytes:
    return hashlib.sha256(canonical_json_bytes(value)).digest()

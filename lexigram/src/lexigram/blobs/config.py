"""Section ``blobs``: where blobs are kept, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen
from attrs.validators import ge, gt, min_len

from lexigram.config import BaseConfig, ConfigIssue, Environment, doc

# The smallest part of an S3 upload, except its last.
SMALLEST_CHUNK = 5 * 1024 * 1024


@frozen(kw_only=True)
class BlobConfig(BaseConfig):
    """Section ``blobs``."""

    config_section: ClassVar[str] = "blobs"

    scheme: str = field(
        default="fs",
        validator=min_len(1),
        metadata=doc(
            "Who keeps them: fs, s3, memory, or any other service of opendal by its name."
        ),
    )
    root: str = field(
        default="data/blobs",
        validator=min_len(1),
        metadata=doc("The folder they lie in: on disk for fs, a common prefix elsewhere."),
    )
    options: Mapping[str, str] = field(
        factory=dict,
        metadata=doc("Settings of the service, such as bucket, region and endpoint of s3."),
    )
    chunk_size: int = field(
        default=8 * 1024 * 1024,
        validator=ge(SMALLEST_CHUNK),
        metadata=doc("Bytes held in memory while a stream is written or read."),
    )
    stale_upload_after: float = field(
        default=3600.0,
        validator=gt(0),
        metadata=doc("Seconds without a write after which what a dead writer left is removed."),
    )

    def validate_for_environment(self, env: Environment) -> list[ConfigIssue]:
        """Blobs in memory are gone with the process."""
        if env is Environment.PRODUCTION and self.scheme == "memory":
            message = "keeps blobs in memory, where a restart loses them"
            return [ConfigIssue(field="scheme", message=message)]
        return []

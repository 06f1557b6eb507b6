"""The settings of the vector store: part ``vectors`` of section ``ai_workers``."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen
from attrs.validators import and_, ge, gt, in_, le, min_len

from lexigram.config import doc, secret

PROVIDERS = ("lancedb", "qdrant", "memory")


@frozen(kw_only=True)
class VectorConfig:
    """Settings of the vector store and of searches."""

    provider: Literal["lancedb", "qdrant", "memory"] = field(
        default="lancedb",
        validator=in_(PROVIDERS),
        metadata=doc("Vector store: lancedb, qdrant (an extra), or memory (for tests)."),
    )
    path: str = field(
        default="lancedb",
        validator=min_len(1),
        metadata=doc("Folder (or URI, for lancedb) of the databases."),
    )
    database: str = field(
        default="default",
        validator=min_len(1),
        metadata=doc("Default database."),
    )
    shared_storage: bool = field(
        default=False,
        metadata=doc(
            "The folder is on storage shared by several machines: writers use the SQL lock "
            "instead of a file lock. A URI is always shared."
        ),
    )
    lock_ttl: float = field(
        default=60.0,
        validator=gt(0.0),
        metadata=doc("Lease time of the SQL lock, in seconds."),
    )
    lock_wait: float = field(
        default=120.0,
        validator=ge(0.0),
        metadata=doc("Time a writer waits for the lock, in seconds."),
    )
    flat_below: int = field(
        default=20_000,
        validator=ge(0),
        metadata=doc("Rows up to which searches are exact; above, an IVF_RQ index is built."),
    )
    refine_factor: int = field(
        default=10,
        validator=ge(1),
        metadata=doc("Index candidates per result that are compared exactly."),
    )
    dense_weight: float = field(
        default=0.7,
        validator=and_(ge(0.0), le(1.0)),
        metadata=doc(
            "Weight of the vector score in a hybrid search; the rest is the keyword score."
        ),
    )
    qdrant_url: str | None = field(
        default=None,
        metadata=doc("URL of the Qdrant server. No value: local mode in the folder."),
    )
    qdrant_api_key: str | None = field(
        default=None, metadata=secret("API key of the Qdrant server.")
    )

"""The settings of the vector store: part ``vectors`` of section ``ai_workers``."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen
from attrs.validators import and_, ge, gt, in_, le, min_len

from lexigram.config import doc, secret

PROVIDERS = ("lancedb", "qdrant", "memory")


@frozen(kw_only=True)
class VectorConfig:
    """Which store keeps the vectors, where, and how it searches."""

    provider: Literal["lancedb", "qdrant", "memory"] = field(
        default="lancedb",
        validator=in_(PROVIDERS),
        metadata=doc("Who keeps the vectors: lancedb, qdrant (an extra), or memory for tests."),
    )
    path: str = field(
        default="lancedb",
        validator=min_len(1),
        metadata=doc("The folder (or URI, for lancedb) that holds the databases."),
    )
    database: str = field(
        default="default",
        validator=min_len(1),
        metadata=doc("The database inside it that the bound store opens."),
    )
    shared_storage: bool = field(
        default=False,
        metadata=doc(
            "The folder is on storage that several machines write to: one writer at a time by "
            "the SQL lock instead of a file lock. A URI is always shared."
        ),
    )
    lock_ttl: float = field(
        default=60.0,
        validator=gt(0.0),
        metadata=doc("Seconds after which the SQL lock of a writer that died is free."),
    )
    lock_wait: float = field(
        default=120.0,
        validator=ge(0.0),
        metadata=doc("Seconds a writer waits for another one before it gives up."),
    )
    flat_below: int = field(
        default=20_000,
        validator=ge(0),
        metadata=doc("Rows up to which every vector is compared; above, IVF_RQ is built."),
    )
    refine_factor: int = field(
        default=10,
        validator=ge(1),
        metadata=doc("Candidates of the index per result that are compared exactly."),
    )
    dense_weight: float = field(
        default=0.7,
        validator=and_(ge(0.0), le(1.0)),
        metadata=doc("How much nearness counts in a hybrid search; the rest is for words."),
    )
    qdrant_url: str | None = field(
        default=None,
        metadata=doc("The Qdrant server. No value: its local mode in the folder."),
    )
    qdrant_api_key: str | None = field(
        default=None, metadata=secret("The key of the Qdrant server.")
    )

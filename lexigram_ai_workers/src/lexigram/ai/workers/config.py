"""Section ``ai_workers``: which workers run, how wide, and what they work with."""

from __future__ import annotations

from typing import ClassVar

from attrs import field, frozen
from attrs.validators import ge, gt

from lexigram.ai.workers.constants import (
    CONFIG_SECTION,
    DEFAULT_BASE_BACKOFF,
    DEFAULT_CHECK_INTERVAL,
    DEFAULT_MAX_RETRIES,
)
from lexigram.ai.workers.document_ingestion.config import IngestionConfig
from lexigram.ai.workers.embeddings.config import EmbeddingConfig
from lexigram.ai.workers.vectors.config import VectorConfig
from lexigram.config import BaseConfig, doc, secret


@frozen(kw_only=True)
class DeadLetterConfig:
    """Part ``dead_letters``: how failed jobs and messages are recovered. Times are seconds."""

    sources: tuple[str, ...] = field(
        default=("jobs", "bus"),
        metadata=doc("Whose dead letters: jobs, bus. Those the application does not have: none."),
    )
    automatic: bool = field(
        default=True,
        metadata=doc("Try again by itself; False: collect, classify and notify only."),
    )
    max_retries: int = field(
        default=DEFAULT_MAX_RETRIES, validator=ge(0), metadata=doc("Tries of one letter.")
    )
    base_backoff: float = field(
        default=float(DEFAULT_BASE_BACKOFF),
        validator=gt(0),
        metadata=doc("Before the first try; doubles each time, up to an hour."),
    )
    confirm: float = field(
        default=3600.0,
        validator=gt(0),
        metadata=doc("A message of the bus that did not come back for so long was handled."),
    )
    webhook: str = field(
        default="",
        metadata=secret("URL that gets a POST for each letter that will not be tried again."),
    )
    webhook_timeout: float = field(
        default=10.0, validator=gt(0), metadata=doc("For one call of the webhook.")
    )


@frozen(kw_only=True)
class MaintenanceConfig:
    """Part ``maintenance``: when the built-in tasks run (cron, UTC). An empty one does not run."""

    index_optimization: str = field(
        default="17 3 * * *", metadata=doc("Refresh indexes, compact, remove old versions.")
    )
    cache_cleanup: str = field(
        default="41 3 * * *", metadata=doc("Forget vectors that were not used for long.")
    )
    document_cleanup: str = field(
        default="5 4 * * *", metadata=doc("Find documents in the index whose file is gone.")
    )
    metrics_rollup: str = field(
        default="*/5 * * * *", metadata=doc("Add counters of this process to the figures.")
    )
    health_check: str = field(
        default="* * * * *", metadata=doc("Ask store, queue and cache whether they answer.")
    )
    timeout: float = field(
        default=3600.0, validator=gt(0), metadata=doc("Seconds one run of a built-in may take.")
    )
    check_interval: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("Seconds between looks at what others paused, resumed and ran."),
    )
    cache_max_age_days: float = field(
        default=30.0, validator=gt(0), metadata=doc("Vectors unused for longer are forgotten.")
    )
    delete_documents: bool = field(
        default=False,
        metadata=doc("Remove documents whose file is gone; False: only say which they are."),
    )
    keep_figures_days: float = field(
        default=90.0, validator=gt(0), metadata=doc("Figures older than this are forgotten.")
    )


@frozen(kw_only=True)
class WorkersConfig(BaseConfig):
    """Section ``ai_workers``."""

    config_section: ClassVar[str] = CONFIG_SECTION

    enabled: bool = field(default=True, metadata=doc("False: no worker is bound or started."))
    batch_embedding_concurrency: int = field(
        default=3, validator=ge(1), metadata=doc("Embedding jobs at the same time.")
    )
    document_ingestion_concurrency: int = field(
        default=3, validator=ge(1), metadata=doc("Documents ingested at the same time.")
    )
    enable_maintenance: bool = field(
        default=True, metadata=doc("False: the maintenance worker is not started.")
    )
    dlq_check_interval: int = field(
        default=DEFAULT_CHECK_INTERVAL,
        validator=ge(1),
        metadata=doc("Seconds between looks at the dead letters."),
    )
    embeddings: EmbeddingConfig = field(factory=EmbeddingConfig)
    vectors: VectorConfig = field(factory=VectorConfig)
    ingestion: IngestionConfig = field(factory=IngestionConfig)
    dead_letters: DeadLetterConfig = field(factory=DeadLetterConfig)
    maintenance: MaintenanceConfig = field(factory=MaintenanceConfig)

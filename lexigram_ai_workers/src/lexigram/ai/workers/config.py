"""Section ``ai_workers``: settings of the workers, models, stores and maintenance."""

from __future__ import annotations

from typing import ClassVar

from attrs import field, frozen
from attrs.validators import ge, gt, optional

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
    """Part ``dead_letters``: recovery of failed jobs and messages. Times are in seconds."""

    sources: tuple[str, ...] = field(
        default=("jobs", "bus"),
        metadata=doc("Sources of dead letters: jobs, bus. Missing ones are ignored."),
    )
    automatic: bool = field(
        default=True,
        metadata=doc("Retry automatically; False: collect, classify and notify only."),
    )
    max_retries: int = field(
        default=DEFAULT_MAX_RETRIES, validator=ge(0), metadata=doc("Retries of a dead letter.")
    )
    base_backoff: float = field(
        default=float(DEFAULT_BASE_BACKOFF),
        validator=gt(0),
        metadata=doc("Delay before the first retry; doubles each time, up to an hour."),
    )
    confirm: float = field(
        default=3600.0,
        validator=gt(0),
        metadata=doc("A retried bus message counts as handled after this time without a failure."),
    )
    notify_timeout: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Timeout of a notifier call; it is repeated at the next check."),
    )
    webhook: str = field(
        default="",
        metadata=secret(
            "URL that receives a POST for each dead letter that is not retried any more."
        ),
    )
    webhook_timeout: float = field(
        default=10.0, validator=gt(0), metadata=doc("Timeout of a webhook call.")
    )


@frozen(kw_only=True)
class MaintenanceConfig:
    """Part ``maintenance``: schedules of the built-in tasks (cron, UTC); empty: disabled."""

    index_optimization: str = field(
        default="17 3 * * *",
        metadata=doc("Schedule: refresh indexes, compact, remove old versions."),
    )
    cache_cleanup: str = field(
        default="41 3 * * *", metadata=doc("Schedule: remove unused vectors from the cache.")
    )
    document_cleanup: str = field(
        default="5 4 * * *", metadata=doc("Schedule: find documents whose file no longer exists.")
    )
    metrics_rollup: str = field(
        default="*/5 * * * *",
        metadata=doc("Schedule: add the counters of the process to the statistics."),
    )
    health_check: str = field(
        default="* * * * *",
        metadata=doc("Schedule: check the health of store, queue, cache and model."),
    )
    timeout: float = field(
        default=3600.0, validator=gt(0), metadata=doc("Timeout of a built-in task, in seconds.")
    )
    check_interval: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("Poll interval for changes by other processes, in seconds."),
    )
    cache_max_age_days: float = field(
        default=30.0, validator=gt(0), metadata=doc("Vectors unused for longer are removed.")
    )
    delete_documents: bool = field(
        default=False,
        metadata=doc("Remove documents whose file no longer exists; False: only report them."),
    )
    keep_statistics_days: float = field(
        default=90.0, validator=gt(0), metadata=doc("Statistics are kept for this time.")
    )


@frozen(kw_only=True)
class WorkersConfig(BaseConfig):
    """Section ``ai_workers``."""

    config_section: ClassVar[str] = CONFIG_SECTION

    enabled: bool = field(default=True, metadata=doc("False: no worker is registered or started."))
    batch_embedding_concurrency: int = field(
        default=3, validator=ge(1), metadata=doc("Concurrent embedding jobs.")
    )
    document_ingestion_concurrency: int = field(
        default=3, validator=ge(1), metadata=doc("Concurrent ingestion jobs.")
    )
    job_timeout: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("Timeout of one attempt at a job, in seconds; None: no limit."),
    )
    enable_maintenance: bool = field(
        default=True, metadata=doc("False: the maintenance worker is not started.")
    )
    dlq_check_interval: int = field(
        default=DEFAULT_CHECK_INTERVAL,
        validator=ge(1),
        metadata=doc("Poll interval for dead letters, in seconds."),
    )
    embeddings: EmbeddingConfig = field(factory=EmbeddingConfig)
    vectors: VectorConfig = field(factory=VectorConfig)
    ingestion: IngestionConfig = field(factory=IngestionConfig)
    dead_letters: DeadLetterConfig = field(factory=DeadLetterConfig)
    maintenance: MaintenanceConfig = field(factory=MaintenanceConfig)

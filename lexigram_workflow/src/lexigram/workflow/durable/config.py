"""Section ``workflow.durable``: workers, leases and folders of durable runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias

from attrs import Attribute, field, frozen
from attrs.validators import and_, ge, gt, le, min_len

from lexigram.config import BaseConfig, ConfigurationError, doc
from lexigram.contracts.workflow.limits import MAX_CONSUMERS, MAX_RETRIES, MAX_SECONDS

DURABLE_SECTION: Final = "workflow.durable"

# Variables of Soliplex Ingester, as keys of this section; DROPPED are those without an effect.
ALIASES: Final[Mapping[str, str]] = {
    "WORKER_CHECKIN_INTERVAL": "checkin_interval",
    "WORKER_CHECKIN_TIMEOUT": "checkin_timeout",
    "WORKER_TASK_COUNT": "task_count",
    "DOCLING_CONCURRENCY": "parse_concurrency",
    "WORKFLOW_DIR": "workflow_dir",
    "PARAM_DIR": "param_dir",
    "USER_PARAM_DIR": "user_param_dir",
    "DEFAULT_WORKFLOW_ID": "default_workflow_id",
    "DEFAULT_PARAM_ID": "default_param_id",
    "DOCUMENT_STORE_DIR": "document_store_dir",
    "PARSED_MARKDOWN_STORE_DIR": "parsed_markdown_store_dir",
    "PARSED_JSON_STORE_DIR": "parsed_json_store_dir",
    "CHUNKS_STORE_DIR": "chunks_store_dir",
    "EMBEDDINGS_STORE_DIR": "embeddings_store_dir",
    "LANCEDB_DIR": "lancedb_dir",
}
DROPPED: Final[Mapping[str, str]] = {
    "INGEST_WORKER_CONCURRENCY": "pools have sizes of their own: workflow.durable.pools",
    "INGEST_QUEUE_CONCURRENCY": "claims come in batches; there is no queue to limit",
    "AUTO_CREATE_DATABASE": "tables are made by migrations: sql.migrate, lexigram db upgrade",
    "DOC_DB_URL": "set LEX_SQL__URL",
    "DOC_DB_PASSWORD": "put it into LEX_SQL__URL",
    "FILE_STORE_TARGET": "set LEX_BLOBS__SCHEME",
    "FILE_STORE_DIR": "set LEX_BLOBS__ROOT",
}


BusEvent: TypeAlias = Literal[
    "group_start",
    "group_end",
    "item_start",
    "item_end",
    "item_failed",
    "step_start",
    "step_end",
    "step_failed",
]


def _are_pools(_: object, __: Attribute[Any], pools: Mapping[str, int]) -> None:
    bad = [name for name, size in pools.items() if not name or not 1 <= size <= MAX_CONSUMERS]
    if bad:
        raise ValueError(
            f"the pools {', '.join(bad)} need a name and 1 to {MAX_CONSUMERS} consumers"
        )


_LONGEST: Final = float(MAX_SECONDS)
_POSITIVE: Final = and_(gt(0.0), le(_LONGEST))
_NOT_NEGATIVE: Final = and_(ge(0.0), le(_LONGEST))
_CONSUMERS: Final = and_(ge(1), le(MAX_CONSUMERS))


@frozen(kw_only=True)
class DurableConfig(BaseConfig):
    """Section ``workflow.durable``. All times are seconds."""

    config_section: ClassVar[str] = DURABLE_SECTION
    env_aliases: ClassVar[Mapping[str, str]] = ALIASES
    env_dropped: ClassVar[Mapping[str, str]] = DROPPED

    run_worker: bool = field(
        default=False,
        metadata=doc(
            "Run a worker in every process of the application; serve and worker always do."
        ),
    )
    checkin_interval: float = field(
        default=5.0, validator=_POSITIVE, metadata=doc("Interval between check-ins of a worker.")
    )
    checkin_timeout: float = field(
        default=30.0,
        validator=_POSITIVE,
        metadata=doc("Seconds without a check-in after which a worker is dead; also the lease."),
    )
    task_count: int = field(
        default=5, validator=_CONSUMERS, metadata=doc("Consumers of the pools store and *.")
    )
    parse_concurrency: int = field(
        default=3, validator=_CONSUMERS, metadata=doc("Consumers of the pool parse.")
    )
    pools: Mapping[str, int] = field(
        factory=dict[str, int],
        validator=_are_pools,
        metadata=doc("Consumers by step type, * for all others; instead of the three above."),
    )
    poll_interval: float = field(
        default=1.0,
        validator=_POSITIVE,
        metadata=doc("Poll interval of an idle pool; notifications wake it earlier."),
    )
    stop_timeout: float = field(
        default=30.0,
        validator=_NOT_NEGATIVE,
        metadata=doc(
            "Time for running steps to end when the worker stops; the rest is released. At most"
            " four fifths of app.shutdown_timeout."
        ),
    )
    retention: float = field(
        default=30 * 24 * 3600.0,
        validator=_NOT_NEGATIVE,
        metadata=doc("Retention of ended groups; 0 keeps them forever."),
    )
    ageing: float = field(
        default=600.0,
        validator=_POSITIVE,
        metadata=doc("Waiting time that one point of priority is worth."),
    )
    tenant_gap: float = field(
        default=0.1,
        validator=_NOT_NEGATIVE,
        metadata=doc("Gap between the turns of one tenant's runs."),
    )
    max_lost: int = field(
        default=25,
        validator=and_(ge(1), le(MAX_RETRIES)),
        metadata=doc("Number of workers that a step may end before its run fails."),
    )
    workflow_dir: str = field(
        default="config/workflows", metadata=doc("Folder of workflow definitions; may be missing.")
    )
    param_dir: str = field(
        default="config/params", metadata=doc("Folder of parameter sets; may be missing.")
    )
    user_param_dir: str = field(
        default="config/user_params", metadata=doc("Folder for uploaded definitions.")
    )
    default_workflow_id: str = field(
        default="batch_split", validator=min_len(1), metadata=doc("Default workflow.")
    )
    default_param_id: str = field(
        default="default", validator=min_len(1), metadata=doc("Default parameter set.")
    )
    handler_prefixes: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "Modules that handlers may come from. Always enforced for uploads; for the folders"
            " only when it is set."
        ),
    )
    bus_events: tuple[BusEvent, ...] = field(
        default=("group_start", "group_end"),
        metadata=doc("Events sent as messages durable.<event>, where the application has a bus."),
    )
    document_store_dir: str = field(
        default="raw", validator=min_len(1), metadata=doc("Folder of documents, in the blob store.")
    )
    parsed_markdown_store_dir: str = field(default="markdown", validator=min_len(1))
    parsed_json_store_dir: str = field(default="json", validator=min_len(1))
    chunks_store_dir: str = field(default="chunks", validator=min_len(1))
    embeddings_store_dir: str = field(default="embeddings", validator=min_len(1))
    rag_store_dir: str = field(
        default="rag",
        validator=min_len(1),
        metadata=doc("Identifiers that stores give the documents."),
    )
    custom_store_dir: str = field(
        default="custom", validator=min_len(1), metadata=doc("Artifacts of your own steps.")
    )
    input_dirs: tuple[str, ...] = field(
        default=(),
        metadata=doc("Folders whose files REST clients may name; empty allows no file."),
    )
    lancedb_dir: str = field(
        default="lancedb", metadata=doc("Folder of vector stores; part of the keys of their locks.")
    )

    def __attrs_post_init__(self) -> None:
        if self.checkin_interval > self.checkin_timeout / 2:
            raise ConfigurationError(
                f"workflow.durable: a check-in every {self.checkin_interval:g} s cannot keep"
                f" leases of {self.checkin_timeout:g} s",
                hint="make checkin_interval at most a fifth of checkin_timeout",
            )
        if self.param_dir == self.user_param_dir:
            raise ConfigurationError(
                "workflow.durable: param_dir and user_param_dir are the same folder",
                hint="uploads need a folder of their own",
            )

    @property
    def consumers(self) -> Mapping[str, int]:
        """The default pools of a worker."""
        if self.pools:
            return dict(self.pools)
        return {"parse": self.parse_concurrency, "store": self.task_count, "*": self.task_count}

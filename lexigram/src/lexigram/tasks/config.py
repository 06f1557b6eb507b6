"""Section ``tasks``: where jobs are kept, and who works on them in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from attrs import field, frozen
from attrs.validators import ge, gt

from lexigram.config import BaseConfig, doc


@frozen(kw_only=True)
class PoolSettings:
    """One pool of workers."""

    concurrency: int = field(default=10, validator=ge(1), metadata=doc("Jobs at the same time."))
    queues: tuple[str, ...] = field(
        default=(), metadata=doc("Queues to take jobs from, in turn; none named: all.")
    )
    prefetch: int = field(
        default=0,
        validator=ge(0),
        metadata=doc("Jobs to take in addition and keep ready; for many very short ones."),
    )
    lease: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Seconds after which a dead worker's jobs are handed out again."),
    )
    drain_timeout: float = field(
        default=20.0,
        validator=ge(0),
        metadata=doc("Seconds that running jobs have to end when the pool stops."),
    )


@frozen(kw_only=True)
class TasksConfig(BaseConfig):
    """Section ``tasks``."""

    config_section: ClassVar[str] = "tasks"

    backend: Literal["auto", "memory", "sql"] = field(
        default="auto",
        metadata=doc(
            "memory, sql, or auto: a store that is bound (jobs over the bus), else sql when the "
            "application has a database."
        ),
    )
    workers: bool = field(
        default=True, metadata=doc("Work on jobs in this process; False: only enqueue.")
    )
    pools: Mapping[str, PoolSettings] = field(
        factory=lambda: {"default": PoolSettings()}, metadata=doc("Pools of workers by name.")
    )
    poll: float = field(
        default=1.0,
        validator=gt(0),
        metadata=doc("Poll interval of an idle worker, in seconds; notifications come sooner."),
    )
    result_ttl: float = field(
        default=24 * 3600.0, validator=gt(0), metadata=doc("Seconds a result is kept.")
    )
    retention: float | None = field(
        default=7 * 24 * 3600.0,
        metadata=doc("Seconds a job is kept after it completed or was cancelled; None: for ever."),
    )

    def __attrs_post_init__(self) -> None:
        if self.retention is not None and self.retention <= 0:
            raise ValueError("retention must be more than 0, or nothing at all")

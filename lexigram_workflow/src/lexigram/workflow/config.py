"""The settings of orchestration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from attrs import field, frozen
from attrs.validators import ge, gt

from lexigram.config import BaseConfig, doc
from lexigram.contracts.infra.resilience.types import CircuitBreakerConfig
from lexigram.workflow.constants import (
    CONFIG_SECTION,
    CONTENT_CHECKPOINT_SECTION,
    DEFAULT_GRAPH_MAX_ITERATIONS,
    DEFAULT_GRAPH_NODE_TIMEOUT,
    DEFAULT_PIPELINE_TIMEOUT,
    GRAPH_SECTION,
)
from lexigram.workflow.durable.config import ALIASES, DROPPED, DurableConfig


@frozen(kw_only=True)
class GraphConfig(BaseConfig):
    """Section ``workflow.graph``: how graphs run. All times are seconds, 0 is no limit."""

    config_section: ClassVar[str] = GRAPH_SECTION

    enabled: bool = field(default=True, metadata=doc("False refuses every run."))
    max_iterations: int = field(
        default=DEFAULT_GRAPH_MAX_ITERATIONS,
        validator=ge(1),
        metadata=doc("Node runs inside loops; nodes outside of loops do not count."),
    )
    node_timeout: float = field(default=DEFAULT_GRAPH_NODE_TIMEOUT, validator=ge(0))
    total_timeout: float = field(default=0.0, validator=ge(0))
    checkpoint_enabled: bool = field(
        default=False,
        metadata=doc("Keep every step also where the engine was given no store: in memory."),
    )
    checkpoint_durability: Literal["step", "async"] = field(
        default="step",
        metadata=doc("step: stored before the next step begins. async: while it runs."),
    )
    checkpoint_keep: int = field(
        default=0, validator=ge(0), metadata=doc("Checkpoints kept of a run; 0 keeps all.")
    )
    checkpoint_ttl: float = field(
        default=0.0, validator=ge(0), metadata=doc("Ended runs are forgotten after this time.")
    )
    parallel_branches: bool = field(
        default=True, metadata=doc("False runs one node at a time, in the order of the edges.")
    )
    max_parallel_branches: int = field(
        default=0, validator=ge(0), metadata=doc("Nodes that run at once; 0 is all.")
    )


@frozen(kw_only=True)
class BulkOperationConfig(BaseConfig):
    """Section ``workflow``: how bulk operations run. All times are seconds."""

    config_section: ClassVar[str] = CONFIG_SECTION

    batch_size: int = field(default=10, validator=gt(0), metadata=doc("Items given at once."))
    max_concurrency: int = field(
        default=5, validator=gt(0), metadata=doc("Batches that are worked on at once.")
    )
    timeout: float = field(
        default=300.0, validator=gt(0), metadata=doc("For the whole operation; inf: none.")
    )
    retry_attempts: int = field(
        default=3, validator=ge(0), metadata=doc("Further tries after the first one.")
    )
    retry_delay: float = field(
        default=1.0, validator=ge(0), metadata=doc("Before the first retry; doubles each time.")
    )
    enable_progress_tracking: bool = field(
        default=True, metadata=doc("False: progress callbacks are not called.")
    )
    hook_timeout: float = field(
        default=math.inf,
        validator=gt(0),
        metadata=doc("For each call of a progress, error or completion hook; inf: none."),
    )
    circuit_breaker_config: CircuitBreakerConfig | None = field(
        default=None, metadata=doc("Puts a circuit breaker before the processor.")
    )
    pipeline_timeout: float = field(
        default=DEFAULT_PIPELINE_TIMEOUT,
        validator=gt(0),
        metadata=doc("For a run of a pipeline of the application; inf: none."),
    )


@frozen(kw_only=True)
class ContentCheckpointConfig(BaseConfig):
    """Section ``workflow.content_checkpoints``: outputs of stages, remembered by their inputs."""

    config_section: ClassVar[str] = CONTENT_CHECKPOINT_SECTION

    enabled: bool = field(
        default=True, metadata=doc("False: nothing is remembered, every stage runs.")
    )
    inline_threshold_bytes: int = field(
        default=1_048_576, validator=gt(0), metadata=doc("Larger outputs go to the blob store.")
    )
    default_ttl_seconds: int = field(
        default=86400, validator=gt(0), metadata=doc("How long a cache keeps an output.")
    )


@frozen(kw_only=True)
class WorkflowConfig(BulkOperationConfig):
    """Section ``workflow`` as a whole: bulk operations, graphs, checkpoints, durable runs."""

    config_section: ClassVar[str] = CONFIG_SECTION
    env_aliases: ClassVar[Mapping[str, str]] = {n: f"durable.{key}" for n, key in ALIASES.items()}
    env_dropped: ClassVar[Mapping[str, str]] = DROPPED

    graph: GraphConfig = field(factory=GraphConfig)
    content_checkpoints: ContentCheckpointConfig = field(factory=ContentCheckpointConfig)
    pause_check_interval: float = field(
        default=5.0,
        validator=ge(0),
        metadata=doc("Seconds between looks for pauses that are over; 0: never."),
    )
    durable: DurableConfig = field(factory=DurableConfig)

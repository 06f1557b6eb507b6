"""The pools and intervals of a worker, and where its statistics go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import field, frozen
from attrs.validators import optional

from lexigram.contracts.workflow.limits import (
    check_consumers,
    check_name,
    check_seconds,
    check_timeout,
)
from lexigram.observability import get_logger
from lexigram.workflow.durable._values import validate_with
from lexigram.workflow.durable.errors import PlanInvalidError
from lexigram.workflow.durable.store.records import Selection

logger = get_logger(__name__)

CATCH_ALL = "*"


class Metrics(Protocol):
    """Takes the statistics of a worker."""

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        ...


class LoggingMetrics:
    """Statistics as lines of the log, at DEBUG."""

    def incr(self, name: str, value: float = 1, **labels: str) -> None:
        """One line."""
        logger.debug("metric", metric=name, value=value, labels=labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """One line."""
        logger.debug("metric", metric=name, seconds=value, labels=labels)


@frozen(kw_only=True)
class WorkerConfig:
    """How many steps of which type at once; ``"*"`` takes every type that no pool names."""

    consumers: Mapping[str, int] = field(factory=lambda: {CATCH_ALL: 5})
    # poll interval of an idle pool in seconds; notifications wake it earlier
    poll_interval: float = field(default=1.0, validator=validate_with(check_timeout))
    # seconds between heartbeats; None is a fifth of the lease
    checkin_interval: float | None = field(
        default=None, validator=optional(validate_with(check_timeout))
    )
    # seconds that ended groups are kept; 0 keeps them for ever
    retention: float = field(default=30 * 24 * 3600.0, validator=validate_with(check_seconds))
    # seconds that a call of a listener may take; None is no limit
    listener_timeout: float | None = field(
        default=None, validator=optional(validate_with(check_timeout))
    )

    def __attrs_post_init__(self) -> None:
        if not self.consumers:
            raise PlanInvalidError(
                "consumers names no pool", hint='give types and sizes: {"parse": 3, "*": 5}'
            )
        for pool, size in self.consumers.items():
            check_name("consumers", pool)
            check_consumers("consumers", size)

    def selection(self, pool: str) -> Selection:
        """The step types of a pool."""
        if pool != CATCH_ALL:
            return Selection(types=(pool,))
        return Selection(types=tuple(n for n in self.consumers if n != CATCH_ALL), excluded=True)

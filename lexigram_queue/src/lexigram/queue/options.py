"""How a queue and its consumers behave, apart from which broker they use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from attrs import field, frozen
from attrs.validators import and_, ge, gt, le, optional

from lexigram.config import doc
from lexigram.contracts.queue import DeliveryGuarantee
from lexigram.contracts.queue.limits import MAX_RETRIES, MAX_SECONDS, check_topic
from lexigram.queue.constants import (
    DEFAULT_CONSUMER_CONCURRENCY,
    DEFAULT_CONSUMER_PREFETCH,
    DEFAULT_MAX_DELIVERIES,
    DEFAULT_MAX_RETRIES,
)

if TYPE_CHECKING:
    from lexigram.queue.config import NamedQueueConfig
    from lexigram.queue.core.pipeline import MiddlewareBase


def _check_target(_policy: object, _field: object, topic: str | None) -> None:
    if topic is not None:
        check_topic(topic)


@frozen(kw_only=True)
class RetryPolicy:
    """When a failed message is tried again; set as ``retry`` of a consumer it overrides the rest.

    Delays double from ``base`` to ``cap`` seconds, with some jitter. ``max_retries`` None: what
    the message says. ``publish_to``: an exhausted message goes to that topic instead of the
    dead letters.
    """

    max_retries: int | None = field(default=None, validator=optional(and_(ge(0), le(MAX_RETRIES))))
    base: float = field(default=1.0, validator=and_(ge(0), le(MAX_SECONDS)))
    cap: float = field(default=300.0, validator=and_(ge(0), le(MAX_SECONDS)))
    publish_to: str | None = field(default=None, validator=_check_target)


@frozen(kw_only=True)
class RateLimit:
    """``rate`` messages per ``per`` seconds, of which ``burst`` may come at once."""

    rate: float = field(validator=gt(0))
    per: float = field(default=1.0, validator=gt(0))
    burst: int | None = field(default=None, validator=optional(ge(1)))


@frozen(kw_only=True)
class DeadLetterPolicy:
    """How many dead letters a group keeps and for how long; None: all, for ever."""

    max_entries: int | None = field(
        default=None,
        validator=optional(ge(0)),
        metadata=doc("Then the oldest goes, and is counted."),
    )
    max_age: float | None = field(default=None, validator=optional(gt(0)), metadata=doc("Seconds."))

    @property
    def keeps_all(self) -> bool:
        """True when nothing is ever dropped."""
        return self.max_entries is None and self.max_age is None


@frozen(kw_only=True)
class BusOptions:
    """What holds for all messages and consumers of a queue. All times are seconds."""

    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    max_retries: int = DEFAULT_MAX_RETRIES
    serializer: str = "json"
    default_ttl: float | None = None
    share: bool = False
    prefetch: int = DEFAULT_CONSUMER_PREFETCH
    concurrency: int = DEFAULT_CONSUMER_CONCURRENCY
    handler_timeout: float | None = None
    max_deliveries: int = DEFAULT_MAX_DELIVERIES
    retry: RetryPolicy = RetryPolicy()
    expired: Literal["dead_letter", "drop"] = "dead_letter"
    drain_timeout: float = 20.0

    @classmethod
    def of(cls, entry: NamedQueueConfig) -> BusOptions:
        """The options a configuration asks for."""
        return cls(
            delivery_guarantee=entry.delivery_guarantee,
            max_retries=entry.max_retries,
            serializer=entry.serializer,
            default_ttl=entry.default_ttl,
            share=entry.memory.share,
            prefetch=entry.prefetch,
            concurrency=entry.concurrency,
            handler_timeout=entry.handler_timeout,
            max_deliveries=entry.max_deliveries,
            retry=RetryPolicy(base=entry.retry_base, cap=entry.retry_cap),
            expired=entry.expired,
            drain_timeout=entry.drain_timeout,
        )


@frozen(kw_only=True)
class ConsumerOptions:
    """One consumer: what it takes and how. None means: as the queue has it."""

    topics: Sequence[str]
    group: str = "default"
    consumer_id: str = ""
    prefetch: int | None = field(default=None, validator=optional(ge(1)))
    concurrency: int | None = field(default=None, validator=optional(ge(1)))
    handler_timeout: float | None = field(default=None, validator=optional(gt(0)))
    retry: RetryPolicy | None = None
    delivery_guarantee: DeliveryGuarantee | None = None
    # Above 1 the handler takes a list of up to this many messages.
    batch_size: int = field(default=1, validator=ge(1))
    # Running messages of one fairness key at a time.
    max_in_flight_per_key: int | None = field(default=None, validator=optional(ge(1)))
    rate_limit: RateLimit | None = None
    middleware: Sequence[MiddlewareBase] = ()
    # What payloads are decoded to before the handler sees them.
    payload_type: Any = Any
    temporary: bool = False

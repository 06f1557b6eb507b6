"""The message that travels, and the one that did not arrive."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import uuid4


class DeliveryGuarantee(StrEnum):
    """What may happen to a message when something breaks."""

    AT_MOST_ONCE = "at_most_once"  # may be lost, never handled twice
    AT_LEAST_ONCE = "at_least_once"  # may be handled twice, never lost
    EXACTLY_ONCE = "exactly_once"  # effects in SQL once; elsewhere ids are remembered for a while


def _no_headers() -> dict[str, str]:
    return {}  # one per message: 41 ns, where dict[str, str]() takes 275


@dataclass(frozen=True, slots=True)
class BusMessage:
    """One message. The id stays the same through retries, brokers and dead letters."""

    id: str = field(default_factory=lambda: str(uuid4()))
    topic: str = ""
    payload: Any = None
    headers: dict[str, str] = field(default_factory=_no_headers)
    # seconds since 1970-01-01 UTC, set by the sender
    timestamp: float = field(default_factory=time.time)
    # seconds after the timestamp; None: the backend's default
    ttl: float | None = None
    # higher is more urgent
    priority: int = 0
    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    # handler failures so far; a crash of the process does not count
    retry_count: int = 0
    # retries after the first attempt
    max_retries: int = 3

    def is_expired(self) -> bool:
        """True once the ttl has passed, by this machine's clock; never without a ttl."""
        return self.ttl is not None and time.time() > self.timestamp + self.ttl

    def should_retry(self) -> bool:
        """True while retries are left and the message has not expired."""
        return self.retry_count < self.max_retries and not self.is_expired()


class DeadLetterReason(StrEnum):
    """Why a message was set aside."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    POISON = "poison"  # its handler ended the process too often
    EXPIRED = "expired"
    UNDECODABLE = "undecodable"
    REJECTED = "rejected"  # a handler, a filter or an operator said so
    NOT_RETRYABLE = "not_retryable"  # wiring, configuration: every attempt would fail the same way


@dataclass(frozen=True, slots=True)
class DeadLetterEntry:
    """A message that was set aside, with all that is needed to understand and resend it."""

    message: BusMessage
    error: str
    failed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    retry_count: int = 0
    reason: DeadLetterReason = DeadLetterReason.RETRIES_EXHAUSTED
    traceback: str | None = None
    # how often a handler was called with it
    attempts: int = 0
    # the consumer group that could not handle it; other groups are not concerned
    group: str = "default"

    @property
    def timestamp(self) -> datetime:
        """The same as ``failed_at``."""
        return self.failed_at

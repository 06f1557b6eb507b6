"""What the runtime of the bus asks of a broker: small, batched, without policy.

Retry counting, time-outs, middleware, tracing and metrics live once, above the drivers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lexigram.contracts.queue.types import BusMessage

if TYPE_CHECKING:
    from lexigram.contracts.core.health import HealthCheckResult
    from lexigram.contracts.queue.types import DeadLetterEntry


class Capability(StrEnum):
    """What a driver can do. What is not declared is refused at boot, never tried."""

    PUBLISH = "publish"
    RECEIVE = "receive"
    ACK = "ack"
    DELAYED_RETRY = "delayed_retry"
    DEAD_LETTER = "dead_letter"
    REDRIVE = "redrive"
    SURVIVE_KILL = "survive_kill"  # what a killed consumer held is delivered again
    TTL = "ttl"  # the broker itself drops or sets aside expired messages
    PRIORITY = "priority"
    SCHEDULE = "schedule"  # publish now, deliver later
    ORDERING = "ordering"  # messages of one ordering key one after the other
    DEDUP = "dedup"  # a second publish of one id within a window is dropped
    FAIRNESS = "fairness"  # many messages of one tenant do not hold up another's
    PATTERN = "pattern"  # subscribe to topics by pattern
    LEASE_EXTEND = "lease_extend"
    DEPTH = "depth"
    LAG = "lag"
    DURABLE = "durable"  # confirmed messages survive a restart of the broker


CORE_CAPABILITIES = frozenset(
    {
        Capability.PUBLISH,
        Capability.RECEIVE,
        Capability.ACK,
        Capability.DELAYED_RETRY,
        Capability.DEAD_LETTER,
        Capability.REDRIVE,
        Capability.SURVIVE_KILL,
    }
)
"""What no driver may leave undeclared."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message handed to one consumer, to be settled by ack, nack or dead letter."""

    message: BusMessage
    topic: str
    group: str
    # what the broker wants back when this is settled; only the driver looks at it
    receipt: Any
    # how often the broker has delivered it, this time included; crashes count
    delivery_count: int = 1


@runtime_checkable
class QueueDriverProtocol(Protocol):
    """One broker. ``payload`` of a message is bytes here; the rest travels as native headers.

    All methods may be called by several tasks at once and raise QueueError when the broker
    fails; the runtime decides what to do then. One call is one round trip where the broker
    allows it.
    """

    @property
    def name(self) -> str:
        """The name of the driver in config."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do, known before connect, at least CORE_CAPABILITIES."""
        ...

    async def connect(self) -> None:
        """Open the connection; a second call does nothing."""
        ...

    async def close(self) -> None:
        """Close the connection; what was not settled is delivered again. Twice is fine."""
        ...

    async def declare(self, topic: str, group: str) -> None:
        """Make topic and group exist; from then on the group gets every message.

        Declaring again, also from another process, changes nothing.
        """
        ...

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send messages to their topics; returns when the broker confirmed all of them.

        Keeps their order per ordering key. Raises QueueError whose details name the ids not
        confirmed; those may have arrived all the same. QueueFullError: no room.
        """
        ...

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Up to ``limit`` deliveries; waits up to ``wait`` seconds for the first, else empty.

        A delivery belongs to the caller until it is settled or its lease runs out. Cancelling
        loses nothing: what was on its way is delivered again.
        """
        ...

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Done: the group does not get these again. Settling a second time does nothing.

        Not guaranteed after the lease ran out: another member may have them by then.
        """
        ...

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Not done: deliver again to the group after ``delay`` seconds.

        ``message`` replaces the stored one (retry_count is in it). The new one is confirmed
        before the old one is acknowledged: a crash between the two doubles, never loses.
        """
        ...

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Keep the deliveries for ``seconds`` from now; returns those that are already lost."""
        ...

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Set the message aside and acknowledge it; one entry per message id and group.

        A crash in between may leave both; list and redrive show the entry once.
        """
        ...

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Entries, oldest first. Reading does not remove them."""
        ...

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Send entries (all without ``ids``) back to their group and drop them; how many.

        Only that group gets them, with retry_count 0. Unknown ids are skipped.
        """
        ...

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Drop entries (all without ``ids``) for good; how many."""
        ...

    async def depth(self, topic: str, group: str) -> int:
        """Messages the group has not handled, in flight and delayed included; approximate."""
        ...

    async def lag(self, topic: str, group: str) -> int:
        """Messages that could be delivered to the group now and are not; approximate."""
        ...

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Whether the broker really answers within ``timeout`` seconds; never raises."""
        ...

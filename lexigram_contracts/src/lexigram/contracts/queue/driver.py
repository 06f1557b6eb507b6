"""What the runtime of the bus asks of a broker: small, batched, without policy.

Retry counting, time-outs, codecs, middleware, tracing and metrics live once, above the drivers.
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
    TTL = "ttl"  # expired messages leave the broker by themselves
    PRIORITY = "priority"  # of what waits, the most urgent comes first
    SCHEDULE = "schedule"  # the header deliver-at
    ORDERING = "ordering"  # the header ordering-key
    DEDUP = "dedup"  # a second publish of one id within a window is dropped
    FAIRNESS = "fairness"  # the header fairness-key
    PATTERN = "pattern"  # declare and receive by pattern
    LEASE_EXTEND = "lease_extend"  # extend_many
    BEGUN_MARK = "begun_mark"  # BegunMarkProtocol
    BACKLOG = "backlog"  # a topic without a group holds max_backlog messages, then refuses
    PEEK = "peek"
    PURGE = "purge"
    PAUSE = "pause"  # for all members, in whatever process
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
    """One message handed to one consumer, to be settled by ack, nack, release or dead letter."""

    message: BusMessage
    # the topic or pattern that was received from; message.topic is where it was sent to
    topic: str
    group: str
    # what the broker wants back when this is settled; only the driver looks at it
    receipt: Any
    # how often it was delivered since it was last settled, this time included: above 1 it came
    # back, because its process died or lost its lease. A broker that does not count says 1
    delivery_count: int = 1


@runtime_checkable
class QueueDriverProtocol(Protocol):
    """One broker. ``payload`` of a message is bytes here; the rest travels as native headers.

    All methods may be called by several tasks at once. They raise QueueError (the driver's own
    class of it) when the broker fails or the connection is gone, and never hang: the
    runtime then calls ``connect`` until it works, declares its groups again and goes on. One
    call is one round trip where the broker allows it.

    A topic and a group are any text without control characters. A *pattern* is a topic with
    ``*`` in it, which stands for any text. ``topic`` of declare, receive and all that follows
    is a topic or a pattern as it was declared.

    Guaranteed by every driver: a confirmed message is delivered to every group that was
    declared before, until it is settled there (at least once); within a group one member has
    it at a time, as long as its lease holds; what was published to a topic before its first
    group goes to that group. Not guaranteed: order, unless ORDERING or in calm; once.
    """

    @property
    def name(self) -> str:
        """The name of the driver in config."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do, known before connect, at least CORE_CAPABILITIES."""
        ...

    @property
    def visibility_timeout(self) -> float | None:
        """Seconds a delivery is leased; None: until it is settled or the connection dies."""
        ...

    @property
    def max_message_bytes(self) -> int | None:
        """The largest body it takes, known once connected; None: no limit of its own."""
        ...

    async def connect(self) -> None:
        """Open the connection, or open it again where it broke; else does nothing.

        Answers or raises QueueError within the driver's own time-out.
        """
        ...

    async def close(self) -> None:
        """Close the connection; what was not settled is delivered again. Twice is fine."""
        ...

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make topic and group exist; from then on the group gets every message.

        The first group of a topic also gets what the topic kept for it. A pattern (PATTERN)
        covers topics that come later too, and takes over no backlog. Declaring again, also
        from another process, changes nothing. ``temporary``: the broker may drop the group
        when nobody has received for ten minutes; one that cannot, leaves it.
        """
        ...

    async def drop(self, topic: str, group: str) -> None:
        """Remove the group with all it holds, dead letters too; an unknown one is fine."""
        ...

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All (topic, group) this driver has declared on the broker, from any process."""
        ...

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send messages to their topics; returns when the broker confirmed all of them.

        Keeps their order per topic. Raises QueueError; ``details["unconfirmed"]`` lists the
        ids that were not confirmed (all, where it is missing), and those may have arrived all
        the same. QueueFullError: no room. MessageTooLargeError: nothing of the batch was sent.
        A message that waits (deliver-at in the future, SCHEDULE) is confirmed when it is kept.
        """
        ...

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Up to ``limit`` deliveries; waits up to ``wait`` seconds for the first, else empty.

        A delivery belongs to the caller until it is settled or its lease runs out; then it is
        delivered again, to any member. Empty while the group is paused. Cancelling loses
        nothing: what was on its way is delivered again. Raises QueueError for a group that
        was never declared. A message that cannot be read is not an error, whatever others wrote
        into its headers: it is delivered with what could be read, its bytes as payload, and the
        header UNREADABLE that names the rest; the runtime sets it aside.
        """
        ...

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Done: the group does not get these again.

        Settling a second time, after the lease ran out or on a connection that is gone does
        nothing: another member may have them by then.
        """
        ...

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Not done: deliver again to this group only, not before ``delay`` seconds.

        ``message`` replaces the stored one (same id; retry_count is in it). The new one is
        confirmed before the old one is acknowledged: a crash between the two doubles, never
        loses. A driver may round a delay up to its own steps, said in its docs. The next
        delivery_count is 1.
        """
        ...

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Never begun: deliver these again at once, as they are; used at shutdown.

        This delivery does not add to delivery_count, where the broker can do that.
        """
        ...

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Keep the deliveries for ``seconds`` from now; returns those that are already lost.

        Without a visibility_timeout there is nothing to keep: returns none. Does not add to
        delivery_count.
        """
        ...

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Set the message aside and acknowledge it; one entry per message id and group.

        Survives what the driver's messages survive. A crash in between may leave both; list
        and redrive show the entry once.
        """
        ...

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Entries, oldest first, payloads as bytes. Reading does not remove them."""
        ...

    async def count_dead(self, topic: str, group: str) -> int:
        """How many entries there are, found without reading them.

        Exact in calm, approximate under load; doubles that a crash left may count as two.
        """
        ...

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Send entries (all without ``ids``) back to their group and drop them; how many.

        Only that group gets them, with retry_count 0, a new timestamp where they had a ttl,
        and a fresh delivery_count. Unknown ids are skipped.
        """
        ...

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Drop entries (all without ``ids``) permanently; how many."""
        ...

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """Some messages that wait for the group, next ones first; takes none (PEEK)."""
        ...

    async def purge(self, topic: str, group: str) -> int:
        """Drop what waits for the group, in flight excepted; how many (PURGE)."""
        ...

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Hold the group back, or let it go on; seen by all members within a second (PAUSE)."""
        ...

    async def is_paused(self, topic: str, group: str) -> bool:
        """Whether the group is held back; False where PAUSE is not declared."""
        ...

    async def depth(self, topic: str, group: str) -> int:
        """Messages the group has not handled, in flight and delayed included (DEPTH).

        Exact in calm, approximate under load. Dead letters do not count.
        """
        ...

    async def lag(self, topic: str, group: str) -> int:
        """Messages that could be delivered to the group now and are not (LAG); as exact.

        Those of a paused group count, as if it were not paused: what waits for its operator.
        """
        ...

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Whether the broker really answers within ``timeout`` seconds; never raises."""
        ...


@runtime_checkable
class BegunMarkProtocol(Protocol):
    """What a driver with Capability.BEGUN_MARK has beside ``QueueDriverProtocol``.

    A message whose handler kills the process must not be delivered for ever, and must not take
    along those that were delivered with it. So the runtime counts how often the handler was begun
    with a message that came back. Without this capability it writes the count into a copy of the
    message (header ``lex-begun``), which costs another round through the queue and a place in its order.
    """

    async def mark_begun(self, delivery: Delivery) -> int:
        """Add one to the marks of the message in its group; returns how many there are now.

        Returns when the mark is as safe as a confirmed message. 0: the delivery is lost, nothing
        was marked. Marks stay when the message comes back or is released; acknowledging,
        ``nack``, a dead letter and ``redrive`` end them. Raises QueueError.
        """
        ...

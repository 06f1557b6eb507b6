"""The bus on NATS JetStream, from server 2.9 on.

One stream holds the messages of all topics, with retention by interest: a message leaves when the
last group has acknowledged it. A topic is a subject of that stream, a group a durable pull
consumer. One stream and not one per topic, because then a pattern is a consumer with a wider
filter, a batch to several topics is one conversation, and no stream is made while publishing.

What JetStream has not, and how it is done here:

- *Confirmed is kept.* A server that is being stopped forgets its consumers a moment before it
  stops taking messages; what comes in between is confirmed and dropped, for want of interest.
  So after the confirms of a batch the server is asked for a consumer that always exists, the
  *sentinel*: a server that still knows it had all the others when it took the batch.
- *Kept for the first group.* Without interest a message would vanish. A topic nobody consumes has
  a consumer that never reads, its *keeper*; the first group begins where the keeper did.
- *A changed message comes again.* ``nak`` with a delay brings back what is stored. The new
  headers (retry_count) are written to a second stream before that, by group and sequence, and
  looked up when a message is redelivered. With them is how often its handler was begun, and how
  many of its deliveries were settled: the server counts all of them.
- *Later.* A message that came before its deliver-at is given back with the delay that is left;
  the server keeps that time on disk.
- *Dead letters* are a third stream, one message per group and id. A redriven one goes to its
  topic again, marked for one group; the others let it pass.
- *Paused* groups are marked in the second stream; members hear it at once.
- *Leases.* The server takes an acknowledgement from any sender, also from a member that lost
  the message long ago. So the lease is also measured here, and it ends a little before the
  server's.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from lexigram import clock
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.queue import (
    BusMessage,
    Capability,
    DeadLetterEntry,
    Delivery,
    NotConnectedError,
    QueueError,
    QueueFullError,
)
from lexigram.queue.backends.nats._connection import NAK, Connection, address_of
from lexigram.queue.backends.nats._dead_letters import PAGE, DeadLetters
from lexigram.queue.backends.nats._errors import ApiError, ClosedError, Json, explain
from lexigram.queue.backends.nats._names import Place, place_of
from lexigram.queue.backends.nats._publisher import NAME, Publisher
from lexigram.queue.backends.nats._receiver import BEGUN, NOT_BEFORE, REPLACED, SETTLED, Receiver
from lexigram.queue.backends.nats._topology import Topology, check_version
from lexigram.queue.backends.nats._wire import (
    ACK,
    PROGRESS,
    SEQUENCE,
    Arrived,
    OutboundMessage,
    Receipt,
    is_message,
    nak,
    receipt_of,
    to_native,
)
from lexigram.queue.backends.services import Services
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import NamedQueueConfig, NATSDriverConfig, override
from lexigram.queue.constants import DEFAULT_MAX_BACKLOG, DEFAULT_VISIBILITY_TIMEOUT
from lexigram.queue.errors import NATSQueueError
from lexigram.queue.options import BusOptions
from lexigram.queue.runtime.envelope import to_headers

if TYPE_CHECKING:
    from nats.aio.msg import Msg
DEFAULT_URL: Final = "nats://localhost:4222"

# Not ORDERING, PRIORITY and FAIRNESS: a consumer hands out in the order of the stream. Not TTL:
# servers before 2.11 have no time to live per message; the runtime sets expired ones aside.
CAPABILITIES: Final = frozenset(Capability) - {
    Capability.ORDERING,
    Capability.PRIORITY,
    Capability.FAIRNESS,
    Capability.TTL,
}


class NATSDriver:
    """One member on a NATS server or cluster. ``url`` may list several, separated by commas."""

    name = NAME
    capabilities = CAPABILITIES

    def __init__(
        self,
        url: str | None = None,
        *,
        config: NATSDriverConfig | None = None,
        stream: str | None = None,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        max_backlog: int = DEFAULT_MAX_BACKLOG,
        dedup_window: float = 0.0,
    ) -> None:
        """``url`` and ``stream`` come before those of ``config``, which has all other settings."""
        self._config = config = override(config or NATSDriverConfig(), url=url, stream=stream)
        self.stream = stream = config.stream
        if not re.fullmatch(r"[A-Za-z0-9_-]+", stream):
            raise ValueError(f"stream must consist of A-Z, a-z, 0-9, - and _, not {stream!r}")
        self.visibility_timeout: float | None = visibility_timeout
        self._lease = visibility_timeout
        self._url = DEFAULT_URL if config.url is None else config.url  # an empty one is an error
        self.address = address_of(self._url)
        self._topology = Topology(
            stream,
            lease=visibility_timeout,
            replicas=config.replicas,
            max_ack_pending=config.max_ack_pending,
            max_backlog=max_backlog,
            dedup_window=dedup_window,
        )
        self._publisher = Publisher(
            stream,
            self._topology,
            max_backlog=max_backlog,
            dedup_window=dedup_window,
            explain=self._error,
        )
        self._dead_letters = DeadLetters(stream, self._topology.dead, self._publisher)
        self._receiver = Receiver(stream, self._topology.records, visibility_timeout)
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        return f"NATSDriver({self.address}, stream={self.stream!r})"

    @property
    def max_message_bytes(self) -> int | None:
        """What the server takes, less the room for headers."""
        connection = self._connection
        return None if connection is None else connection.max_payload - connection.dead_room

    # Life.

    async def connect(self) -> None:
        """Open the connection and make the streams exist, or find both in order."""
        async with self._opening:
            connection = self._connection
            if connection is not None and await connection.answers():
                return
            if connection is not None:
                self._connection = None
                await connection.close()
            with self._translate_errors("connect"):
                connection = await Connection.open(
                    self._url, self._config.connect_timeout, self._config.request_timeout
                )
                try:
                    check_version(connection.version, self.address)
                    await self._topology.prepare(connection, self._on_pause)
                except BaseException:
                    await connection.close()
                    raise
            self._connection = connection

    async def close(self) -> None:
        """Leave; what was not settled is delivered again when its lease ends."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # Groups.

    async def declare(self, topic: str, group: str, *, temporary: bool = False) -> None:
        """Make the consumer exist; the first one of a topic begins with what was kept."""
        connection, place = self._require_connection(), place_of(self.stream, topic, group)
        with self._translate_errors("declare", topic):
            await self._topology.declare(connection, place, temporary=temporary)

    async def drop(self, topic: str, group: str) -> None:
        """Delete the consumer, its dead letters and its records."""
        connection, place = self._require_connection(), place_of(self.stream, topic, group)
        with self._translate_errors("drop", topic):
            await self._topology.drop(connection, place)

    async def groups(self) -> Sequence[tuple[str, str]]:
        """All consumers of the stream that were declared here."""
        with self._translate_errors("list groups"):
            return (await self._topology.look(self._require_connection())).groups

    # Out.

    async def publish_many(self, messages: Sequence[BusMessage]) -> None:
        """Send all, then wait for the confirms; some megabytes at a time."""
        with self._translate_errors("publish", messages[0].topic if messages else "unknown"):
            await self._publisher.publish_many(self._require_connection(), messages)

    # In.

    async def receive(
        self, topic: str, group: str, *, limit: int, wait: float
    ) -> Sequence[Delivery]:
        """Pull what is there; when nothing is, wait for one."""
        connection, place = self._require_connection(), place_of(self.stream, topic, group)
        with self._translate_errors("receive", topic):
            return await self._receiver.receive(connection, place, limit=limit, wait=wait)

    # Settled.

    async def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge; the last one of each consumer is confirmed, and with it all before it."""
        receipts = self._valid(deliveries)
        await self._settle(receipts, ACK, "acknowledge")
        connection = self._require_connection() if receipts else None
        for receipt in receipts:
            if receipt.record and connection is not None:
                body = json.dumps({"seq": receipt.record, "no_erase": True}).encode()
                await connection.send(f"$JS.API.STREAM.MSG.DELETE.{self._topology.records}", body)

    async def nack(
        self, delivery: Delivery, *, delay: float = 0.0, message: BusMessage | None = None
    ) -> None:
        """Write down what changed, then give the message back for later."""
        receipts = self._valid([delivery])
        if not receipts:
            return
        with self._translate_errors("retry", delivery.topic):
            again = delivery.message if message is None else message
            settled = receipts[0].delivered
            await self._write(self._record(delivery, again, delay=delay, settled=settled), delivery)
        await self._settle(receipts, nak(delay), "retry")

    def _record(
        self,
        delivery: Delivery,
        message: BusMessage,
        *,
        settled: int,
        begun: int = 0,
        delay: float = 0.0,
    ) -> OutboundMessage:
        """What is looked up when the message is delivered again."""
        receipt: Receipt = delivery.receipt
        headers = to_native(to_headers(message)) | {SETTLED: str(settled), BEGUN: str(begun)}
        if delay > 0:
            headers[NOT_BEFORE] = repr(clock.timestamp() + delay)
        body = b""
        if message.payload != delivery.message.payload or receipt.has_body:
            headers[REPLACED], body = "replaced", cast("bytes", message.payload)
            receipt.has_body = True
        return OutboundMessage(self._receiver.record_of(receipt), body, headers)

    async def _write(self, record: OutboundMessage, delivery: Delivery) -> None:
        delivery.receipt.record = await self._require_connection().publish_one(record)

    async def release_many(self, deliveries: Sequence[Delivery]) -> None:
        """Give the messages back at once, and write down that this delivery does not count."""
        receipts = self._valid(deliveries)
        ours = set(receipts)
        records = [
            self._record(
                one, one.message, settled=one.receipt.uncounted + 1, begun=one.receipt.begun
            )
            for one in deliveries
            if one.receipt in ours
        ]
        with self._translate_errors("release"):
            if failures := await self._require_connection().publish(records) if records else {}:
                raise next(iter(failures.values()))
        await self._settle(receipts, NAK, "release")

    async def mark_begun(self, delivery: Delivery) -> int:
        """Count in the record of the message; the server confirms it."""
        if not self._valid([delivery]):
            return 0
        receipt: Receipt = delivery.receipt
        begun = receipt.begun + 1
        record = self._record(delivery, delivery.message, settled=receipt.uncounted, begun=begun)
        with self._translate_errors("mark", delivery.topic):
            await self._write(record, delivery)
        receipt.begun = begun
        return begun

    async def extend_many(
        self, deliveries: Sequence[Delivery], seconds: float
    ) -> Sequence[Delivery]:
        """Report progress to the server: the lease begins anew.

        The length of a lease is fixed on the server, so ``seconds`` above it have no effect.
        """
        receipts = self._valid(deliveries)
        await self._settle(receipts, PROGRESS, "extend")
        ends = asyncio.get_running_loop().time() + min(seconds, self._lease)
        for receipt in receipts:
            receipt.ends = max(receipt.ends, ends) if seconds >= self._lease else ends
        now = asyncio.get_running_loop().time()
        return [
            one
            for one in deliveries
            if not one.receipt.settled and cast("Receipt", one.receipt).ends <= now
        ]

    async def _settle(self, receipts: Sequence[Receipt], word: bytes, what: str) -> None:
        if not receipts:
            return
        connection = self._require_connection()
        # One consumer takes the words of one connection in order: the last answer is for all.
        last = {receipt.consumer: receipt for receipt in receipts}
        with self._translate_errors(what):
            for receipt in receipts:
                if receipt is not last[receipt.consumer]:
                    await connection.send(receipt.reply, word)
            for receipt in last.values():
                await connection.request(receipt.reply, word)
        if word is not PROGRESS:
            for receipt in receipts:
                receipt.settled = True

    def _valid(self, deliveries: Sequence[Delivery]) -> list[Receipt]:
        """Those that still belong to us."""
        now = asyncio.get_running_loop().time() if deliveries else 0.0
        receipts = (cast("Receipt", delivery.receipt) for delivery in deliveries)
        return [one for one in receipts if not one.settled and one.ends > now]

    # Dead letters.

    async def dead_letter(self, delivery: Delivery, entry: DeadLetterEntry) -> None:
        """Write the entry, confirmed; then acknowledge."""
        receipts = self._valid([delivery])
        if not receipts:
            return
        connection = self._require_connection()
        outbound = self._dead_letters.encode(receipts[0].consumer, entry)
        outbound.cut(connection.max_payload)
        with self._translate_errors("dead letter", delivery.topic):
            await connection.publish_one(outbound)
        await self.ack_many([delivery])

    async def list_dead(
        self, topic: str, group: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[DeadLetterEntry]:
        """Read the entries, oldest first."""
        place = place_of(self.stream, topic, group)
        with self._translate_errors("list dead letters", topic):
            found, _ = await self._dead_letters.read(
                self._require_connection(), place, offset + limit
            )
        return [entry for _, entry in found[offset:]]

    async def count_dead(self, topic: str, group: str) -> int:
        """What a consumer of the entries would get; it gets none."""
        place = place_of(self.stream, topic, group)
        with self._translate_errors("count dead letters", topic):
            _, count = await self._dead_letters.read(self._require_connection(), place, 0)
        return count

    async def redrive(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Send entries to their topic again, marked for this group, and drop them."""
        place = place_of(self.stream, topic, group)
        done = 0
        with self._translate_errors("redrive", topic):
            connection = self._require_connection()
            if ids is not None:
                wanted = list(dict.fromkeys(ids))
                for start in range(0, len(wanted), PAGE):
                    entries = await self._dead_letters.find(
                        connection, place, wanted[start : start + PAGE]
                    )
                    done += await self._dead_letters.resend(connection, place, entries)
                return done
            # Those that fail again meanwhile are not for this call: it ends.
            entries, left = await self._dead_letters.read(connection, place, PAGE)
            while entries:
                done += await self._dead_letters.resend(connection, place, entries)
                left -= len(entries)
                entries, _ = await self._dead_letters.read(connection, place, min(PAGE, left))
        return done

    async def purge_dead(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Drop entries."""
        connection, place = self._require_connection(), place_of(self.stream, topic, group)
        with self._translate_errors("purge dead letters", topic):
            return await self._dead_letters.purge(connection, place, ids)

    # Watched and steered.

    async def peek(self, topic: str, group: str, *, limit: int = 10) -> Sequence[BusMessage]:
        """What comes next for the first time; retries that wait are not among it."""
        place = place_of(self.stream, topic, group)
        found: list[BusMessage] = []
        with self._translate_errors("peek", topic):
            connection = self._require_connection()
            sequence = (await self._info(connection, place))["delivered"]["stream_seq"]
            while len(found) < limit:
                ask = json.dumps({"seq": sequence + 1, "next_by_subj": place.subject}).encode()
                one = await connection.request(f"$JS.API.DIRECT.GET.{self.stream}", ask)
                if not is_message(one):
                    break
                headers = one.headers or {}
                sequence = int(headers[SEQUENCE])
                one.subject = headers["Nats-Subject"]
                arrived = Arrived(one, Receipt("", place.name, sequence, 1, 0.0))
                if self._receiver.is_for(place, arrived):
                    found.append(self._receiver.read(arrived))
        return found

    async def purge(self, topic: str, group: str) -> int:
        """Take and acknowledge what waits. A retry whose delay is not over stays."""
        place = place_of(self.stream, topic, group)
        dropped = 0
        with self._translate_errors("purge", topic):
            connection = self._require_connection()
            await self._info(connection, place)
            while messages := await connection.pull(self.stream, place.name, PAGE):
                for one in messages[:-1]:
                    await connection.send(one.reply, ACK)
                await connection.request(messages[-1].reply, ACK)
                dropped += sum(
                    self._receiver.is_for(place, Arrived(one, receipt_of(place.name, one, 0.0)))
                    for one in messages
                )
        return dropped

    async def set_paused(self, topic: str, group: str, paused: bool) -> None:
        """Write the mark; members that listen see it at once."""
        place = place_of(self.stream, topic, group)
        subject = f"{self._topology.records}.paused.{place.name}"
        connection = self._require_connection()
        with self._translate_errors("pause", topic):
            await self._info(connection, place)
            await connection.publish_one(OutboundMessage(subject, b"1" if paused else b"0", {}))
        connection.set_paused(place.name, paused)

    async def is_paused(self, topic: str, group: str) -> bool:
        """Read the mark."""
        with self._translate_errors("ask whether paused", topic):
            return await self._receiver.read_paused(
                self._require_connection(), place_of(self.stream, topic, group)
            )

    def _on_pause(self, connection: Connection, message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        connection.set_paused(name, message.data == b"1")

    async def depth(self, topic: str, group: str) -> int:
        """What was not delivered yet, and what was and is not acknowledged."""
        with self._translate_errors("depth", topic):
            info = await self._info(self._require_connection(), place_of(self.stream, topic, group))
        return int(info["num_pending"]) + int(info["num_ack_pending"])

    async def lag(self, topic: str, group: str) -> int:
        """What was not delivered yet. What was given back is counted by ``depth`` only."""
        with self._translate_errors("lag", topic):
            info = await self._info(self._require_connection(), place_of(self.stream, topic, group))
        return int(info["num_pending"])

    async def _info(self, connection: Connection, place: Place) -> Json:
        await self._receiver.check_declared(connection, place)
        return await connection.ask(f"CONSUMER.INFO.{self.stream}.{place.name}")

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY when JetStream tells about the stream in time."""
        begun = clock.monotonic()
        facts = {"address": self.address, "stream": self.stream}
        try:
            async with asyncio.timeout(timeout):
                connection = self._require_connection()
                with self._translate_errors("health check"):
                    info = await connection.ask(f"STREAM.INFO.{self.stream}")
        except (QueueError, TimeoutError) as error:
            text = error.message if isinstance(error, QueueError) else f"no answer in {timeout} s"
            return HealthCheckResult(
                component="queue",
                status=HealthStatus.UNHEALTHY,
                error=text,
                details=facts,
                duration_ms=(clock.monotonic() - begun) * 1000,
            )
        state = info["state"]
        facts |= {"server": connection.version_text, "messages": state["messages"]}
        return HealthCheckResult(
            component="queue",
            message="NATS queue OK",
            details=facts,
            duration_ms=(clock.monotonic() - begun) * 1000,
        )

    # Errors.

    def _require_connection(self) -> Connection:
        connection = self._connection
        if connection is None:
            raise NotConnectedError(
                "NATSDriver not connected", backend=NAME, hint="await driver.connect() first"
            )
        if connection.broken is not None:
            raise self._error(connection.broken, "use the connection")
        return connection

    @contextmanager
    def _translate_errors(self, what: str, topic: str = "unknown") -> Generator[None]:
        """The one place where errors of the client and the server become ours."""
        try:
            yield
        except (ApiError, ClosedError, TimeoutError, OSError) as error:
            raise self._error(error, what, topic) from error

    def _error(self, error: BaseException, what: str, topic: str = "unknown") -> QueueError:
        text, hint = explain(error)
        kind = QueueFullError if isinstance(error, ApiError) and error.is_full else NATSQueueError
        return kind(
            f"could not {what} at {self.address}: {text}", backend=NAME, topic=topic, hint=hint
        )


class NATSQueue(BusQueue):
    """The bus on NATS, usable without a container: ``await NATSQueue(url).connect()``."""

    def __init__(
        self,
        url: str | None = None,
        stream: str | None = None,
        *,
        config: NATSDriverConfig | None = None,
        visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT,
        options: BusOptions | None = None,
    ) -> None:
        """``config``: all settings; those that are given by name come before them."""
        driver = NATSDriver(
            url, config=config, stream=stream, visibility_timeout=visibility_timeout
        )
        super().__init__(driver, options=options)


def build(entry: NamedQueueConfig, services: Services) -> NATSDriver:  # noqa: ARG001 - all alike
    """The driver a configuration asks for."""
    return NATSDriver(
        config=entry.nats,
        visibility_timeout=entry.visibility_timeout,
        max_backlog=entry.max_backlog,
        dedup_window=entry.dedup_window,
    )

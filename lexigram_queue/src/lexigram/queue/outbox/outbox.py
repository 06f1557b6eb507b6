"""Publish a message if, and only if, a database change is committed.

``stage`` writes the message in the caller's transaction; a relay publishes what is committed, to
whatever broker the queue has, and deletes it when the broker confirmed. A relay that crashes between
the two leaves the row: it is published again with the same id, never lost.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from lexigram.concurrency import call
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.contracts.queue import (
    BusMessage,
    CapabilityError,
    InvalidMessageError,
    MessageTooLargeError,
    QueueError,
    QueueFullError,
    QueueProtocol,
)
from lexigram.contracts.queue.headers import CONTENT_TYPE
from lexigram.contracts.queue.limits import check_message, check_topic
from lexigram.leasing import Backoff, lease_token
from lexigram.queue.bus import BusQueue
from lexigram.queue.config import OutboxConfig
from lexigram.queue.outbox.store import ROW_BACKOFF, SqlOutboxStore, Staged
from lexigram.queue.runtime.background import Background
from lexigram.queue.runtime.payloads import Payloads
from lexigram.sql.errors import is_file_lost
from lexigram.sql.leasing import WakeUp

if TYPE_CHECKING:
    from lexigram.contracts.observability.metrics import MetricsProtocol
    from lexigram.leasing.subscriptions import Waiter
    from lexigram.sql import Database

BROKER_BACKOFF: Final = Backoff(first=0.2, cap=15.0)  # of a relay whose broker does not answer
FLUSH_PAUSE: Final = 0.05  # poll interval in seconds, while another relay publishes the rest

# What is wrong with one message; the broker answers, and others may go.
_ONE_MESSAGE: Final = (QueueFullError, MessageTooLargeError, CapabilityError, InvalidMessageError)

Send: TypeAlias = Callable[[Sequence[BusMessage]], Awaitable[None]]

_log = logging.getLogger(__name__)


class TransactionalOutbox:
    """``await outbox.stage(topic, message)`` inside ``async with db.transaction():``.

    With a database, staged messages are rows, and the relay of this or any other process
    publishes them. Without one they are kept in memory until ``flush``: then a crash loses them,
    and there is no transaction to follow.
    """

    def __init__(
        self,
        queue: QueueProtocol,
        database: Database | None = None,
        *,
        name: str | None = None,
        config: OutboxConfig | None = None,
    ) -> None:
        self._queue = queue
        self._name = name or str(getattr(queue, "name", type(queue).__name__))
        self._config = config or OutboxConfig()
        self._owner = lease_token()
        self._pending: list[BusMessage] = []
        self._store: SqlOutboxStore | None = None
        self.relay: OutboxRelay | None = None
        if database is not None:
            self.use(database)

    def use(self, database: Database) -> None:
        """From now on stage there; before ``start``."""
        self._store = SqlOutboxStore(database, self._name)
        self.relay = OutboxRelay(self._store, _sender(self._queue), config=self._config)

    @property
    def store(self) -> SqlOutboxStore:
        """The rows; raises without a database."""
        if self._store is None:
            raise ConfigurationError(
                f"the outbox of {self._name} has no database",
                hint="add SqlModule to the application",
            )
        return self._store

    async def stage(self, topic: str, message: BusMessage) -> None:
        """Keep the message for the relay, in the transaction of this task if it has one.

        Refuses what publishing would refuse: here, where the transaction can still be rolled back.
        """
        wire = await _wire(self._queue, topic, message)
        if self._store is None:
            self._pending.append(wire)
        else:
            await self._store.stage([wire], owner=self._owner)

    async def flush(self) -> None:
        """Publish what is committed and wait for the broker; raises what was not confirmed."""
        if self._store is None:
            await self._flush_memory()
        else:
            assert self.relay is not None
            self._store.database.refuse_inside_transaction("flushing the outbox")
            await self.relay.flush()

    async def clear(self) -> None:
        """Drop what this object staged and nobody has published; in a transaction, with it."""
        if self._store is None:
            self._pending.clear()
        else:
            await self._store.clear(self._owner)

    async def pending(self) -> int:
        """How many messages wait to be published."""
        return len(self._pending) if self._store is None else await self._store.count()

    async def start(self) -> None:
        """Let the relay of this process work; without a database there is none."""
        if self.relay is not None:
            await self.relay.start()

    async def stop(self) -> None:
        """Let the relay finish its batch. What is left is published by the next one."""
        if self.relay is not None:
            await self.relay.stop()

    async def _flush_memory(self) -> None:
        wires = list(self._pending)
        if not wires:
            return
        lost: set[str] = set()
        try:
            await _sender(self._queue)(wires)
        except QueueError as error:
            lost = set(error.details.get("unconfirmed") or [wire.id for wire in wires])
            raise
        except BaseException:
            lost = {
                wire.id for wire in wires
            }  # unknown outcome: published again, with the same ids
            raise
        finally:
            later = self._pending[len(wires) :]
            self._pending = [wire for wire in wires if wire.id in lost] + later


class OutboxRelay:
    """Publishes the rows of one queue. Any number of them, in any process, share the work."""

    def __init__(
        self, store: SqlOutboxStore, send: Send, *, config: OutboxConfig | None = None
    ) -> None:
        self._store, self._send = store, send
        self._config = config or OutboxConfig()
        self._holder = lease_token()
        self._background = Background(f"queue.{store.queue}.outbox")
        self._stopping = False
        self._failures = 0  # in a row, to read the store
        self._idle = anyio.Event()
        self.metrics: MetricsProtocol | None = None

    @property
    def is_running(self) -> bool:
        """True between start and stop."""
        return self._background.is_open

    async def start(self) -> None:
        """Work in the background; a second time does nothing."""
        if self.is_running:
            return
        self._stopping = False
        await self._background.open()
        self._background.start(self._run, name=f"queue.{self._store.queue}.outbox")

    async def stop(self, patience: float = 10.0) -> None:
        """Finish the batch that is under way, for up to ``patience`` seconds."""
        if not self.is_running:
            return
        self._stopping = True
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(patience):
                await self._idle.wait()
            await self._background.close()

    async def flush(self) -> None:
        """Publish what is committed now; also what pauses after a failure."""
        newest = await self._store.newest()
        while newest is not None:
            done, error = await self._round(at_once=True)
            if error is not None:
                left = await self._store.list_unsent(newest)
                if left:
                    raise _flush_error(self._store.queue, left, error)
                return
            if not await self._store.list_unsent(newest, 1):
                return
            if not done:  # the rest is with another relay
                await anyio.sleep(FLUSH_PAUSE)

    async def _run(self) -> None:
        store = self._store
        wakeup = WakeUp(store.database, store.channel, self._config.poll_interval)

        async def serve() -> None:
            async with wakeup.waiting() as waiter:
                await self._serve(waiter)

        while True:
            try:
                await call(serve, host=self._background.host)
            except DatabaseError as error:
                if is_file_lost(error):
                    _log.error("the outbox of %s is relayed no more: %s", store.queue, error)
                    return
                _log.warning("the outbox of %s cannot be read: %s", store.queue, error)
            except Exception:  # noqa: BLE001 - whatever it was, the relay continues
                _log.exception("the relay of the outbox of %s failed", store.queue)
            finally:
                self._idle.set()  # nothing is under way that a stop should wait for
            self._failures += 1
            await anyio.sleep(BROKER_BACKOFF.delay(self._failures))

    async def _serve(self, waiter: Waiter) -> None:
        failures, woken = 0, True
        while True:
            self._idle = anyio.Event()
            done, error = 0, None
            if not self._stopping and (woken or await self._store.has_waiting()):
                done, error = await self._round()
            self._idle.set()
            self._failures = 0
            if error is not None and not isinstance(error, _ONE_MESSAGE):
                failures += 1
                await anyio.sleep(BROKER_BACKOFF.delay(failures))
                woken = True
            elif done:
                failures, woken = 0, True
            else:
                woken = await waiter.wait()

    async def _round(self, *, at_once: bool = False) -> tuple[int, Exception | None]:
        """One batch: how many were published, and why not all of them."""
        rows = await self._store.claim(
            self._holder, limit=self._config.batch, lease=self._config.lease, at_once=at_once
        )
        if not rows:
            return 0, None
        try:
            await call(self._send, [row.message for row in rows])
        except _ONE_MESSAGE as error:
            if len(rows) > 1:
                return await self._one_by_one(rows)
            await self._refuse(rows[0], error)
            return 0, error
        except Exception as error:  # noqa: BLE001 - the boundary to queues of others
            return await self._unreachable(rows, error)
        await self._store.delete(self._holder, rows)
        self._count("relayed", len(rows))
        return len(rows), None

    async def _one_by_one(self, rows: Sequence[Staged]) -> tuple[int, Exception | None]:
        """One of them is refused: find it, and let the others go, each key in its order."""
        done, first, blocked = 0, None, set[str]()
        for position, row in enumerate(rows):
            if row.key is not None and row.key in blocked:
                await self._store.give_back(self._holder, [row], error=None, pause=0)
                continue
            try:
                await call(self._send, [row.message])
            except _ONE_MESSAGE as error:
                first = first or error
                if row.key is not None:
                    blocked.add(row.key)
                await self._refuse(row, error)
                continue
            except Exception as error:  # noqa: BLE001 - the boundary to queues of others
                _, failure = await self._unreachable(rows[position:], error)
                return done, failure
            await self._store.delete(self._holder, [row])
            done += 1
        self._count("relayed", done)
        # Refused ones pause by themselves: the relay continues, flush() raises.
        return done, first

    async def _refuse(self, row: Staged, error: Exception) -> None:
        """Wrong with this message: it pauses longer and longer, and holds up its key only."""
        _log.error(
            "message %s of the outbox of %s is refused: %s",
            row.message.id,
            self._store.queue,
            error,
        )
        self._count("refused", 1)
        await self._store.give_back(
            self._holder, [row], error=_text(error), pause=ROW_BACKOFF.delay(row.attempts + 1)
        )

    async def _unreachable(self, rows: Sequence[Staged], error: Exception) -> tuple[int, Exception]:
        """The broker did not confirm: what it did not confirm is for the next round."""
        details = error.details if isinstance(error, QueueError) else {}
        lost = set(details.get("unconfirmed") or [row.message.id for row in rows])
        left = [row for row in rows if row.message.id in lost]
        sent = [row for row in rows if row.message.id not in lost]
        await self._store.delete(self._holder, sent)
        await self._store.give_back(self._holder, left, error=_text(error), pause=0)
        _log.warning("the outbox of %s keeps %d messages: %s", self._store.queue, len(left), error)
        self._count("relayed", len(sent))
        self._count("failed", len(left))
        return len(sent), error

    def _count(self, what: str, number: int) -> None:
        if self.metrics is not None and number:
            tags = {"queue": self._store.queue}
            self.metrics.increment(f"queue.outbox.{what}", float(number), tags)


async def _wire(queue: QueueProtocol, topic: str, message: BusMessage) -> BusMessage:
    """The message as bytes, by the codec of the queue; on a queue of others, as JSON."""
    if isinstance(queue, BusQueue):
        return await queue.to_wire(topic, message)
    check_topic(topic)
    wire = _JSON.encode(message, topic)
    check_message(wire)
    return wire


def _sender(queue: QueueProtocol) -> Send:
    if isinstance(queue, BusQueue):
        return queue.publish_wires

    async def one_after_the_other(wires: Sequence[BusMessage]) -> None:
        for position, wire in enumerate(wires):
            plain = _JSON.decode(wire, object)
            headers = {name: text for name, text in wire.headers.items() if name != CONTENT_TYPE}
            try:
                await queue.publish(wire.topic, replace(plain, headers=headers))
            except QueueError as error:
                error.details["unconfirmed"] = [one.id for one in wires[position:]]
                raise

    return one_after_the_other


def _flush_error(queue: str, ids: Sequence[str], error: Exception) -> QueueError:
    failure = QueueError(
        f"{len(ids)} messages of the outbox were not confirmed: {_text(error)}",
        backend=queue,
        details={"unconfirmed": list(ids)},
        hint="they stay staged: the relay tries again",
    )
    failure.__cause__ = error
    return failure


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


_JSON: Final = Payloads("json")

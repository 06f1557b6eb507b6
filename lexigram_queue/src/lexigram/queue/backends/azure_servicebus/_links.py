"""The connections of the Service Bus driver: readers, sessions, senders, and requests by lock token.

The vendor's client reads and writes one connection under one lock, so a link that waits for
messages holds up whatever is settled on it for a fifth of a second. So reading has a connection of
its own, and messages are settled and renewed by their lock tokens, in batches, over the management
link of another one. Lock tokens outlive links and connections.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import anyio
from attrs import define, field

from lexigram.queue.backends.libraries import require_library

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

EXTRA: Final = "azure"
STEP: Final = 0.3  # seconds a reader waits for a message before it checks its state
GRACE: Final = (0.2, 5.0)  # seconds a link is kept, and sent messages, when nobody receives
GATHER: Final = 0.003  # seconds from the first message of a batch for those right behind it
PAUSED_FOR: Final = 0.25  # poll interval of a paused queue, in seconds
CLOSE_SECONDS: Final = 5.0
OPENING: Final = 1.0  # seconds until a connection is made, if it can be
ASKING: Final = 2.0  # seconds until a request is answered, if it is
COMPLETED, ABANDONED, DEAD = "completed", "abandoned", "suspended"

_log = logging.getLogger(__name__)


@define(eq=False, kw_only=True)
class Held:
    """One locked message. ``until``: when the lock ends, by the clock of the loop."""

    raw: ServiceBusReceivedMessage
    queue: str
    until: float
    receiver: ServiceBusReceiver
    is_keyed: bool = False
    settled: bool = False
    done: asyncio.Event = field(factory=asyncio.Event)

    @property
    def token(self) -> Any:
        return self.raw.lock_token

    def is_ours(self, now: float) -> bool:
        return not self.settled and now < self.until

    def finish(self) -> None:
        self.settled = True
        self.done.set()


class Inbox:
    """The messages of a group: of a plain queue, and with sessions of a second queue."""

    def __init__(
        self,
        client: ServiceBusClient,
        plain: str,
        keyed: str | None,
        *,
        lease: float,
        credit: int,
        session_wait: float,
    ) -> None:
        self._client, self._lease, self._credit = client, lease, credit
        self._plain, self._keyed, self._session_wait = plain, keyed, session_wait
        self._grace = min(max(lease / 5, GRACE[0]), GRACE[1])
        self._buffer: deque[Held] = deque()
        self._news = asyncio.Event()
        self._wanted_until = 0.0
        self._waiting = 0
        self._sessions = 0
        self._longest = float("-inf")  # seconds of a lock, by our clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None

    async def take(self, limit: int, wait: float) -> list[Held]:
        """Up to ``limit`` messages; raises what ended the readers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        self._wanted_until = max(self._wanted_until, deadline + self._grace)
        self._waiting += 1
        try:
            while True:
                self._start()
                if found := self._pop(limit):
                    return found
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if loop.time() >= deadline:
                    return []
                await self._wait_for_news(deadline - loop.time())
                if self._buffer and len(self._buffer) < limit:
                    await asyncio.sleep(GATHER)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Return messages that were not handed out to the broker."""
        self._wanted_until = 0.0
        tasks = [*self._tasks.values(), *self._others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._buffer.clear()

    def _pop(self, limit: int) -> list[Held]:
        found: list[Held] = []
        now = asyncio.get_running_loop().time()
        while self._buffer and len(found) < limit:
            held = self._buffer.popleft()
            # With little of its lock left, the lock would expire while the handler runs.
            if now < held.until - self._lease / 3:
                found.append(held)
            else:
                held.finish()
        return found

    async def _wait_for_news(self, seconds: float) -> None:
        self._news.clear()
        with anyio.move_on_after(seconds):
            await self._news.wait()

    def _notify(self) -> None:
        self._news.set()

    def _is_wanted(self) -> bool:
        return self._waiting > 0 or asyncio.get_running_loop().time() < self._wanted_until

    # The plain queue.

    def _start(self) -> None:
        jobs: dict[str, Callable[[], Awaitable[None]]] = {"plain": self._read}
        if self._keyed is not None:
            jobs["keyed"] = self._accept
        for name, job in jobs.items():
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._run(name, job), name=f"queue.{name}")

    async def _run(self, name: str, job: Callable[[], Awaitable[None]]) -> None:
        errors = require_library("azure.servicebus.exceptions", extra=EXTRA)
        try:
            await job()
        except errors.MessagingEntityDisabledError:
            await asyncio.sleep(PAUSED_FOR)  # paused: empty until it is resumed
        except Exception as error:  # noqa: BLE001 - the boundary to the client; take() raises it
            self._failure = error
        finally:
            self._tasks.pop(name, None)
            self._notify()

    async def _read(self) -> None:
        receiver = self._client.get_queue_receiver(
            self._plain, prefetch_count=self._credit - 1, max_wait_time=STEP
        )
        unused: list[Held] = []
        try:
            await open_link(receiver)
            while self._is_wanted():
                if len(self._buffer) >= self._credit:
                    await asyncio.sleep(GATHER)
                    continue
                raw = await _next(receiver)
                if raw is not None:
                    self._came(raw, receiver, self._plain)
            unused = [held for held in self._buffer if not held.is_keyed]
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                for held in unused:
                    self._buffer.remove(held)
                    await _release(receiver, held.raw)
                # Also returns what the client has buffered and what is on its way.
                await receiver.close()

    def _came(self, raw: Any, receiver: Any, queue: str, *, is_keyed: bool = False) -> Held:
        until = asyncio.get_running_loop().time() + self._lease - self._age(raw)
        held = Held(raw=raw, queue=queue, until=until, receiver=receiver, is_keyed=is_keyed)
        self._buffer.append(held)
        self._notify()
        return held

    def _age(self, raw: Any) -> float:
        """Seconds of its lock that passed in the client.

        Computed from the end of the lock relative to the latest one seen, so clocks may differ.
        """
        until: datetime | None = raw.locked_until_utc
        if until is None:  # of a session
            return 0.0
        left = until.timestamp() - time.time()
        self._longest = max(self._longest, left)
        return self._longest - left

    # The queue with sessions: a key is a session, and one of its messages is out at a time.

    async def _accept(self) -> None:
        library = require_library("azure.servicebus", extra=EXTRA)
        errors = require_library("azure.servicebus.exceptions", extra=EXTRA)
        while self._is_wanted():
            if self._sessions >= self._credit:
                await asyncio.sleep(GRACE[0] / 10)
                continue
            receiver = self._client.get_queue_receiver(
                str(self._keyed),
                session_id=library.NEXT_AVAILABLE_SESSION,
                max_wait_time=self._session_wait,
            )
            try:
                await open_link(receiver)
            except BaseException as error:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await receiver.close()
                if isinstance(error, errors.OperationTimeoutError):
                    continue  # no key has messages without an owner
                raise
            self._sessions += 1
            task = asyncio.create_task(self._follow(receiver), name="queue.session")
            self._others.add(task)
            task.add_done_callback(self._others.discard)

    async def _follow(self, receiver: ServiceBusReceiver) -> None:
        """The messages of one key, one after the other, until none comes for a moment."""
        held: Held | None = None
        try:
            while self._is_wanted():
                raws = await receiver.receive_messages(max_message_count=1, max_wait_time=STEP)
                if not raws:
                    break
                held = self._came(raws[0], receiver, str(self._keyed), is_keyed=True)
                while not held.done.is_set():
                    now = asyncio.get_running_loop().time()
                    if now >= held.until or (not self._is_wanted() and held in self._buffer):
                        return
                    with anyio.move_on_after(STEP):
                        await held.done.wait()
        except Exception as error:  # noqa: BLE001 - the boundary: the key goes to another member
            _log.debug("lost a session of %s: %r", self._keyed, error)
        finally:
            self._sessions -= 1
            if held is not None and held in self._buffer:
                self._buffer.remove(held)
            # Closing the link of a session unlocks it, with the message it holds.
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await receiver.close()


async def open_link(link: ServiceBusReceiver | ServiceBusSender) -> None:
    """Open it, or find it open. Cancelled early, the client would leave its socket open."""
    await _whole(link.__aenter__(), OPENING)


async def _whole(work: Awaitable[Any], seconds: float) -> Any:
    """Await a call of the client; after a cancellation it may run until ``seconds`` are over.

    The client waits for tasks of its own, and a scope of anyio cancels repeatedly: the tasks would
    be orphaned, and their errors never retrieved.
    """
    loop = asyncio.get_running_loop()
    until, task = loop.time() + seconds, asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=max(0.0, until - loop.time()))
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved; the caller is gone
        raise


async def _next(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage | None:
    try:
        return await receiver.__anext__()
    except StopAsyncIteration:
        return None


async def _release(receiver: Any, raw: Any) -> None:
    """Give a message back as never delivered; the client's own abandon counts as a failure."""
    try:
        await receiver._handler.settle_messages_async(  # noqa: SLF001 - what its close() does
            raw._delivery_id,  # noqa: SLF001
            raw._delivery_tag,  # noqa: SLF001
            "released",
        )
    except Exception as error:  # noqa: BLE001 - the boundary: its lock ends by itself
        _log.debug("could not release a message: %r", error)


class Requests:
    """Requests about the messages of a queue by lock token, in batches; receives none.

    The client has these requests for single messages only, so its private ones are used, here
    and nowhere else. One at a time: each of them reads frames of the connection, and two that read
    at once take parts of each other's, which ends it.
    """

    def __init__(self, client: ServiceBusClient, queue: str, **options: Any) -> None:
        self._receiver: Any = client.get_queue_receiver(queue, **options)
        self._opening, self._asking = asyncio.Lock(), asyncio.Lock()

    async def settle(
        self, status: str, tokens: Sequence[Any], details: dict[str, Any] | None = None
    ) -> bool:
        """Settle all of them or, where one lock is lost, none: False."""
        receiver = await self.open()
        async with self._asking:
            return await _attempt(self._settle(receiver, status, tokens, details))

    async def renew(self, tokens: Sequence[Any]) -> bool:
        """Renew all of them or, where one lock is lost, none: False."""
        receiver = await self.open()
        async with self._asking:
            return await _attempt(receiver._renew_locks(*tokens))  # noqa: SLF001 - see the class

    async def peek(self, limit: int, start: int) -> list[ServiceBusReceivedMessage]:
        """Messages from sequence number ``start`` on, locked and scheduled ones too."""
        receiver = await self.open()
        async with self._asking:
            found: list[ServiceBusReceivedMessage] = await receiver.peek_messages(
                max_message_count=limit, sequence_number=start
            )
        return found

    async def open(self) -> Any:
        """Open the link; otherwise the first request would wait for it."""
        async with self._opening:  # two that open at once would make two links
            await open_link(self._receiver)
        return self._receiver

    async def close(self) -> None:
        await self._receiver.close()

    @staticmethod
    async def _settle(
        receiver: Any, status: str, tokens: Sequence[Any], details: dict[str, Any] | None
    ) -> None:
        await receiver._settle_message_via_mgmt_link(  # noqa: SLF001 - see the class
            status, list(tokens), dead_letter_details=details
        )


async def settle_keyed(held: Held, status: str, details: dict[str, Any] | None = None) -> bool:
    """The same for a message of a session, which only its own receiver may settle."""
    receiver: Any = held.receiver
    return await _attempt(
        receiver._settle_message_via_mgmt_link(  # noqa: SLF001 - see Requests
            status, [held.token], dead_letter_details=details
        )
    )


async def renew_keyed(held: Held) -> bool:
    """Keep the session of a message."""
    return await _attempt(held.receiver.session.renew_lock())


async def _attempt(request: Awaitable[Any]) -> bool:
    errors = require_library("azure.servicebus.exceptions", extra=EXTRA)
    try:
        await _whole(request, ASKING)
    except (
        errors.MessageLockLostError,
        errors.SessionLockLostError,
        errors.MessageNotFoundError,
        ValueError,  # what the client raises for a closed receiver
    ):
        return False
    return True


class Senders:
    """One link per topic or queue that is sent to; its batches go one after the other."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._links: dict[tuple[str, bool], tuple[ServiceBusSender, asyncio.Lock]] = {}

    async def send(
        self,
        entity: str,
        messages: Sequence[ServiceBusMessage],
        on_sent: Callable[[int], None] = lambda _: None,
        *,
        is_topic: bool = True,
    ) -> None:
        """Send in as few batches as fit; ``on_sent`` gets the number of confirmed ones."""
        link, mutex = self._link(entity, is_topic)
        async with mutex:
            await open_link(link)
            batch, number = await link.create_message_batch(), 0
            for message in messages:
                try:
                    batch.add_message(message)
                except ValueError:  # MessageSizeExceededError
                    if not number:
                        raise
                    await link.send_messages(batch)
                    on_sent(number)
                    batch, number = await link.create_message_batch(), 0
                    batch.add_message(message)
                number += 1
            if number:
                await link.send_messages(batch)
                on_sent(number)

    async def cancel(self, queue: str, sequences: Sequence[int]) -> None:
        """Take scheduled messages back."""
        link, mutex = self._link(queue, False)
        async with mutex:
            await link.cancel_scheduled_messages(list(sequences))

    async def close(self) -> None:
        links, self._links = self._links, {}
        await asyncio.gather(*(link.close() for link, _ in links.values()), return_exceptions=True)

    def _link(self, entity: str, is_topic: bool) -> tuple[ServiceBusSender, asyncio.Lock]:
        found = self._links.get((entity, is_topic))
        if found is None:
            make = self._client.get_topic_sender if is_topic else self._client.get_queue_sender
            found = self._links[entity, is_topic] = (make(entity), asyncio.Lock())
        return found

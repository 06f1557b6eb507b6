"""The calls of the Pub/Sub driver, its pull loop, and what came of it.

A group has one unary pull at a time. A pull outlives the receive that began it by a moment, so that the next receive finds it waiting: a
pull that is given up may have taken messages along, which then come only after their ack deadline.
Messages of one ordering key come in batches; one of a key is handed out at a time, and the others
wait here with their deadlines kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias, cast

from attrs import define, field

LINGER: Final = 0.25  # seconds a pull is kept up when nobody receives
SHORTEST_WAIT: Final = 0.2  # seconds a receive waits at least: a pull has to go there and back
BREATH: Final = 0.05  # seconds after a pull that came back empty

# One pull: how many at most. Nothing when nothing came in its time.
Pull: TypeAlias = Callable[[int], Awaitable[Sequence[Any]]]
# What of a pull can be handed out now; it sees to the rest.
Sort: TypeAlias = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
# Sets the ack deadline of some deliveries, in seconds from now; 0 gives them back.
Modify: TypeAlias = Callable[[Sequence[str], int], Awaitable[None]]


class Calls:
    """A client of the library, each call in a task of its own.

    A cancelled call ends with a cancellation without an origin, which a cancel scope of anyio
    takes for a foreign one: so the call is cancelled here, and our cancellation is passed on.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[Any]] = set()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._client, name)

        def call(**arguments: Any) -> Awaitable[Any]:
            return self._whole(method(**arguments))

        return call

    async def list_all(self, name: str, **arguments: Any) -> list[Any]:
        """All pages of a list."""

        async def read() -> list[Any]:
            return [one async for one in await getattr(self._client, name)(**arguments)]

        return cast("list[Any]", await self._whole(read()))

    async def _whole(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._discard)
        try:
            return await asyncio.shield(task)
        finally:
            task.cancel()  # does nothing to one that is done

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved; the caller got it, or was cancelled

    async def close(self) -> None:
        """End what is under way, then the connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.transport.close()


@define(eq=False, kw_only=True)
class Held:
    """One delivery. ``until``: when our right to it ends, by the clock of the loop."""

    raw: Any
    until: float
    inbox: Inbox
    is_settled: bool = False

    @property
    def ack_id(self) -> str:
        return str(self.raw.ack_id)

    @property
    def key(self) -> str:
        return str(self.raw.message.ordering_key)

    def is_ours(self, now: float) -> bool:
        return not self.is_settled and now < self.until and not self.inbox.is_closed

    def finish(self, *, acked: bool) -> list[Held]:
        """Settle it; those of its key that go back with it when it was not acknowledged."""
        if self.is_settled:
            return []
        self.is_settled = True
        return self.inbox.next_of(self, acked)


@define(eq=False)
class _Line:
    """A key: the delivery that is handed out or about to be, and those behind it."""

    first: Held
    behind: deque[Held] = field(factory=deque["Held"])


class Inbox:
    """What came to a group here."""

    def __init__(
        self, pull: Pull, sort: Sort, modify: Modify, *, lease: float, deadline: int, most: int
    ) -> None:
        """``lease``: seconds by our clock; ``deadline``: those the service is asked for."""
        self._pull, self._sort, self._modify = pull, sort, modify
        self._lease, self._deadline, self._most = lease, deadline, most
        self._ready: deque[Held] = deque()
        self._lines: dict[str, _Line] = {}
        self._wanted = self._waiting = 0
        self.is_closed = self._is_sorting = False
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self._pulling: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, limit: int, wait: float) -> list[Held]:
        """Up to ``limit`` deliveries; raises what ended the pull."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(wait, SHORTEST_WAIT)
        if not self._waiting:
            self._failure = None  # of long ago; if it lasts, it comes again
        self._waiting += 1
        self._wanted += limit
        try:
            while True:
                if found := self._pop(limit):
                    return found
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                left = deadline - loop.time()
                if left <= 0:
                    return []
                self._start()
                self._news.clear()
                try:
                    async with asyncio.timeout(left):
                        await self._news.wait()
                except TimeoutError:
                    continue  # once more: it may have come in this moment
        finally:
            self._waiting -= 1
            self._wanted -= limit
            if not self._waiting:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = loop.call_later(LINGER, self._retire)

    def next_of(self, held: Held, acked: bool) -> list[Held]:
        """Let the next of a key come; without ``acked``, all behind it go back."""
        line = self._lines.get(held.key)
        if line is None or line.first is not held:
            return []
        if acked and line.behind:
            line.first = line.behind.popleft()
            self._ready.append(line.first)
            self._news.set()
            return []
        del self._lines[held.key]
        for other in line.behind:
            other.is_settled = True
        return list(line.behind)

    def drain(self, *, behind: bool = True) -> list[Held]:
        """What was not handed out; without ``behind``, not what only its holder can have."""
        found = list(self._ready)
        self._ready.clear()
        waiting = set(found)
        for key, line in list(self._lines.items()):
            if line.first in waiting:
                found += line.behind
                del self._lines[key]
            elif behind:
                found += line.behind
                line.behind.clear()
        return found

    async def close(self) -> None:
        """Stop, and give back what was not handed out; what was, comes when its deadline ends."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [one for one in (self._pulling, self._keeping, *self._others) if one is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._give_back(self.drain())

    def _pop(self, limit: int) -> list[Held]:
        found, now = list[Held](), asyncio.get_running_loop().time()
        late = list[Held]()
        while self._ready and len(found) < limit:
            held = self._ready.popleft()
            # With little of its time left it would be lost in the hands of the handler.
            if now < held.until - self._lease / 3:
                found.append(held)
            else:
                late += [held, *held.finish(acked=False)]
        if late:
            self._spawn(self._give_back(late))
        return found

    def _start(self) -> None:
        if self._pulling is None or self._pulling.done():
            self._pulling = asyncio.create_task(self._pull_once())

    async def _pull_once(self) -> None:
        try:
            raws = await self._pull(min(self._most, max(1, self._wanted)))
            if raws:
                self._is_sorting = True
                self._add(await self._sort(raws))
            else:
                await asyncio.sleep(BREATH)
        except Exception as error:  # noqa: BLE001 - the boundary: the next receive raises it
            self._failure = error
        finally:
            self._is_sorting = False
            self._news.set()

    def _add(self, raws: Sequence[Any]) -> None:
        until = asyncio.get_running_loop().time() + self._lease
        for raw in raws:
            held = Held(raw=raw, until=until, inbox=self)
            line = self._lines.get(held.key) if held.key else None
            if line is not None and line.first.is_ours(until - self._lease):
                line.behind.append(held)
                if self._keeping is None or self._keeping.done():
                    self._keeping = asyncio.create_task(self._keep())
                continue
            if held.key:
                # A first one that is over comes again itself, and then what was behind it, too.
                self._lines[held.key] = _Line(held)
            self._ready.append(held)

    async def _keep(self) -> None:
        """Keep the deadlines of what waits behind another one of its key."""
        loop = asyncio.get_running_loop()
        while any(line.behind for line in self._lines.values()):
            await asyncio.sleep(self._lease / 4)
            now, lost = loop.time(), list[Held]()
            for line in list(self._lines.values()):
                if not line.first.is_ours(now):
                    lost += line.first.finish(acked=False)
            if lost:
                await self._give_back(lost)
            kept = [held for line in self._lines.values() for held in line.behind]
            if kept and await self._modify_deadline(kept, self._deadline):
                for held in kept:
                    held.until = now + self._lease

    def _retire(self) -> None:
        """Nobody has received for a while: others shall have what comes."""
        if self._waiting:
            return
        if self._is_sorting:  # it has messages already
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._retire)
            return
        if self._pulling is not None:
            self._pulling.cancel()
        if found := self.drain(behind=False):
            self._spawn(self._give_back(found))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _give_back(self, held: Sequence[Held]) -> None:
        if held:
            for one in held:
                one.is_settled = True
            await self._modify_deadline(held, 0)

    async def _modify_deadline(self, held: Sequence[Held], seconds: int) -> bool:
        try:
            await self._modify([one.ack_id for one in held], seconds)
        except Exception as error:  # noqa: BLE001 - the boundary: without it, their deadlines end
            self._failure = error
            return False
        return True

"""The heartbeat of a worker: renews its leases from a thread and a connection of its own.

A handler that keeps the event loop busy does not lose its lease by that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread
from attrs import evolve

from lexigram import clock
from lexigram.concurrency import as_failure
from lexigram.observability import get_logger
from lexigram.sql.database import Database
from lexigram.sql.url import is_in_memory, parse_url
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import DurableError
from lexigram.workflow.durable.store.records import Beat

logger = get_logger(__name__)

_CONNECTIONS = 1
_BLOCKED_SHOWN = 60.0  # seconds that health shows a blocked loop
_NAMED = 10  # runs that the log names


class LeaseHeartbeat:
    """``await start()``, then ``held`` is renewed every ``interval`` seconds until ``stop()``.

    ``note`` is called in the loop that started it with what each beat found out, ``note_events``
    with the events that were lost. A database in
    memory is in one connection only: there it beats in that loop.
    """

    def __init__(
        self,
        engine: DurableEngine,
        worker_id: str,
        interval: float,
        note: Callable[[Sequence[Beat]], None],
        note_events: Callable[[Sequence[tuple[int, str]]], None] | None = None,
    ) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._interval = interval
        self._note = note
        self._note_events = note_events
        # (run, lease); written by the worker's loop, read here: single operations of a dict
        self.held: dict[tuple[int, str], None] = {}
        # (event, lease) that are being delivered; the same
        self.events: dict[tuple[int, str], None] = {}
        # the kinds of steps that the worker cannot claim; replaced by its loop
        self.lacks: Sequence[int] = ()
        # the lifecycle handlers that it found missing; replaced by its loop
        self.lacks_handlers: Sequence[str] = ()
        # how many were written
        self.beats = 0
        self._home: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_up: asyncio.Event | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        # when the worker's loop last ran, and how long it did not, with the end of that
        self._answered = 0.0
        self._is_blocked = False
        self._was_blocked: tuple[float, float] | None = None
        # done when it ended without being stopped
        self._failed: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Beat once, then on; raises what the first beat raises."""
        self._home = asyncio.get_running_loop()
        self._stopping = False
        self._answered = clock.monotonic()
        first: asyncio.Future[None] = self._home.create_future()
        self._failed = self._home.create_future()
        if is_in_memory(parse_url(self._engine.database.config.url)):
            self._task = self._home.create_task(self._run_here(first))
        else:
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._run_in_thread(first)),
                name=f"heartbeat-{self._worker_id}",
                daemon=True,
            )
            self._thread.start()
        try:
            await first
        except asyncio.CancelledError:
            self._stopping = True  # the thread ends by itself: no caller is left to wait for it
            self.wake()
            raise

    def wake(self) -> None:
        """Beat now: a cancel or pause may have been requested."""
        if self._loop is not None and self._wake_up is not None:
            try:
                self._loop.call_soon_threadsafe(self._wake_up.set)
            except RuntimeError:  # its loop has ended: so has the worker
                logger.debug("heartbeat already stopped; wake-up ignored", worker=self._worker_id)

    async def stop(self) -> None:
        """No more beats; returns when the thread has ended."""
        self._stopping = True
        self.wake()
        if self._task is not None:
            await self._task
            self._task = None
        if self._thread is not None:
            await anyio.to_thread.run_sync(self._thread.join)
            self._thread = None

    @property
    def is_beating(self) -> bool:
        """False before ``start``, after ``stop``, and when it failed."""
        if self._task is not None:
            return not self._task.done()
        return self._thread is not None and self._thread.is_alive()

    @property
    def blocked(self) -> float | None:
        """Seconds for which the worker's loop did not run, if that was a moment ago."""
        if self._was_blocked is None or clock.monotonic() - self._was_blocked[0] > _BLOCKED_SHOWN:
            return None
        return self._was_blocked[1]

    async def wait_for_failure(self) -> None:
        """Wait until the heartbeat ends without being stopped; raises the cause."""
        assert self._failed is not None
        await asyncio.shield(self._failed)

    async def _run_here(self, first: asyncio.Future[None]) -> None:
        try:
            await self._beat_on(self._engine, first)
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            self._fail(first, failure)

    def _fail(self, first: asyncio.Future[None], error: Exception) -> None:
        """End the start that waits for the first beat, else the worker."""
        logger.error("the heartbeat of a worker failed", worker=self._worker_id, exc_info=error)

        def answer() -> None:
            for waiting in (first, self._failed):
                if waiting is not None and not waiting.done():
                    waiting.set_exception(error)
                    return

        if self._home is not None and not self._home.is_closed():
            self._home.call_soon_threadsafe(answer)

    async def _run_in_thread(self, first: asyncio.Future[None]) -> None:
        config = evolve(self._engine.database.config, pool_size=_CONNECTIONS, readers=1)
        try:
            async with Database(config) as database:
                await self._beat_on(DurableEngine(database, self._engine.terms), first)
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            self._fail(first, failure)

    async def _beat_on(self, engine: DurableEngine, first: asyncio.Future[None]) -> None:
        self._loop, self._wake_up = asyncio.get_running_loop(), asyncio.Event()
        while not self._stopping:
            self._wake_up.clear()
            self._check_home_loop()
            if not await self._beat_once(engine, first):
                return
            with anyio.move_on_after(self._interval):
                await self._wake_up.wait()

    async def _beat_once(self, engine: DurableEngine, first: asyncio.Future[None]) -> bool:
        """Renew everything that is held; False when the first beat of all failed."""
        try:
            beats = await engine.store.heartbeat(
                self._worker_id, list(self.held), self.lacks, self.lacks_handlers
            )
            if self.events:
                await self._keep_events(engine, list(self.events))
        except DurableError as error:
            if not first.done():
                self._report_first(first, error)
                return False
            logger.warning("cannot renew leases", worker=self._worker_id, error=str(error))
        else:
            self.beats += 1
            self._report_first(first, None)
            self._report(beats)
        return True

    def _check_home_loop(self) -> None:
        """Report a loop that does not run: nothing else of the worker can."""
        if self._home is None or self._home.is_closed():
            return
        silent = clock.monotonic() - self._answered
        if silent > self._engine.terms.lease and not self._is_blocked:
            self._is_blocked = True
            logger.warning(
                "the event loop of a worker is blocked: a handler calls something that does not"
                " await, or the machine was suspended; its leases are kept",
                worker=self._worker_id,
                seconds=round(silent, 1),
                runs=[run_id for run_id, _ in list(self.held)[:_NAMED]],
            )
        self._home.call_soon_threadsafe(self._answer_from_home_loop)

    def _answer_from_home_loop(self) -> None:
        now = clock.monotonic()
        silent = now - self._answered
        self._answered, self._is_blocked = now, False
        if silent > self._engine.terms.lease:
            self._was_blocked = (now, silent)
            logger.warning(
                "the event loop of a worker runs again",
                worker=self._worker_id,
                blocked_seconds=round(silent, 1),
            )

    async def _keep_events(self, engine: DurableEngine, held: Sequence[tuple[int, str]]) -> None:
        kept = set(await engine.store.keep_events(held))
        lost = [one for one in held if one not in kept]
        if lost and self._note_events and self._home is not None and not self._home.is_closed():
            self._home.call_soon_threadsafe(self._note_events, lost)

    def _report(self, beats: Sequence[Beat]) -> None:
        if self._home is not None and not self._home.is_closed():
            self._home.call_soon_threadsafe(self._note, beats)

    def _report_first(self, first: asyncio.Future[None], error: Exception | None) -> None:
        def answer() -> None:
            if first.done():
                return
            if error is None:
                first.set_result(None)
            else:
                first.set_exception(error)

        if self._home is not None and not self._home.is_closed():
            self._home.call_soon_threadsafe(answer)

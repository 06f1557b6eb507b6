"""Many items, batch by batch: a bounded window, retries, progress, and exact resume."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import anyio

from lexigram.concurrency import CallAbortedError, call
from lexigram.contracts.infra.cache.protocols import CacheBackendProtocol
from lexigram.contracts.infra.resilience.protocols import CircuitBreakerProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.contracts.workflow.bulk import BulkCheckpointStoreProtocol
from lexigram.resilience.breaker import CircuitBreaker
from lexigram.workflow._leases import LEASE_SECONDS
from lexigram.workflow.bulk._attempts import Attempts, FailedItems, Processor
from lexigram.workflow.bulk._batches import Batches, ended, size_of
from lexigram.workflow.bulk._ownership import Unleased, ownership
from lexigram.workflow.bulk.checkpoint_cache import CacheBulkCheckpoints
from lexigram.workflow.bulk.errors import (
    BulkOperationBusyError,
    BulkOperationCancelledError,
    BulkOperationError,
    BulkOperationTimeoutError,
)
from lexigram.workflow.bulk.models import (
    BulkBatchResult,
    BulkOperationMetrics,
    BulkOperationState,
)
from lexigram.workflow.config import BulkOperationConfig

T = TypeVar("T")
R = TypeVar("R")

ProgressHook = Callable[[int, int, str], Awaitable[None]]
ProgressCallback = Callable[[BulkOperationMetrics], Awaitable[None]]

# Batches begun and not yet taken by the caller, per batch worked on: enough to keep all busy
# while some wait for a retry, and little enough for an endless source.
WINDOW_PER_SLOT = 2
SMALLEST_WINDOW = 16  # below, waking caller and workers costs more than the batches
# Batches asked for at once when an operation goes on.
LOOK_AHEAD = 1000

_log = logging.getLogger(__name__)


class BulkOperation(Generic[T, R]):
    """``async for batch in BulkOperation(config, processor).execute(items)``; used once.

    ``processor`` gets a list of items and returns one result per item; an ``Err`` or an
    exception among them is the failure of that item, and what it raises is the failure of all.
    Failed items are tried again. Batches come as they finish. With ``operation_id`` and a
    checkpoint store (any cache, or ``SqlBulkCheckpoints``) a batch is written down before it is
    given to the caller, and a later run leaves finished items out and takes up failed ones. What
    the processor was working on at a crash is worked on again; the result of one that was
    finished and not yet taken is not given again, so what must not be lost is done by the
    processor. In a store that lends operations (``SqlBulkCheckpoints`` does) two processes never
    work on one; after a crash it is free when the ``lease`` is over, or with ``take_over``.
    """

    def __init__(
        self,
        config: BulkOperationConfig | None = None,
        processor: Processor[T] | None = None,
        circuit_breaker: CircuitBreakerProtocol | None = None,
        checkpoint_store: BulkCheckpointStoreProtocol | CacheBackendProtocol | None = None,
        *,
        on_progress: ProgressHook | None = None,
        on_complete: ProgressHook | None = None,
        on_error: ProgressHook | None = None,
        metrics: MetricsProtocol | None = None,
        lease: float = LEASE_SECONDS,
    ) -> None:
        if not lease > 0:
            raise BulkOperationError("a lease must be longer than 0 s", hint="say lease=30.0")
        self._lease = lease
        self._config = config or BulkOperationConfig()
        self._processor = processor
        self._breaker = circuit_breaker
        if circuit_breaker is None and self._config.circuit_breaker_config is not None:
            self._breaker = CircuitBreaker(self._config.circuit_breaker_config, metrics=metrics)
        self._checkpoints = _checkpoints(checkpoint_store)
        self._on_progress = on_progress
        self._on_complete = on_complete
        self._on_error = on_error
        self._callbacks: list[ProgressCallback] = []
        self._reported_metrics = metrics or NoOpMetrics()
        self._state = BulkOperationState.PENDING
        self._metrics = BulkOperationMetrics()
        self._run: _Run[T, R] | None = None

    @property
    def state(self) -> BulkOperationState:
        """Where the operation is."""
        return self._state

    @property
    def metrics(self) -> BulkOperationMetrics:
        """Its metrics, while it runs and afterwards."""
        return self._metrics

    def add_progress_callback(self, callback: ProgressCallback) -> None:
        """Call ``await callback(metrics)`` after every batch."""
        self._callbacks.append(callback)

    async def execute(
        self,
        items: Iterable[T] | AsyncIterable[T],
        processor: Processor[T] | None = None,
        operation_id: str | None = None,
        *,
        take_over: bool = False,
    ) -> AsyncGenerator[BulkBatchResult[T, R], None]:
        """Work on the items; each finished batch at once, in the order of their ends.

        Raises BulkOperationTimeoutError, BulkOperationCancelledError after ``cancel()``, what
        the source of the items raises, and BulkOperationError for wrong use. Leaving the loop
        early cancels what is still worked on. BulkOperationBusyError: another process works on
        ``operation_id``, or took it over from this one; ``take_over`` takes it from an owner
        whose lease still runs, only when that one is dead.
        """
        run = await self._begin(items, processor, operation_id, take_over=take_over)
        try:
            tells = self._tells
            while (result := await run.next()) is not None:
                if tells:
                    await self._tell_progress(result)
                yield result
        except BaseException as error:
            self._fail(error)
            if isinstance(error, Exception):
                await self._tell(self._on_error, str(error))
            raise
        finally:
            self._metrics.record_end()
            with anyio.CancelScope(shield=True):
                await run.close()
        self._state = BulkOperationState.COMPLETED
        await self._tell(self._on_complete, "completed")

    async def process_batch(self, items: list[T]) -> list[R]:
        """One batch with retries and breaker, apart from any run; the results in order.

        Raises BulkOperationError when an item failed after the last try.
        """
        attempts: Attempts[T, R] = Attempts(
            self._require_processor(None), self._config, self._breaker
        )
        result = await attempts.run(0, items)
        if result.errors:
            first = result.errors[0]
            raise BulkOperationError(
                f"{len(result.errors)} of {len(items)} items failed, "
                f"the first: {first.error_type}: {first.error}",
                details={"errors": result.errors},
            )
        return result.results  # type: ignore[return-value]

    async def clear_checkpoint(self, operation_id: str) -> None:
        """Forget what the operation finished; the next run begins anew."""
        if self._checkpoints is not None:
            await self._checkpoints.clear(operation_id)

    async def cancel(self) -> None:
        """Stop: the loop over ``execute`` gets BulkOperationCancelledError. Ended: nothing."""
        if self._run is not None:
            self._run.stop(
                BulkOperationCancelledError(
                    f"cancelled after {self._metrics.processed_items} items",
                    hint="run it again with the same operation_id to go on",
                )
            )
        elif self._state is BulkOperationState.PENDING:
            self._state = BulkOperationState.CANCELLED

    async def shutdown(self) -> None:
        """``cancel()``, and wait until nothing is worked on any more."""
        await self.cancel()
        if self._run is not None:
            await self._run.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._state is BulkOperationState.RUNNING:
            with anyio.CancelScope(shield=True):
                await self.shutdown()

    async def _begin(
        self,
        items: Iterable[T] | AsyncIterable[T],
        processor: Processor[T] | None,
        operation_id: str | None,
        *,
        take_over: bool,
    ) -> _Run[T, R]:
        if self._state is BulkOperationState.CANCELLED:
            raise BulkOperationCancelledError("cancelled before it began")
        if self._state is not BulkOperationState.PENDING:
            raise BulkOperationError(
                f"the operation is {self._state.value}", hint="make a new one for every run"
            )
        attempts: Attempts[T, R] = Attempts(
            self._require_processor(processor), self._config, self._breaker
        )
        size = self._config.batch_size
        self._state = BulkOperationState.RUNNING
        known = size_of(items)
        self._metrics.record_start(known, -(-known // size))
        run = _Run(attempts, Batches(items, size), self._config, self._metrics, is_known=known > 0)
        if self._checkpoints is not None and operation_id is not None:
            try:
                await self._claim(run, self._checkpoints, operation_id, take_over=take_over)
            except BaseException:
                self._state = BulkOperationState.FAILED
                raise
        self._run = run
        run.start()
        return run

    async def _claim(
        self,
        run: _Run[T, R],
        store: BulkCheckpointStoreProtocol,
        operation_id: str,
        *,
        take_over: bool,
    ) -> None:
        """Let the run go on where the operation stands, alone."""
        owned = ownership(store, operation_id, self._lease)
        await owned.claim(take_over=take_over)
        try:
            size = self._config.batch_size
            began_with = await store.begin(operation_id, size)
            if began_with != size:
                raise BulkOperationError(
                    f"operation {operation_id!r} was begun with batch_size={began_with}, "
                    f"this is {size}",
                    hint="use the same batch_size, or clear_checkpoint() to begin anew",
                )
        except BaseException:
            with anyio.CancelScope(shield=True):
                await owned.release()
            raise
        run.owned = owned
        run.checkpoint = _Checkpoint(store, operation_id)

    @property
    def _tells(self) -> bool:
        hooks = (self._on_progress, self._on_error, self._callbacks)
        return any(hooks) or type(self._reported_metrics) is not NoOpMetrics

    def _require_processor(self, processor: Processor[T] | None) -> Processor[T]:
        found = processor or self._processor
        if found is None:
            raise BulkOperationError(
                "there is no processor", hint="give one to BulkOperation or to execute"
            )
        return found

    def _fail(self, error: BaseException) -> None:
        stopped = isinstance(error, (BulkOperationCancelledError, GeneratorExit))
        stopped = stopped or isinstance(error, asyncio.CancelledError)
        self._state = BulkOperationState.CANCELLED if stopped else BulkOperationState.FAILED
        if isinstance(error, Exception):
            self._metrics.record_error(error)

    async def _tell_progress(self, result: BulkBatchResult[T, R]) -> None:
        reported = self._reported_metrics
        if type(reported) is not NoOpMetrics:
            reported.increment("bulk.items", result.success_count, {"outcome": "ok"})
            reported.increment("bulk.items", result.error_count, {"outcome": "failed"})
            reported.histogram("bulk.batch_seconds", result.duration)
        if self._config.enable_progress_tracking:
            if self._on_progress is not None:
                await self._tell(self._on_progress, f"batch {result.batch_id}")
            for callback in self._callbacks:
                await self._run_hook(callback, self._metrics)
        if result.errors and self._on_error is not None:
            await self._tell(self._on_error, result.errors[0].error)

    async def _tell(self, hook: ProgressHook | None, message: str) -> None:
        if hook is not None:
            done = self._metrics.processed_items
            await self._run_hook(hook, done, self._metrics.total_items, message)

    async def _run_hook(self, hook: Callable[..., Awaitable[None]], *facts: Any) -> None:
        try:
            await call(hook, *facts, timeout=self._config.hook_timeout, name="a hook")
        except Exception:  # noqa: BLE001 - the boundary: who watches must not stop the work
            _log.exception("a hook of a bulk operation failed; the operation goes on")


class _Checkpoint:
    """What an operation finished, asked for in long stretches."""

    def __init__(self, store: BulkCheckpointStoreProtocol, operation_id: str) -> None:
        self._store = store
        self._id = operation_id
        self._until = 0  # batches below are known
        self._known: Mapping[int, tuple[int, ...]] = {}

    async def left(self, batch_id: int, size: int) -> list[int] | None:
        """Places still to work on; None: all of them."""
        if batch_id >= self._until:
            last = batch_id + LOOK_AHEAD - 1
            self._known = await self._store.finished(self._id, batch_id, last)
            self._until = last + 1
        failed = self._known.get(batch_id)
        return None if failed is None else [place for place in failed if place < size]

    async def mark(self, batch_id: int, failed: tuple[int, ...]) -> None:
        await self._store.mark(self._id, batch_id, failed)


class _Run(Generic[T, R]):
    """The window: workers that take batches from the source, and results that wait to be taken.

    Workers live as long as the run, since a task for every batch would cost more than the rest.
    A batch that is to be tried again goes to a task of its own, so that its worker goes on.
    """

    def __init__(
        self,
        attempts: Attempts[T, R],
        batches: Batches[T],
        config: BulkOperationConfig,
        metrics: BulkOperationMetrics,
        *,
        is_known: bool,
    ) -> None:
        self.checkpoint: _Checkpoint | None = None
        self.owned = Unleased()
        self._attempts = attempts
        self._batches = batches
        self._metrics = metrics
        self._is_known = is_known
        self._timeout = config.timeout
        self._window = max(config.max_concurrency * WINDOW_PER_SLOT, SMALLEST_WINDOW)
        # One more reads ahead from a stream while the others work; slots limit how many do.
        self._workers = config.max_concurrency + batches.is_stream
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ready: deque[BulkBatchResult[T, R]] = deque()
        # Batches begun and not yet taken by the caller.
        self._outstanding = 0
        self._next_id = 0
        self._is_closing = False
        self._reading = asyncio.Lock()
        self._error: BaseException | None = None
        self._news: asyncio.Future[None] | None = None
        # workers without room
        self._waiting: deque[asyncio.Future[None]] = deque()

    def start(self) -> None:
        """Begin to work."""
        if self._timeout != float("inf"):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._timeout, self._time_is_over)
        self.owned.keep(self._stop_after_loss)
        for _ in range(self._workers):
            self._launch(self._worker)

    async def next(self) -> BulkBatchResult[T, R] | None:
        """The next finished batch; None at the end. Raises the first error."""
        while True:
            if self._error is not None:
                raise self._error
            if self._ready:
                result = self._ready.popleft()
                self._check_unused()
                self._metrics.record_batch_result(result)
                return result
            if not self._tasks:
                return None
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None

    def stop(self, error: BaseException) -> None:
        """Let the caller have the error; the first one counts."""
        if self._error is None:
            self._error = error
        self._wake()

    async def close(self) -> None:
        """Nothing is worked on any more when this returns."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        await ended(self._tasks)
        await self.owned.release()
        await self._batches.close()

    def _stop_after_loss(self, error: BulkOperationBusyError) -> None:
        self._is_closing = True
        self.stop(error)
        for task in self._tasks:
            task.cancel()  # another process may do the same work by now

    def _time_is_over(self) -> None:
        done = self._metrics.processed_items
        self.stop(
            BulkOperationTimeoutError(
                f"not finished within {self._timeout:g} s; {done} items are done",
                hint="raise timeout, or run it again with the same operation_id to go on",
            )
        )

    async def _worker(self) -> None:
        while (batch := await self._next_batch()) is not None:
            batch_id, items, places = batch
            begun = await self._attempts.first(batch_id, items)
            if isinstance(begun, FailedItems):
                if self.checkpoint is not None:
                    # What succeeded is not done again when the wait for a retry is cut off.
                    await self._mark(batch_id, begun.failed, places)
                self._launch(self._again, begun, places)
            else:
                await self._finish(begun, places)

    async def _again(self, batch: FailedItems[T], places: list[int] | None) -> None:
        async def note(failed: list[int]) -> None:
            await self._mark(batch.batch_id, failed, places)

        noted = None if self.checkpoint is None else note
        await self._finish(await self._attempts.again(batch, noted), places)

    async def _finish(self, result: BulkBatchResult[T, R], places: list[int] | None) -> None:
        if self.checkpoint is not None:
            await self._mark(result.batch_id, [error.index for error in result.errors], places)
        self._ready.append(result)
        self._wake()

    async def _mark(self, batch_id: int, failed: list[int], places: list[int] | None) -> None:
        assert self.checkpoint is not None
        marked = failed if places is None else [places[index] for index in failed]
        await self.checkpoint.mark(batch_id, tuple(marked))

    async def _next_batch(self) -> tuple[int, list[T], list[int] | None] | None:
        """The next batch with something to do, when there is room for it; None at the end."""
        while self._error is None and not self._batches.is_over():
            if self._outstanding >= self._window:
                room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(room)
                await room
                continue
            self._outstanding += 1
            self._let_in()
            if not self._batches.is_stream and self.checkpoint is None:
                batch_id, batch = self._number_items(self._batches.take())
            else:
                async with self._reading:
                    batch_id, batch, places = await self._read()
                    if places is not None:
                        batch = [batch[place] for place in places]
                if batch:
                    return batch_id, batch, places
            if batch:
                return batch_id, batch, None
            self._check_unused()
        self._let_in()  # the others who wait, to see the end too
        return None

    async def _read(self) -> tuple[int, list[T], list[int] | None]:
        """A batch, and which of its places are still to do; None: all."""
        batches = self._batches
        batch_id, batch = self._number_items(await batches.next())
        if self.checkpoint is None or not batch:
            return batch_id, batch, None
        left = await self.checkpoint.left(batch_id, len(batch))
        if left is not None:
            self._metrics.skipped_items += len(batch) - len(left)
        return batch_id, batch, left

    def _number_items(self, batch: list[T]) -> tuple[int, list[T]]:
        batch_id = self._next_id
        self._next_id += 1
        if batch and not self._is_known:
            self._metrics.total_items += len(batch)
            self._metrics.total_batches += 1
        return batch_id, batch

    def _check_unused(self) -> None:
        self._outstanding -= 1
        # Not at every batch: waking costs more than a batch, and half a window keeps all busy.
        if self._waiting and self._outstanding <= self._window // 2:
            self._let_in()

    def _let_in(self) -> None:
        """Wake one worker that waits for room; it wakes the next one."""
        while self._waiting and self._outstanding < self._window:
            if not (room := self._waiting.popleft()).done():
                room.set_result(None)
                return

    def _launch(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        task = asyncio.create_task(call(work, *arguments))
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            if not self._is_closing:  # by the processor or the source itself
                self.stop(CallAbortedError(asyncio.CancelledError()))
        elif (error := task.exception()) is not None:
            self.stop(error)  # of the source, or of the store: nobody would know what is done
        elif not self._tasks:
            self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _checkpoints(
    store: BulkCheckpointStoreProtocol | CacheBackendProtocol | None,
) -> BulkCheckpointStoreProtocol | None:
    if store is None or isinstance(store, BulkCheckpointStoreProtocol):
        return store
    return CacheBulkCheckpoints(store)

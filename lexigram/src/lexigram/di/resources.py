"""Generator resources: entered and left in one task, so that cancel scopes inside them work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from typing import Any, TypeGuard, cast

import anyio

from lexigram.concurrency import CallAbortedError, call
from lexigram.di.errors import ResourceError

OnDeath = Callable[[BaseException], None]
SyncGenerator = Generator[Any, None, None]


class Owned:
    """One async generator in an owner task of its own, from its first step to its last.

    The task is held here and always awaited by ``stop``; nothing outlives its owner.
    """

    __slots__ = ("_generator", "_on_death", "_ready", "_stop", "_task", "name")

    def __init__(
        self, name: str, generator: AsyncIterator[Any], on_death: OnDeath | None = None
    ) -> None:
        self.name = name
        self._generator = cast("AsyncGenerator[Any, None]", generator)
        self._on_death = on_death
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Any:
        """Run to the first ``yield`` and return its value. A cancelled start undoes itself."""
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Any] = loop.create_future()
        self._stop: asyncio.Future[BaseException | None] = loop.create_future()
        starter = cast("asyncio.Task[Any]", asyncio.current_task())
        task = loop.create_task(self._live(starter), name=self.name)
        try:
            value = await self._ready
        except asyncio.CancelledError as cancelled:
            self._stop.cancel()  # what happens to it now is no death in use
            raise cancelled from await _end(task)
        self._task = task
        return value

    async def stop(self, error: BaseException | None = None) -> None:
        """Let the generator tear down, seeing ``error``; raises what teardown raised."""
        if self._task is None:
            return
        task, self._task = self._task, None
        if not self._stop.done():
            self._stop.set_result(error)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as cancelled:
            raise cancelled from await _end(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            raise failure

    async def _live(self, starter: asyncio.Task[Any]) -> None:
        try:
            value = await call(enter, self._generator, host=starter)
        except BaseException as early:
            if self._ready.done():
                raise  # the start was cancelled, and awaits the end of this task
            self._ready.set_exception(early)
            return
        self._ready.set_result(value)
        error: BaseException | None = None
        try:
            # Shielded: cancelling this task must not make the future look like a request to stop.
            error = await asyncio.shield(self._stop)
        except asyncio.CancelledError as interrupt:
            # A cancel scope inside the generator gave up, or this task was cancelled.
            error = interrupt
        failure = await finish(self._generator, error)
        if not self._stop.done() and self._on_death is not None:
            self._on_death(failure or ResourceError(f"{self.name} ended while it was in use"))
        elif _is_new(failure, error):
            # Raised by a task, SystemExit ends the event loop, and CancelledError is not seen.
            raise failure if _may_leave_a_task(failure) else CallAbortedError(failure)


Exit = Owned | AsyncGenerator[Any, None] | SyncGenerator


async def enter(generator: AsyncGenerator[Any, None]) -> Any:
    """Run to the ``yield`` and return its value."""
    try:
        return await generator.__anext__()
    except StopAsyncIteration:
        raise never_yielded(generator) from None


def enter_sync(generator: SyncGenerator) -> Any:
    """Run to the ``yield`` and return its value."""
    try:
        return next(generator)
    except StopIteration:
        raise never_yielded(generator) from None


async def close(exits: list[Exit], error: BaseException | None) -> None:
    """Tear down in reverse; every one runs and sees ``error``, failures are raised together."""
    failures: list[BaseException] = []
    while exits:
        item = exits.pop()
        if isinstance(item, Owned):
            failure = await _finish_owned(item, error)
        elif isinstance(item, AsyncGenerator):
            failure = await finish(item, error)
        else:
            failure = finish_sync(item, error)
        if _is_new(failure, error):
            failures.append(failure)
    raise_all(failures)


def close_sync(exits: list[Exit], error: BaseException | None) -> None:
    """The same for sync generators: the only ones a scope left without ``await`` can have."""
    failures: list[BaseException] = []
    while exits:
        failure = finish_sync(cast("SyncGenerator", exits.pop()), error)
        if _is_new(failure, error):
            failures.append(failure)
    raise_all(failures)


async def finish(
    generator: AsyncGenerator[Any, None], error: BaseException | None
) -> BaseException | None:
    """Let a generator run out, or throw ``error`` into it; returns what it raised."""
    try:
        if error is None:
            await generator.__anext__()
        else:
            await generator.athrow(error)
    except StopAsyncIteration:
        return None
    except BaseException as failure:  # noqa: BLE001 - the other resources must still be left
        return failure
    return second_yield_error(generator)


def finish_sync(generator: SyncGenerator, error: BaseException | None) -> BaseException | None:
    """The same for a sync generator."""
    try:
        if error is None:
            next(generator)
        else:
            generator.throw(error)
    except StopIteration:
        return None
    except BaseException as failure:  # noqa: BLE001 - the other resources must still be left
        return failure
    return second_yield_error(generator)


def raise_all(failures: Sequence[BaseException]) -> None:
    """Raise what went wrong: one by itself, several as a group; none is lost.

    Cancellation and exits pass as they are, with the others as their cause.
    """
    if not failures:
        return
    if len(failures) == 1:
        raise failures[0]
    errors = [failure for failure in failures if isinstance(failure, Exception)]
    group = ExceptionGroup("several resources failed to tear down", errors) if errors else None
    for failure in failures:
        if not isinstance(failure, Exception):
            raise failure from group
    assert group is not None
    raise group


def never_yielded(generator: Any) -> ResourceError:
    """The error for a generator that ended before its ``yield``."""
    return ResourceError(
        f"{generator.__qualname__} ended without a yield",
        hint="a generator resource yields its value once",
    )


def second_yield_error(generator: Any) -> ResourceError:
    """The error for a generator that yields again instead of ending."""
    return ResourceError(
        f"{generator.__qualname__} yielded twice",
        hint="a generator resource yields its value once",
    )


def _is_new(failure: BaseException | None, error: BaseException | None) -> TypeGuard[BaseException]:
    """False for the error that was thrown in, also when a task group has wrapped it."""
    if isinstance(failure, BaseExceptionGroup):
        return any(_is_new(inner, error) for inner in failure.exceptions)
    return failure is not None and failure is not error


def _may_leave_a_task(failure: BaseException) -> bool:
    return isinstance(failure, Exception | KeyboardInterrupt)


async def _finish_owned(item: Owned, error: BaseException | None) -> BaseException | None:
    try:
        await item.stop(error)
    except BaseException as failure:  # noqa: BLE001 - the other resources must still be left
        return failure
    return None


async def _end(task: asyncio.Task[Any]) -> BaseException | None:
    """Cancel an owner task and wait until it is gone, even while this task is cancelled too."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait((task,))
    return None if task.cancelled() else task.exception()

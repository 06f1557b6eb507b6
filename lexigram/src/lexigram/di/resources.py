"""Generator resources: entered and left in one task, so that cancel scopes inside them work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from lexigram.di.errors import ResourceError

OnDeath = Callable[[BaseException], None]


class Owned:
    """One async generator in an owner task of its own, from its first step to its last.

    The task is held here and always awaited by ``stop``; nothing outlives its owner.
    """

    __slots__ = ("_asked", "_error", "_generator", "_on_death", "_ready", "_task", "name")

    def __init__(
        self, name: str, generator: AsyncGenerator[Any, None], on_death: OnDeath | None = None
    ) -> None:
        self.name = name
        self._generator = generator
        self._on_death = on_death
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    async def start(self) -> Any:
        """Run to the first ``yield`` and return its value. A cancelled start undoes itself."""
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Any] = loop.create_future()
        self._asked = anyio.Event()
        task = self._task = loop.create_task(self._live(), name=self.name)
        try:
            await asyncio.wait((self._ready, task), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _ended(task)
            raise
        if self._ready.done():
            return self._ready.result()
        task.result()
        raise ResourceError(
            f"{self.name} ended without a yield", hint="a generator resource must yield once"
        )

    async def stop(self, error: BaseException | None = None) -> None:
        """Let the generator tear down, seeing ``error``; raises what teardown raised."""
        if self._task is None:
            return
        if not self._asked.is_set():
            self._error = error
            self._asked.set()
        task, self._task = self._task, None
        try:
            await asyncio.shield(_settled(task))
        except asyncio.CancelledError:
            await _ended(task)
            raise
        failure = None if task.cancelled() else _news(task.exception(), error)
        if failure is not None:
            raise failure

    async def _live(self) -> None:
        try:
            async with asynccontextmanager(lambda: self._generator)() as value:
                self._ready.set_result(value)
                await self._asked.wait()
                if self._error is not None:
                    raise self._error
        except BaseException as failure:
            if self._asked.is_set() and failure is self._error:
                return
            if not self._report(failure):
                raise
            return
        self._report(ResourceError(f"{self.name} ended while it was in use"))

    def _report(self, failure: BaseException) -> bool:
        """Tell of a death in use; before the first yield and after ``stop`` the caller sees it."""
        in_use = self._ready.done() and not self._asked.is_set()
        if in_use and self._on_death is not None:
            self._on_death(failure)
            return True
        return False


Exit = Owned | AsyncGenerator[Any, None] | Generator[Any, None, None]


def close_sync(exits: list[Exit], error: BaseException | None) -> None:
    """Tear down sync generators in reverse; every one runs, failures are raised together."""
    failures: list[BaseException] = []
    while exits:
        generator = exits.pop()
        if isinstance(generator, Generator):
            _collect(failures, error, _finish_sync(generator, error))
        else:
            failures.append(
                ResourceError(
                    "an async resource was built in a scope that is left synchronously",
                    hint="use `async with container.scope()`",
                )
            )
    _raise(failures)


async def close(exits: list[Exit], error: BaseException | None) -> None:
    """Tear down in reverse; every one runs and sees ``error``, failures are raised together."""
    failures: list[BaseException] = []
    while exits:
        item = exits.pop()
        if isinstance(item, Owned):
            _collect(failures, error, await _finish_owned(item, error))
        elif isinstance(item, AsyncGenerator):
            _collect(failures, error, await _finish(item, error))
        else:
            _collect(failures, error, _finish_sync(item, error))
    _raise(failures)


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task and see it end, even while anyio keeps cancelling the one who waits."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await _settled(task)


async def _settled(task: asyncio.Task[Any]) -> None:
    await asyncio.wait((task,))


async def _finish(
    generator: AsyncGenerator[Any, None], error: BaseException | None
) -> BaseException | None:
    try:
        if error is None:
            await generator.__anext__()
        else:
            await generator.athrow(error)
    except StopAsyncIteration:
        return None
    except BaseException as failure:
        return failure
    return ResourceError(f"{generator.__qualname__} yielded twice", hint="yield once")


def _finish_sync(
    generator: Generator[Any, None, None], error: BaseException | None
) -> BaseException | None:
    try:
        if error is None:
            next(generator)
        else:
            generator.throw(error)
    except StopIteration:
        return None
    except BaseException as failure:
        return failure
    return ResourceError(f"{generator.__qualname__} yielded twice", hint="yield once")


async def _finish_owned(item: Owned, error: BaseException | None) -> BaseException | None:
    try:
        await item.stop(error)
    except BaseException as failure:
        return failure
    return None


def _collect(
    failures: list[BaseException], error: BaseException | None, failure: BaseException | None
) -> None:
    failure = _news(failure, error)
    if failure is not None:
        failures.append(failure)


def _news(failure: BaseException | None, error: BaseException | None) -> BaseException | None:
    """What a teardown raised beyond the error it was shown; a task group wraps that in a group."""
    if failure is error:
        return None
    if isinstance(failure, BaseExceptionGroup) and error is not None:
        return failure.split(lambda leaf: leaf is error)[1]
    return failure


def _raise(failures: list[BaseException]) -> None:
    if not failures:
        return
    if len(failures) == 1:
        raise failures[0]
    for failure in failures:
        if not isinstance(failure, Exception):  # cancellation and exits pass untouched
            raise failure
    raise ExceptionGroup(
        "several resources failed to tear down",
        [failure for failure in failures if isinstance(failure, Exception)],
    )

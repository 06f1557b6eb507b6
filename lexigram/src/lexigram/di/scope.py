"""A unit of work: what is built once in it, and torn down when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import AsyncGeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, overload

from lexigram.di._running import current_task, enter_with_task
from lexigram.di.errors import ResourceError, ScopedResolutionError
from lexigram.di.resources import (
    Exit,
    Owned,
    close,
    close_sync,
    enter,
    enter_sync,
    second_yield_error,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from typing_extensions import TypeForm

    from lexigram.di._resolver import Resolver
    from lexigram.di.binding import Binding

T = TypeVar("T")


class _Mark:
    """A key of the scope's cache that no binding can have."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}>"


EXITS: Final = _Mark("exits")
WAITERS: Final = _Mark("waiters")
BUILDING: Final = _Mark("building")
SYNC: Final = _Mark("sync")  # in place of a task: the scope is left without await


class Scope:
    """Open it with ``async with container.scope()``; scoped services live until it is left.

    Opening one is the hot path of every request. So each resolver has a subclass of its own,
    which carries its tables and has no constructor, and the cache comes with entering: 2.7x of
    hand-written wiring, where an ``__init__`` that stores a resolver took 3.2x.
    """

    __slots__ = ("cache", "task")

    resolver: ClassVar[Resolver]

    # What was built here, by binding; there is one from entering on.
    cache: dict[Any, Any]
    # The task that will leave the scope, where generators may have to know it.
    task: asyncio.Task[Any] | _Mark | None

    if TYPE_CHECKING:  # the subclasses of ``scope_class`` have them, tied to their tables

        @overload
        def get(self, service: TypeForm[T], /) -> T: ...
        @overload
        def get(self, service: str, /) -> Any: ...
        def get(self, service: Any, /) -> Any:
            """The service inside this scope, synchronously."""

        @overload
        def resolve(self, service: TypeForm[T], /) -> Coroutine[Any, Any, T]: ...
        @overload
        def resolve(self, service: str, /) -> Coroutine[Any, Any, Any]: ...
        def resolve(self, service: Any, /) -> Coroutine[Any, Any, Any]:
            """The service inside this scope. Tasks racing for one scoped one get one instance."""
            ...

    @overload
    async def resolve_optional(self, service: TypeForm[T], /) -> T | None: ...
    @overload
    async def resolve_optional(self, service: str, /) -> Any: ...
    async def resolve_optional(self, service: Any, /) -> Any:
        """Like ``resolve``, but None when nothing visible provides it."""
        return await self.resolve(service) if self.resolver.sees(service) else None

    async def resolve_all(self, service: TypeForm[T], /) -> list[T]:
        """Everything visible under the type, built inside this scope."""
        return await self.resolver.collect(service, self)

    @overload
    async def call(
        self, func: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    async def call(self, func: Callable[..., T], /, *args: Any, **kwargs: Any) -> T: ...
    async def call(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``func`` inside this scope, filling the parameters that were not given."""
        return await self.resolver.call_in(self, func, args, kwargs)

    async def close(self, error: BaseException | None = None) -> None:
        """Tear down what was built, in reverse; each resource sees ``error``."""
        exits: list[Exit] | None = self.cache.get(EXITS)
        if exits:
            await close(exits, error)

    def close_sync(self, error: BaseException | None = None) -> None:
        """The same for a scope that is left without ``await``."""
        exits: list[Exit] | None = self.cache.get(EXITS)
        if exits:
            close_sync(exits, error)

    async def join(self, binding: Binding) -> Any:
        """Wait for another task that builds ``binding``; build it here if that task gave up."""
        future = asyncio.get_running_loop().create_future()
        self.cache.setdefault(WAITERS, {}).setdefault(binding, []).append(future)
        await future
        return await self.resolver.container.function(binding, is_async=True)(self)

    def settle(self, binding: Binding) -> None:
        """Wake the tasks that wait for ``binding``; called when it is built or given up."""
        for future in self.cache.get(WAITERS, {}).pop(binding, ()):
            if not future.done():
                future.set_result(None)

    def give_up(self, binding: Binding) -> None:
        """Forget a build that failed or was cancelled, so that the next one starts afresh."""
        self.cache.pop(binding, None)
        self.settle(binding)

    async def enter(self, name: str, generator: AsyncGenerator[Any, None]) -> Any:
        """Enter a generator: here, if this task is the one that will leave the scope."""
        if self.task is not current_task():
            return await self.own(name, generator)
        value = await enter(generator)
        self.cache.setdefault(EXITS, []).append(generator)
        return value

    async def own(self, name: str, generator: AsyncGenerator[Any, None]) -> Any:
        """Enter a generator in an owner task: this task may not be there at teardown."""
        if self.task is SYNC:
            raise ResourceError(
                f"{name} is torn down with await, but its scope is left without",
                hint="open the scope with `async with container.scope()`",
            )
        owned = Owned(name, generator)
        value = await owned.start()
        self.cache.setdefault(EXITS, []).append(owned)
        return value

    def keep(self, generator: Generator[Any, None, None]) -> Any:
        """Enter a sync generator; it is torn down with the scope."""
        value = enter_sync(generator)
        self.cache.setdefault(EXITS, []).append(generator)
        return value

    async def __aenter__(self) -> Self:
        self.cache = {}
        self.task = None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if EXITS not in self.cache:
            return
        exits: list[Exit] = self.cache[EXITS]
        if error is None and len(exits) == 1 and type(exits[0]) is AsyncGeneratorType:
            # One session, no trouble: the end of most requests, without another coroutine.
            try:
                await exits[0].__anext__()
            except StopAsyncIteration:
                return
            raise second_yield_error(exits[0])
        await close(exits, error)

    def __enter__(self) -> Self:
        self.cache = {}
        self.task = SYNC
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close_sync(error)


def not_entered() -> ScopedResolutionError:
    """The error for a scope that was made and not entered: nothing would tear it down."""
    return ScopedResolutionError(
        "the scope was not entered", hint="use it in `async with container.scope() as scope:`"
    )


def scope_class(resolver: Resolver, *, owns_tasks: bool) -> type[Scope]:
    """The scopes of one resolver, tied to its tables; only some need to note their task."""
    functions, async_functions = resolver.in_scope, resolver.in_scope_async

    def get(self: Scope, service: Any, /) -> Any:
        return functions[service](self)

    def resolve(self: Scope, service: Any, /) -> Any:
        return async_functions[service](self)

    body: dict[str, Any] = {"__slots__": (), "resolver": resolver, "get": get, "resolve": resolve}
    if owns_tasks:
        body["__aenter__"] = enter_with_task
    return type("Scope", (Scope,), body)

"""A unit of work: what is built once in it, and torn down when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from lexigram.di.resources import Exit, Owned, close, close_sync

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from typing_extensions import TypeForm

    from lexigram.di.binding import Binding
    from lexigram.di.container import Resolver

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


class _Done:
    """Awaited, it is over at once, without a coroutine: most scopes have nothing to tear down."""

    __slots__ = ()
    __await__ = ().__iter__


_DONE = _Done()


class Scope:
    """Open it with ``async with container.scope()``; scoped services live until it is left.

    Plain slots and a dict keyed by binding: opening one is the hot path of every request.
    """

    __slots__ = ("cache", "resolver", "task")

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.cache: dict[Any, Any] = {}
        self.task: asyncio.Task[Any] | None = None

    @overload
    def get(self, service: TypeForm[T], /) -> T: ...
    @overload
    def get(self, service: str, /) -> Any: ...
    def get(self, service: Any, /) -> Any:
        """The service inside this scope, synchronously."""
        return self.resolver.in_scope[service](self)

    @overload
    def resolve(self, service: TypeForm[T], /) -> Coroutine[Any, Any, T]: ...
    @overload
    def resolve(self, service: str, /) -> Coroutine[Any, Any, Any]: ...
    def resolve(self, service: Any, /) -> Coroutine[Any, Any, Any]:
        """The service inside this scope. Tasks racing for one scoped service get one instance."""
        return self.resolver.in_scope_async[service](self)  # type: ignore[no-any-return]

    async def resolve_optional(self, service: TypeForm[T], /) -> T | None:
        """Like ``resolve``, but None when nothing visible provides it."""
        return await self.resolve(service) if self.resolver.sees(service) else None

    async def resolve_all(self, service: TypeForm[T], /) -> list[T]:
        """Everything visible under the type, built inside this scope."""
        return await self.resolver.collect(service, self)

    async def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call ``func`` inside this scope, filling the parameters that were not given."""
        return await self.resolver.call_in(self, func, args, kwargs)

    async def close(self, error: BaseException | None = None) -> None:
        """Tear down what was built, in reverse; each resource sees ``error``."""
        exits: list[Exit] | None = self.cache.get(EXITS)
        if exits:
            await close(exits, error)

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

    async def own(self, name: str, generator: AsyncGenerator[Any, None]) -> Any:
        """Enter a generator in an owner task: this task may not be there at teardown."""
        owned = Owned(name, generator)
        value = await owned.start()
        self.cache.setdefault(EXITS, []).append(owned)
        return value

    def keep(self, generator: Generator[Any, None, None]) -> Any:
        """Enter a sync generator; it is torn down with the scope."""
        value = next(generator)
        self.cache.setdefault(EXITS, []).append(generator)
        return value

    async def __aenter__(self) -> Self:
        if self.resolver.container.owns_tasks:
            self.task = asyncio.current_task()
        return self

    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        return self.close(error) if EXITS in self.cache else _DONE

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if EXITS in self.cache:
            close_sync(self.cache[EXITS], error)

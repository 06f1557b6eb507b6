"""Build values the plain way, one call after the other: singletons, and calls with arguments.

What is asked for again and again goes through ``compile.py``; this is the path of what is
built once, and the reference that generated functions are tested against.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from lexigram.concurrency import call
from lexigram.contracts.core.di import ServiceScope
from lexigram.di._graph import has_teardown
from lexigram.di._problems import spell
from lexigram.di.binding import Binding, Kind, eager
from lexigram.di.errors import (
    AsyncDependencyError,
    CircularDependencyError,
    DependencyError,
    PromiseError,
    ScopedResolutionError,
    UnresolvableDependencyError,
)
from lexigram.di.markers import AsyncFactory, Factory, Lazy
from lexigram.di.resources import Exit, Owned, close, enter_sync
from lexigram.di.signature import Passing, Wish

if TYPE_CHECKING:
    from lexigram.di.container import Container

# The overrides that reach a binding; empty when it is built as it was registered.
Reach = frozenset[int]

_NOTHING: Mapping[str, Any] = {}


class Builder:
    """Makes singletons once, for any number of threads and tasks."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._function = container.function
        self._lock = threading.RLock()
        self._building: set[Binding] = set()
        # Nothing is left to be made under these; asked for each function, so walked once.
        self._settled: set[Binding] = set()
        self.exits: list[Exit] = []
        # Resources started while an override reaches them: they end with it.
        self._temporary: list[tuple[Binding, Exit]] = []
        self._retired: list[Exit] = []

    def singleton(self, binding: Binding) -> Any:
        """The value of a singleton, built now if need be, with all it stands on."""
        if not binding.made:
            with self._lock:
                for step in self.unmade(binding):
                    self._make(step)
        return binding.value

    async def start(self, binding: Binding) -> Any:
        """The same with ``await``. Callers at the same time share one build, and its failure."""
        while not binding.made:
            if binding.pending is not None:
                await binding.pending.wait(binding)
            elif not awaits(binding):
                await self.ready(binding)
                return self.singleton(binding)
            else:
                await self._build(binding)
        return binding.value

    async def ready(self, binding: Binding) -> None:
        """Start everything under ``binding`` that needs ``await``; leave the rest lazy."""
        while waiting := [
            step for step in self.unmade(binding) if step is not binding and awaits(step)
        ]:
            await self.start_all(waiting)

    async def start_all(self, bindings: Iterable[Binding]) -> None:
        """Start bindings side by side where the graph allows."""
        waiting = list(bindings)
        if len(waiting) == 1:
            await self.start(waiting[0])
        elif waiting:
            host = asyncio.current_task()
            try:
                async with anyio.create_task_group() as tasks:
                    for binding in waiting:
                        start = partial(call, self.start, binding, host=host)
                        tasks.start_soon(start, name=f"start {binding.name}")
            except BaseExceptionGroup as group:
                # One build may fail for many that wait for it: it is reported once.
                failures = list({id(item): item for item in _leaves(group)}.values())
                if len(failures) == 1:
                    raise failures[0] from None
                raise BaseExceptionGroup("several services failed to start", failures) from None

    def unmade(self, binding: Binding) -> list[Binding]:
        """Singletons still to be made before ``binding`` and itself, dependencies first."""
        found: list[Binding] = []
        seen = {binding}
        pending = [binding]
        while pending:
            step = pending.pop()
            if step in self._settled:
                continue
            if step.is_singleton:
                if step.made:
                    continue
                found.append(step)
            if step.provider.last_overriding is not None:
                continue
            for dependency in eager(step.provider):
                if dependency not in seen:
                    seen.add(dependency)
                    pending.append(dependency)
        if not found:  # a handler is not kept: there is a new one for each call
            self._settled.update(step for step in seen if step.position >= 0)
        return sorted(found, key=_position)

    def unsettle(self) -> None:
        """The model has changed: what was made may have to be made again."""
        self._settled.clear()

    def retire(self, is_stale: Callable[[Binding], bool]) -> None:
        """An override has changed: resources started under it are to be torn down."""
        self._retired += [item for binding, item in self._temporary if is_stale(binding)]
        self._temporary = [entry for entry in self._temporary if not is_stale(entry[0])]

    def take_retired(self, *, only_sync: bool = False) -> list[Exit]:
        """Resources to be torn down; async ones stay for later where there is no ``await``."""
        taken = [item for item in self._retired if not only_sync or hasattr(item, "throw")]
        self._retired = [item for item in self._retired if item not in taken]
        return taken

    async def close(self, error: BaseException | None) -> None:
        """Tear down every resource in reverse; each sees ``error``."""
        temporary = [item for _, item in self._temporary]
        self.exits += [*self._retired, *temporary]
        self._retired, self._temporary = [], []
        await close(self.exits, error)

    def construct(
        self,
        binding: Binding,
        scope: Any = None,
        given: Mapping[str, Any] = _NOTHING,
        extra: Sequence[Any] = (),
    ) -> Any:
        """Call the target of a binding once, synchronously.

        ``given`` goes before what the container has; names that are no parameter are passed on
        (``**kwargs`` may take them), like ``extra`` for ``*args``.
        """
        args: list[Any] = []
        kwargs = dict(given)
        edges = binding.provider.kwargs
        by_position = True
        for parameter in binding.parameters:
            name = parameter.name
            if name in given:
                value = kwargs.pop(name)
            elif name in edges:
                value = self.value(edges[name], scope)
            else:
                by_position = False
                continue
            if by_position and parameter.passing is not Passing.KEYWORD:
                args.append(value)
            elif parameter.passing is not Passing.POSITION:
                kwargs[name] = value
        return binding.provider.provides(*args, *extra, **kwargs)

    async def construct_async(
        self,
        binding: Binding,
        scope: Any = None,
        given: Mapping[str, Any] = _NOTHING,
        extra: Sequence[Any] = (),
    ) -> Any:
        """Call the target once, awaiting its dependencies and itself."""
        built = dict(given)
        for name, edge in binding.provider.kwargs.items():
            if name not in built:
                built[name] = await self.value_async(edge, scope)
        value = self.construct(binding, scope, built, extra)
        return await value if binding.kind is Kind.COROUTINE else value

    def value(self, edge: Any, scope: Any) -> Any:
        """What stands at the other end of an edge."""
        if edge.last_overriding is not None:
            return edge.last_overriding()
        if getattr(edge, "deferred", False):
            return self.defer(edge.binding, edge.wish, scope)
        if hasattr(edge, "members"):
            return [self.value(member, scope) for member in edge.members]
        binding: Binding | None = getattr(edge, "binding", None)
        if binding is None:
            return scope if hasattr(edge, "is_scope") else edge()
        if binding.is_singleton:
            return self.singleton(binding)
        if binding.needs_scope or binding.is_large:
            return self._function(binding, is_async=False)(_demand(scope, binding))
        return self.construct(binding, scope)

    async def value_async(self, edge: Any, scope: Any) -> Any:
        """The same with ``await`` where building needs it."""
        if hasattr(edge, "members"):
            return [await self.value_async(member, scope) for member in edge.members]
        binding: Binding | None = getattr(edge, "binding", None)
        plain = binding is None or getattr(edge, "deferred", False)
        if plain or edge.last_overriding is not None:
            return self.value(edge, scope)
        assert binding is not None
        if binding.is_singleton:
            return await self.start(binding)
        if binding.needs_scope or binding.needs_await:
            return await self._function(binding, is_async=True)(_demand(scope, binding))
        return self.value(edge, scope)

    def defer(self, binding: Binding, wish: Wish, scope: Any) -> Any:
        """A Factory, AsyncFactory or Lazy over a binding, tied to the scope it was made in."""
        if wish is Wish.LAZY:
            return Lazy(lambda: self.value(binding.provider, scope))
        if wish is Wish.FACTORY:
            return Factory(lambda **given: self._fresh(binding, scope, given))
        return AsyncFactory(lambda **given: self._fresh_async(binding, scope, given))

    def _fresh(self, binding: Binding, scope: Any, given: Mapping[str, Any]) -> Any:
        if binding.provider.last_overriding is not None:
            return binding.provider.last_overriding()
        scope = scope if scope is not None else self._throwaway(binding)
        value = self.construct(binding, scope, given)
        return scope.keep(value) if binding.kind is Kind.GENERATOR else value

    async def _fresh_async(self, binding: Binding, scope: Any, given: Mapping[str, Any]) -> Any:
        if binding.provider.last_overriding is not None:
            return binding.provider.last_overriding()
        scope = scope if scope is not None else self._throwaway(binding)
        await self.ready(binding)
        value = await self.construct_async(binding, scope, given)
        if binding.kind is Kind.ASYNC_GENERATOR:
            return await scope.enter(binding.name, value)
        return scope.keep(value) if binding.kind is Kind.GENERATOR else value

    def _throwaway(self, binding: Binding) -> Any:
        """A factory used outside any scope builds each time in a scope of its own."""
        if has_teardown(binding):
            raise outside_scope(binding)
        return self._container.of_node(binding.viewpoint).scope().__enter__()

    def _make(self, binding: Binding) -> None:
        """Build one singleton, everything it stands on being made; the lock is held."""
        if binding.made:
            return
        override = binding.provider.last_overriding
        if override is not None:
            value = override()
        elif awaits(binding):
            raise AsyncDependencyError(
                f"building {binding.name} needs await, and it has not been started",
                hint=f"use `await container.resolve({spell(binding.key)})`, or boot the "
                "application first",
            )
        elif binding in self._building:
            raise _needs_itself(binding)
        else:
            self._building.add(binding)
            try:
                value = self._enter(binding, self.construct(binding))
            finally:
                self._building.discard(binding)
        binding.value, binding.made = value, True

    async def _build(self, binding: Binding) -> None:
        """Build one singleton that needs ``await``, while others may wait for it."""
        pending = binding.pending = Pending()
        try:
            await self.ready(binding)
            reach = self._container.reached_by(binding)
            value = await self._produce(binding, reach)
            await self._store(binding, value, reach)
        except Exception as error:
            pending.failure = error
            raise
        finally:
            binding.pending = None
            pending.done.set()

    async def _store(self, binding: Binding, value: Any, reach: Reach) -> None:
        """Keep what was built, unless an override came or went while it was being built."""
        if self._container.reached_by(binding) == reach:
            binding.value, binding.made = value, True
        elif not reach:
            binding.stash = (value,)
        else:
            self.retire(lambda item: item is binding)
            await close(self.take_retired(), None)

    async def _produce(self, binding: Binding, reach: Reach) -> Any:
        override = binding.provider.last_overriding
        if override is not None:
            return override()
        value = await self.construct_async(binding)
        if binding.kind is not Kind.ASYNC_GENERATOR:
            return self._enter(binding, value)
        owned = Owned(
            binding.name, value, lambda error: self._container.resource_died(binding, error)
        )
        value = await owned.start()
        self._own(binding, owned, reach)
        return value

    def _enter(self, binding: Binding, value: Any) -> Any:
        if binding.kind is not Kind.GENERATOR:
            return value
        generator, value = value, enter_sync(value)
        self._own(binding, generator, self._container.reached_by(binding))
        return value

    def _own(self, binding: Binding, item: Exit, reach: Reach) -> None:
        if reach:
            self._temporary.append((binding, item))
        else:
            self.exits.append(item)


class Pending:
    """A build under way: who builds, and what became of it."""

    __slots__ = ("_builder", "done", "failure")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.failure: Exception | None = None
        self._builder = asyncio.current_task()

    async def wait(self, binding: Binding) -> None:
        """Return when the build is over; raises its failure. A cancelled build just ends."""
        if self._builder is asyncio.current_task():
            raise _needs_itself(binding)
        await self.done.wait()
        if self.failure is not None:
            raise self.failure


def awaits(binding: Binding) -> bool:
    """True when making this very singleton (not what it stands on) needs ``await``."""
    if binding.provider.last_overriding is not None:
        return False
    if binding.kind is Kind.PROMISE or binding.kind is Kind.REMOVED:
        raise _absent(binding)
    return binding.kind in (Kind.COROUTINE, Kind.ASYNC_GENERATOR) or any(
        dependency.needs_await
        for dependency in eager(binding.provider)
        if not dependency.is_singleton
    )


def outside_scope(binding: Binding) -> ScopedResolutionError:
    """The error for a service that only exists inside a scope."""
    what = "is scoped" if binding.lifetime is ServiceScope.SCOPED else "needs a scope"
    return ScopedResolutionError(
        f"{binding.name} {what} and was asked for outside a scope",
        hint=f"async with container.scope() as scope: await scope.resolve({spell(binding.key)})",
    )


def _demand(scope: Any, binding: Binding) -> Any:
    if scope is None and binding.needs_scope:
        raise outside_scope(binding)
    return scope


def _absent(binding: Binding) -> DependencyError:
    if binding.kind is Kind.REMOVED:
        return UnresolvableDependencyError(
            f"{binding.name} was taken out of the model of {binding.module.name}",
            hint="what stands on it cannot be built any more",
        )
    owner = f"provider {binding.owner.name}" if binding.owner else binding.module.name
    return PromiseError(
        f"{binding.name} was promised by {owner} and is not bound yet",
        hint=f"bind it in boot(): container.bind({spell(binding.key)}, value), and boot that "
        "provider first (dependencies=)",
    )


def _needs_itself(binding: Binding) -> CircularDependencyError:
    return CircularDependencyError(
        f"building {binding.name} asks the container for something that needs {binding.name}",
        hint="take it by Lazy[...], or ask for it after the build",
    )


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for item in group.exceptions:
        if isinstance(item, BaseExceptionGroup):
            yield from _leaves(item)
        else:
            yield item


def _position(binding: Binding) -> int:
    return binding.position

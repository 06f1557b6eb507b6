"""Build values the plain way, one call after the other: singletons, and calls with arguments.

What is asked for again and again goes through ``compile.py``; this is the path of what is
built once, and the reference that generated functions are tested against.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from lexigram.contracts.core.di import ServiceScope
from lexigram.di.binding import Binding, Kind, eager
from lexigram.di.errors import AsyncDependencyError, PromiseError, ScopedResolutionError
from lexigram.di.markers import AsyncFactory, Factory, Lazy
from lexigram.di.resources import Exit, Owned
from lexigram.di.signature import Wish

if TYPE_CHECKING:
    from lexigram.di.container import Container

_NOTHING: Mapping[str, Any] = {}


class Builder:
    """Makes singletons once, whoever asks first and from whichever thread or task."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._function = container.function
        self._lock = threading.RLock()
        self.exits: list[Exit] = []

    def singleton(self, binding: Binding) -> Any:
        """The value of a singleton, built now if need be, with all it stands on."""
        if not binding.made:
            with self._lock:
                for step in self.unmade(binding):
                    self._make(step)
        return binding.value

    async def start(self, binding: Binding) -> Any:
        """The same with ``await``. Callers at the same time share one build."""
        while not binding.made:
            if binding.pending is not None:
                await binding.pending.wait()
                continue
            binding.pending = anyio.Event()
            try:
                await self.start_all(step for step in self.unmade(binding) if step is not binding)
                value = await self._produce(binding)
                binding.value, binding.made = value, True
            finally:
                binding.pending.set()
                binding.pending = None
        return binding.value

    async def start_all(self, bindings: Iterable[Binding]) -> None:
        """Start what needs ``await``, side by side where the graph allows; leave the rest lazy."""
        waiting = [binding for binding in bindings if awaits(binding) and not binding.made]
        if len(waiting) == 1:
            await self.start(waiting[0])
        elif waiting:
            try:
                async with anyio.create_task_group() as tasks:
                    for binding in waiting:
                        tasks.start_soon(self.start, binding, name=f"start {binding.name}")
            except BaseExceptionGroup as group:
                if len(group.exceptions) == 1:
                    raise group.exceptions[0] from None
                raise

    def unmade(self, binding: Binding) -> list[Binding]:
        """Singletons still to be made before ``binding`` and itself, dependencies first."""
        found: list[Binding] = []
        seen = {binding}
        pending = [binding]
        while pending:
            step = pending.pop()
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
        return sorted(found, key=_position)

    def construct(
        self, binding: Binding, scope: Any = None, given: Mapping[str, Any] = _NOTHING
    ) -> Any:
        """Call the target of a binding once, synchronously."""
        args, kwargs = [], {}
        edges = binding.provider.kwargs
        by_position = True
        for parameter in binding.parameters:
            name = parameter.name
            if name in given:
                value = given[name]
            elif name in edges:
                value = self.value(edges[name], scope)
            else:
                by_position = False
                continue
            if by_position and not parameter.keyword_only:
                args.append(value)
            else:
                kwargs[name] = value
        return binding.provider.provides(*args, **kwargs)

    async def construct_async(
        self, binding: Binding, scope: Any = None, given: Mapping[str, Any] = _NOTHING
    ) -> Any:
        """Call the target once, awaiting its dependencies and itself."""
        built = dict(given)
        for name, edge in binding.provider.kwargs.items():
            if name not in built:
                built[name] = await self.value_async(edge, scope)
        value = self.construct(binding, scope, built)
        return await value if binding.kind is Kind.COROUTINE else value

    def value(self, edge: Any, scope: Any) -> Any:
        """What stands at the other end of an edge."""
        if edge.last_overriding is not None:
            return edge()
        if getattr(edge, "deferred", False):
            return self.deferred(edge.binding, edge.wish, scope)
        if hasattr(edge, "members"):
            return [self.value(member, scope) for member in edge.members]
        binding: Binding | None = getattr(edge, "binding", None)
        if binding is None:
            return scope if type(edge).__name__ == "CurrentScope" else edge()
        if binding.is_singleton:
            return self.singleton(binding)
        if binding.needs_scope or binding.needs_await:
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
            scope = _demand(scope, binding) if binding.needs_scope else scope
            return await self._function(binding, is_async=True)(scope)
        return self.construct(binding, scope)

    def deferred(self, binding: Binding, wish: Wish, scope: Any) -> Any:
        """A Factory, AsyncFactory or Lazy over a binding, tied to the scope it was made in."""
        if wish is Wish.LAZY:
            return Lazy(lambda: self.value(binding.provider, scope))
        if wish is Wish.FACTORY:
            return Factory(lambda **given: self._fresh(binding, scope, given))
        return AsyncFactory(lambda **given: self._fresh_async(binding, scope, given))

    def _fresh(self, binding: Binding, scope: Any, given: Mapping[str, Any]) -> Any:
        if binding.provider.last_overriding is not None:
            return binding.provider()
        scope = scope if scope is not None else self._throwaway(binding)
        if binding.kind is Kind.GENERATOR:
            return scope.keep(self.construct(binding, scope, given))
        return self.construct(binding, scope, given)

    async def _fresh_async(self, binding: Binding, scope: Any, given: Mapping[str, Any]) -> Any:
        if binding.provider.last_overriding is not None:
            return binding.provider()
        scope = scope if scope is not None else self._throwaway(binding)
        value = await self.construct_async(binding, scope, given)
        if binding.kind is Kind.ASYNC_GENERATOR:
            return await scope.own(binding.name, value)
        return scope.keep(value) if binding.kind is Kind.GENERATOR else value

    def _throwaway(self, binding: Binding) -> Any:
        """A factory kept by a singleton builds each time in a scope of its own."""
        return self._container.of_node(binding.module).scope()

    def _make(self, binding: Binding) -> None:
        override = binding.provider.last_overriding
        if override is not None:
            value = override()
        elif awaits(binding):
            raise AsyncDependencyError(
                f"building {binding.name} needs await, and it has not been started",
                hint=f"use `await container.resolve({binding.name})`, or boot the application first",
            )
        else:
            value = self._enter(binding, self.construct(binding))
        binding.value, binding.made = value, True

    async def _produce(self, binding: Binding) -> Any:
        override = binding.provider.last_overriding
        if override is not None:
            return override()
        value = await self.construct_async(binding)
        if binding.kind is not Kind.ASYNC_GENERATOR:
            return self._enter(binding, value)
        owned = Owned(binding.name, value, lambda error: self._container.resource_died(binding, error))
        value = await owned.start()
        self.exits.append(owned)
        return value

    def _enter(self, binding: Binding, value: Any) -> Any:
        if binding.kind is Kind.GENERATOR:
            generator, value = value, next(value)
            self.exits.append(generator)
        return value


def awaits(binding: Binding) -> bool:
    """True when making this very singleton (not what it stands on) needs ``await``."""
    if binding.kind is Kind.PROMISE:
        raise PromiseError(
            f"{binding.name} was promised by {binding.owner!r} and is not bound yet",
            hint=f"bind it in boot(): container.bind({binding.name}, value), and boot that "
            "provider first (dependencies=)",
        )
    return binding.kind in (Kind.COROUTINE, Kind.ASYNC_GENERATOR) or any(
        dependency.needs_await
        for dependency in eager(binding.provider)
        if not dependency.is_singleton
    )


def _demand(scope: Any, binding: Binding) -> Any:
    if scope is None:
        raise outside_scope(binding)
    return scope


def outside_scope(binding: Binding) -> ScopedResolutionError:
    """The error for a service that only exists inside a scope."""
    what = "is scoped" if binding.lifetime is ServiceScope.SCOPED else "is built on scoped services"
    return ScopedResolutionError(
        f"{binding.name} {what} and was asked for outside a scope",
        hint=f"async with container.scope() as scope: await scope.resolve({binding.name})",
    )


def _position(binding: Binding) -> int:
    return binding.position

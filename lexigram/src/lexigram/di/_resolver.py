"""The container as one module sees it: look services up, call functions, open scopes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from lexigram.di._build import outside_scope
from lexigram.di._diagram import describe
from lexigram.di._problems import spell
from lexigram.di.binding import Binding, eager
from lexigram.di.errors import (
    AsyncDependencyError,
    OverrideError,
    RuntimeArgumentError,
    SignatureError,
    UnresolvableDependencyError,
)
from lexigram.di.markers import Key, show
from lexigram.di.resources import close, close_sync
from lexigram.di.scope import Scope, scope_class
from lexigram.di.signature import (
    Passing,
    Wish,
    asking,
    injectable_aliases,
    is_form,
    key_of,
    key_with_name,
    parameters,
)

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from lexigram.di.container import Container
    from lexigram.di.module import ModuleNode
    from lexigram.di.provider import Provider

T = TypeVar("T")


class Resolver:
    """The container as one module sees it."""

    if TYPE_CHECKING:

        @overload
        def get(self, service: TypeForm[T], /) -> T: ...
        @overload
        def get(self, service: str, /) -> Any: ...
        def get(self, service: Any, /) -> Any:
            """The service, synchronously; a singleton that is made costs one dict lookup."""

        def scope(self) -> Scope:
            """A new scope: ``async with container.scope() as scope``."""
            ...

    else:

        @cached_property
        def scope(self) -> type[Scope]:
            """The class of scopes, made for the first; it is called without a frame of ours."""
            return scope_class(self, owns_tasks=self.container.owns_tasks)

    def __init__(self, container: Container | None, node: ModuleNode) -> None:
        self.container: Container = container if container is not None else self  # type: ignore[assignment]
        self.node = node
        self._functions = _Functions(self._first_function)
        self._instances = _Instances(self._functions)
        self.get = self._instances.__getitem__  # type: ignore[method-assign]
        self._async_functions = _Functions(partial(self._first_async, scoped=False))
        # What scopes look up; here scoped services are welcome.
        self.in_scope = _Functions(partial(self._first_function, scoped=True))
        self.in_scope_async = _Functions(partial(self._first_async, scoped=True))

    @overload
    def resolve(self, service: TypeForm[T], /) -> Coroutine[Any, Any, T]: ...
    @overload
    def resolve(self, service: str, /) -> Coroutine[Any, Any, Any]: ...
    def resolve(self, service: Any, /) -> Coroutine[Any, Any, Any]:
        """The service, built with ``await`` where needed; concurrent calls share one singleton."""
        return self._async_functions[service](None)  # type: ignore[no-any-return]

    @overload
    async def resolve_optional(self, service: TypeForm[T], /) -> T | None: ...
    @overload
    async def resolve_optional(self, service: str, /) -> Any: ...
    async def resolve_optional(self, service: Any, /) -> Any:
        """Like ``resolve``, but None when nothing visible provides it."""
        return await self.resolve(service) if self.sees(service) else None

    async def resolve_all(self, service: TypeForm[T], /) -> list[T]:
        """Everything visible under the type: named, unnamed and subclasses, in declared order."""
        return await self.collect(service, None)

    @overload
    async def call(
        self, func: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    async def call(self, func: Callable[..., T], /, *args: Any, **kwargs: Any) -> T: ...
    async def call(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``func`` in a scope of its own, filling the parameters that were not given."""
        async with self.scope() as scope:
            return await self.call_in(scope, func, args, kwargs)

    def entry(self, func: Callable[..., T], /, *, given: Sequence[str] = ()) -> Callable[..., T]:
        """Compile ``func``: open a scope, build its arguments, call it, tear everything down.

        Parameters named in ``given`` or annotated ``Arg[...]`` are passed by the caller, by
        position, in that order. An async function gives an async entry, a plain one a plain
        entry. What it asks for is checked now; what is not built yet is built by its first call.
        """
        asked = parameters(func)
        marked = [item.name for item in asked if item.wish is Wish.ARGUMENT]
        names = tuple(dict.fromkeys([*given, *marked]))
        unknown = set(names).difference(item.name for item in asked)
        if unknown:
            raise SignatureError(
                f"{show(func)} has no parameter {', '.join(sorted(unknown))}",
                hint=f"given= names parameters; it has {', '.join(item.name for item in asked)}",
            )
        handler = self.container.handler(func, self.node, names)
        return self.container.compile_entry(self, handler, names)

    def sees(self, service: Any, /) -> bool:
        """True when something visible here provides the service."""
        found = self.container.checked_graph().find(self.node, key_of(service))
        return bool(found) or is_form(service)

    def provider(self, service: Any, /) -> Any:
        """The dependency-injector provider behind a service: the model, open to its own tools."""
        return self.find(service).provider

    @property
    def providers(self) -> Providers:
        """Every provider visible here, by service; ``del`` takes one out of the model."""
        return Providers(self)

    @overload
    def override(self, service: TypeForm[T], value: T, /) -> Override[T]: ...
    @overload
    def override(self, service: str, value: T, /) -> Override[T]: ...
    def override(self, service: Any, value: Any, /) -> Override[Any]:
        """Replace a service while the block lasts, also under singletons already built on it.

        References a caller kept to the old objects, and what open scopes have built, are
        untouched. Refused where a running resource or a provider's boot used the service.
        """
        return Override(self._override_target(key_of(service)), value)

    def explain(self, service: Any, /) -> str:
        """Who provides a service, for how long, from what, and the source that builds it."""
        binding = self.find(service)
        return describe(binding, self.container.source(binding))

    # Below: what scopes, entries and the container itself ask for.

    async def collect(self, service: Any, scope: Scope | None) -> list[Any]:
        """``resolve_all`` inside a scope or outside any."""
        builder = self.container.builder
        members = self.container.checked_graph().members(self.node, key_of(service))
        for member in members:
            await builder.ready(member)
        return [await builder.value_async(member.provider, scope) for member in members]

    async def call_in(
        self, scope: Scope, func: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> Any:
        """``call`` inside a scope that is open already."""
        handler, given, extra = self.prepare(func, args, kwargs)
        builder = self.container.builder
        await builder.ready(handler)
        return await builder.construct_async(handler, scope, given, extra)

    def prepare(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Binding, dict[str, Any], Sequence[Any]]:
        """A handler for one call: its given arguments by name, and those left for ``*args``."""
        names = [item.name for item in parameters(func) if item.passing is not Passing.KEYWORD]
        by_name = dict(zip(names, args, strict=False))
        twice = [name for name in kwargs if name in by_name]
        if twice:
            raise TypeError(f"{func!r} got {', '.join(twice)} by position and by keyword")
        handler = self.container.handler(func, self.node, (*by_name, *kwargs))
        return handler, by_name | dict(kwargs), args[len(names) :]

    def find(self, service: Any, /) -> Binding:
        """The one visible binding of a service, or an error that says what to do."""
        key = key_of(service)
        graph = self.container.checked_graph()
        found = graph.find(self.node, key)
        if not found and is_form(service):
            return self.container.handler(asking(service), self.node, ())
        if len(found) == 1:
            return found[0]
        raise graph.why_not(key, self.node, found).as_error()

    def forget_scopes(self) -> None:
        """Have the class of scopes made anew: whether they own tasks has changed."""
        self.__dict__.pop("scope", None)

    def forget(self) -> None:
        """Drop cached functions and values: the model has changed."""
        for table in (
            self._instances,
            self._functions,
            self._async_functions,
            self.in_scope,
            self.in_scope_async,
        ):
            table.clear()

    def _override_target(self, key: Key) -> Binding:
        """A test may override what it cannot see, as long as it is clear which one is meant."""
        graph = self.container.checked_graph()
        found = graph.find(self.node, key) or graph.anywhere(key)
        if len(found) == 1:
            return found[0]
        if not found:
            raise graph.why_not(key, self.node, found).as_error()
        owners = " and ".join(binding.module.name for binding in found)
        raise OverrideError(
            f"{show(key)} is bound {len(found)} times, in {owners}",
            hint=f"say which one: container.of({found[0].module.name}).override(...)",
        )

    def _find_buildable(self, service: Any, *, scoped: bool) -> Binding:
        binding = self.find(service)
        if binding.is_open:
            raise UnresolvableDependencyError(
                f"{binding.name} is generic: ask for {binding.name}[...]",
                hint=f"say of what: container.get({binding.name}[...])",
            )
        if binding.needs_scope and not scoped:
            raise outside_scope(binding)
        wanted = [item.name for item in binding.parameters if item.is_required_argument]
        if wanted:
            raise RuntimeArgumentError(
                f"{binding.name} takes {', '.join(wanted)} at run time",
                hint=f"ask for Factory[{spell(binding.key)}] and call it with "
                f"{', '.join(f'{name}=...' for name in wanted)}",
            )
        return binding

    def _first_function(self, service: Any, *, scoped: bool = False) -> Callable[..., Any]:
        binding = self._find_buildable(service, scoped=scoped)
        table = self.in_scope if scoped else self._functions
        if binding.is_singleton:
            value = self.container.builder.singleton(binding)
            function = table[service] = _constant(value)
            if not scoped:
                self._instances[service] = value
            return function
        if binding.needs_await:
            raise AsyncDependencyError(
                f"building {binding.name} needs await",
                hint=f"use `await container.resolve({spell(binding.key)})`",
            )
        function = table[service] = self.container.function(binding, is_async=False)
        return function

    def _first_async(self, service: Any, *, scoped: bool) -> Callable[..., Any]:
        """The function used until everything it stands on is made; then it is replaced."""
        binding = self._find_buildable(service, scoped=scoped)
        table = self.in_scope_async if scoped else self._async_functions
        builder = self.container.builder

        async def first(scope: Any) -> Any:
            if binding.is_singleton:
                value = await builder.start(binding)
                table[service] = _async_constant(value)
                return value
            await builder.ready(binding)
            function = table[service] = self.container.function(binding, is_async=True)
            return await function(scope)

        return first


class Locator:
    """What a factory is handed to find services by hand; remembers what it found.

    The model shows no edge for what is found this way, and an override must reach it.
    """

    def __init__(self, resolver: Resolver, note: Callable[[Binding], None]) -> None:
        self._resolver = resolver
        self._note = note

    @overload
    def get(self, service: TypeForm[T], /) -> T: ...
    @overload
    def get(self, service: str, /) -> Any: ...
    def get(self, service: Any, /) -> Any:
        """The service, synchronously."""
        self._note_found(service)
        return self._resolver.get(service)

    @overload
    async def resolve(self, service: TypeForm[T], /) -> T: ...
    @overload
    async def resolve(self, service: str, /) -> Any: ...
    async def resolve(self, service: Any, /) -> Any:
        """The service, built with ``await`` where needed."""
        self._note_found(service)
        return await self._resolver.resolve(service)

    @overload
    async def resolve_optional(self, service: TypeForm[T], /) -> T | None: ...
    @overload
    async def resolve_optional(self, service: str, /) -> Any: ...
    async def resolve_optional(self, service: Any, /) -> Any:
        """Like ``resolve``, but None when nothing visible provides it."""
        return await self.resolve(service) if self._resolver.sees(service) else None

    async def resolve_all(self, service: TypeForm[T], /) -> list[T]:
        """Everything visible under the type, in declared order."""
        resolver = self._resolver
        for member in resolver.container.checked_graph().members(resolver.node, key_of(service)):
            self._note(member)
        return await resolver.resolve_all(service)

    @overload
    async def call(
        self, func: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    async def call(self, func: Callable[..., T], /, *args: Any, **kwargs: Any) -> T: ...
    async def call(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``func``, filling the parameters that were not given."""
        handler, _, _ = self._resolver.prepare(func, args, kwargs)
        for dependency in eager(handler.provider):
            self._note(dependency)
        return await self._resolver.call(func, *args, **kwargs)

    def entry(self, func: Callable[..., T], /, *, given: Sequence[str] = ()) -> Callable[..., T]:
        """Compile a handler; see ``Container.entry``. An override reaches it by itself."""
        return self._resolver.entry(func, given=given)

    def scope(self) -> Scope:
        """A new scope."""
        return self._resolver.scope()

    def sees(self, service: Any, /) -> bool:
        """True when something visible here provides the service."""
        return self._resolver.sees(service)

    def _note_found(self, service: Any) -> None:
        binding = self._resolver.find(service)
        for found in eager(binding.provider) if is_form(service) else (binding,):
            self._note(found)


class BootContainer(Locator):
    """What ``Provider.boot`` is given: resolves as its module, binds what was promised."""

    def __init__(self, resolver: Resolver, provider: Provider) -> None:
        super().__init__(resolver, self._note_use)
        self._provider = provider
        self._booting = True

    def bind(self, service: Any, value: Any, *, name: str | None = None) -> None:
        """Fulfil a promise made in ``register``."""
        self._resolver.container.fulfil(self._resolver.node, key_with_name(service, name), value)

    def end_boot(self) -> None:
        """From here on, what is resolved is no longer counted as used in boot."""
        self._booting = False

    def _note_use(self, binding: Binding) -> None:
        """An override cannot reach what a provider took in its boot, so remember it."""
        if self._booting:
            binding.used_in_boot = self._provider.name


class Override(Generic[T]):
    """An override that lasts for a ``with`` or ``async with`` block.

    ``async with`` also tears down the generator resources that were started on it.
    """

    def __init__(self, binding: Binding, value: T) -> None:
        self._binding = binding
        self._value = value
        self._active: list[Any] = []

    def __enter__(self) -> T:
        from dependency_injector import providers

        self._active.append(self._binding.provider.override(providers.Object(self._value)))
        return self._value

    def __exit__(self, *_: object) -> None:
        self._active.pop().__exit__(None, None, None)
        builder = self._binding.provider.container.builder
        close_sync(builder.take_retired(only_sync=True), None)

    async def __aenter__(self) -> T:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self._active.pop().__exit__(None, None, None)
        await close(self._binding.provider.container.builder.take_retired(), None)


class Providers:
    """The dependency-injector providers a module sees, by service."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def __getitem__(self, service: Any) -> Any:
        return self._resolver.provider(service)

    def __delitem__(self, service: Any) -> None:
        """Take a provider out of the model: it and what stands on it can no longer be built."""
        self._resolver.container.remove(self._resolver.find(service))

    def __contains__(self, service: Any) -> bool:
        graph = self._resolver.container.checked_graph()
        return bool(graph.find(self._resolver.node, key_of(service)))

    def __iter__(self) -> Iterator[Key]:
        visibility = self._resolver.container.checked_graph().visibility
        return iter(visibility.keys(self._resolver.node))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Functions(dict[Any, Callable[..., Any]]):
    """Functions by key; the first look-up makes one."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[Any], Callable[..., Any]]) -> None:
        self._make = make

    def __missing__(self, key: Any) -> Callable[..., Any]:
        return self._make(key)


class _Instances(dict[Any, Any]):
    """Made singletons by key: a hit is one C look-up, a miss calls the function."""

    __slots__ = ("_functions",)

    def __init__(self, functions: _Functions) -> None:
        self._functions = functions

    def __missing__(self, key: Any) -> Any:
        return self._functions[key](None)


def _constant(value: Any) -> Callable[[Any], Any]:
    return lambda _scope: value


def _async_constant(value: Any) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    async def constant(_scope: Any) -> Any:
        return value

    return constant


injectable_aliases(resolvers=Resolver, scope=Scope)

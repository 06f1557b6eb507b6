"""The container: records bindings, freezes them into a checked graph, and hands out services."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from lexigram.contracts.core.di import ServiceScope
from lexigram.di.binding import Binding, Kind, describe_target, kind_of
from lexigram.di.build import Builder, awaits, outside_scope
from lexigram.di.compile import Compiler
from lexigram.di.errors import (
    AsyncDependencyError,
    ContainerError,
    ContainerValidationError,
    OverrideError,
    RegistrationError,
    UnresolvableDependencyError,
)
from lexigram.di.graph import ObjectGraph, ambiguous, invisible
from lexigram.di.markers import Key, show
from lexigram.di.module import ModuleGraph, ModuleLike, ModuleNode
from lexigram.di.picture import Picture, describe
from lexigram.di.problems import Problem, Site
from lexigram.di.resources import close
from lexigram.di.scope import Scope
from lexigram.di.signature import Wish, injectable_aliases, key_of, parameters
from lexigram.di.visibility import Visibility

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from lexigram.di.provider import Provider

T = TypeVar("T")

_OWN_FILES = __file__.rpartition("container.py")[0]


class Resolver:
    """The container as one module sees it."""

    if TYPE_CHECKING:

        @overload
        def get(self, service: TypeForm[T], /) -> T: ...
        @overload
        def get(self, service: str, /) -> Any: ...
        def get(self, service: Any, /) -> Any:
            """The service, synchronously; a singleton that is made costs one dict lookup."""

    def __init__(self, container: Container | None, node: ModuleNode) -> None:
        self.container: Container = container if container is not None else self  # type: ignore[assignment]
        self.node = node
        self._functions = _Functions(self._first_function)
        self._instances = _Instances(self._functions)
        self.get = self._instances.__getitem__
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

    async def resolve_optional(self, service: TypeForm[T], /) -> T | None:
        """Like ``resolve``, but None when nothing visible provides it."""
        return await self.resolve(service) if self.sees(service) else None

    async def resolve_all(self, service: TypeForm[T], /) -> list[T]:
        """Everything visible under the type: named, unnamed and subclasses, in declared order."""
        return await self.collect(service, None)

    async def call(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``func``, filling the parameters that were not given; opens a scope if needed."""
        async with Scope(self) as scope:
            return await self.call_in(scope, func, args, kwargs)

    def scope(self) -> Scope:
        """A new scope: ``async with container.scope() as scope``."""
        return Scope(self)

    def entry(self, func: Callable[..., Any], /, *, given: Sequence[str] = ()) -> Callable[..., Any]:
        """Compile ``func``: open a scope, build its arguments, call it, tear everything down.

        Parameters named in ``given`` or annotated ``Arg[...]`` are passed by the caller, in
        that order. An async function gives an async entry, a plain one a plain entry.
        """
        self.container.demand_frozen()
        marked = [item.name for item in parameters(func) if item.wish is Wish.ARGUMENT]
        names = tuple(dict.fromkeys([*given, *marked]))
        handler = self.container.handler(func, self.node, names)
        return self.container.compile_entry(self, handler, names)

    def sees(self, service: Any, /) -> bool:
        """True when exactly one or more bindings of the service are visible here."""
        self.container.demand_frozen()
        return bool(self.container.candidates(self.node, key_of(service)))

    def provider(self, service: Any, /) -> Any:
        """The dependency-injector provider behind a service: the model, open to its own tools."""
        return self.find(service).provider

    def override(self, service: Any, value: Any, /) -> Override:
        """Replace a service while the block lasts, also under singletons already built on it.

        References a caller kept to the old objects, and scopes already open, are untouched.
        """
        return Override(self._override_target(key_of(service)), value)

    def explain(self, service: Any, /) -> str:
        """Who provides a service, for how long, from what, and the source that builds it."""
        binding = self.find(service)
        return describe(binding, self.container.source(binding))

    async def collect(self, service: Any, scope: Scope | None) -> list[Any]:
        """``resolve_all`` inside a scope or outside any."""
        self.container.demand_frozen()
        members = self.container.graph_of().visibility.collection(self.node, service)
        return [
            await self.container.builder.value_async(member.provider, scope) for member in members
        ]

    async def call_in(
        self, scope: Scope, func: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> Any:
        """``call`` inside a scope that is open already."""
        self.container.demand_frozen()
        names = [item.name for item in parameters(func)]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        handler = self.container.handler(func, self.node, tuple(given))
        return await self.container.builder.construct_async(handler, scope, given)

    def find(self, service: Any, /) -> Binding:
        """The one visible binding of a service, or an error that says what to do."""
        self.container.demand_frozen()
        key = key_of(service)
        found = self.container.candidates(self.node, key)
        if len(found) == 1:
            return found[0]
        problem = self._why_not(key, found)
        near = f" (near: {' · '.join(problem.near)})" if problem.near else ""
        raise problem.error(f"{problem.title}{near}", hint=problem.fix)

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

    def _why_not(self, key: Key, found: Sequence[Binding]) -> Problem:
        graph = self.container.graph_of()
        if found:
            return ambiguous(key, self.node.name, found)
        hidden = graph.visibility.anywhere(key)
        if hidden:
            return invisible(key, self.node, hidden[0], graph.visibility)
        return Problem(
            error=UnresolvableDependencyError,
            title=f"nothing provides {show(key)}",
            fix=f"bind it:  container.singleton({show(key)}, ...)  in a provider",
            near=graph.near(key, self.node),
        )

    def _override_target(self, key: Key) -> Binding:
        """A test may override what it cannot see, as long as it is clear which one is meant."""
        self.container.demand_frozen()
        found = self.container.candidates(self.node, key)
        if not found:
            found = self.container.graph_of().visibility.anywhere(key)
        if len(found) == 1:
            return found[0]
        if not found:
            return self.find(key)
        owners = ", ".join(binding.module.name for binding in found)
        raise OverrideError(
            f"{show(key)} is bound {len(found)} times ({owners})",
            hint=f"say which one: container.of({found[0].module.name}).override(...)",
        )

    def _first_function(self, service: Any, scoped: bool = False) -> Callable[..., Any]:
        binding = self.find(service)
        container = self.container
        if binding.is_singleton:
            value = container.builder.singleton(binding)
            self._instances[service] = value
            return lambda scope: value
        if binding.needs_scope and not scoped:
            raise outside_scope(binding)
        if binding.needs_await:
            raise AsyncDependencyError(
                f"building {binding.name} needs await",
                hint=f"use `await container.resolve({binding.name})`",
            )
        table = self.in_scope if scoped else self._functions
        function = table[service] = container.function(binding, is_async=False)
        return function

    def _first_async(self, service: Any, scoped: bool) -> Callable[..., Any]:
        """The function used until everything it stands on is made; then it is replaced."""
        binding = self.find(service)
        if binding.needs_scope and not scoped:
            raise outside_scope(binding)
        table = self.in_scope_async if scoped else self._async_functions
        builder = self.container.builder

        async def first(scope: Any) -> Any:
            if binding.is_singleton:
                value = await builder.start(binding)
                table[service] = _constant(value)
                return value
            await builder.start_all(builder.unmade(binding))
            function = table[service] = self.container.function(binding, is_async=True)
            return await function(scope)

        return first


class Registrar:
    """Records bindings on behalf of one provider of one module."""

    def __init__(self, container: Container, node: ModuleNode, owner: Provider | None) -> None:
        self._container = container
        self._node = node
        self._owner = owner

    def singleton(
        self,
        service: Any,
        implementation: Any = None,
        *,
        name: str | None = None,
        factory: Callable[..., Any] | None = None,
        when: Any = None,
    ) -> None:
        """Bind one shared object: a class, a factory, or an instance already built."""
        self._record(service, implementation, factory, ServiceScope.SINGLETON, name, when)

    def scoped(
        self,
        service: Any,
        implementation: Any = None,
        *,
        name: str | None = None,
        factory: Callable[..., Any] | None = None,
        when: Any = None,
    ) -> None:
        """Bind one object per scope."""
        self._record(service, implementation, factory, ServiceScope.SCOPED, name, when)

    def transient(
        self,
        service: Any,
        implementation: Any = None,
        *,
        name: str | None = None,
        factory: Callable[..., Any] | None = None,
        when: Any = None,
    ) -> None:
        """Bind a new object per request."""
        self._record(service, implementation, factory, ServiceScope.TRANSIENT, name, when)

    def bind(self, service: Any, value: Any, *, name: str | None = None) -> None:
        """Bind a value as it is, even if it is a class or a function."""
        self._add(_key(service, name), ServiceScope.SINGLETON, Kind.VALUE, value, None)

    def promise(self, service: Any, *, name: str | None = None) -> None:
        """Announce a value that this provider will ``bind`` during its boot."""
        self._add(_key(service, name), ServiceScope.SINGLETON, Kind.PROMISE, None, None)

    def decorate(
        self, service: Any, decorator: Callable[..., Any], *, name: str | None = None
    ) -> None:
        """Wrap what provides ``service``; the decorator takes the inner one by annotation."""
        self._container.add_decorator(self._node, _key(service, name), decorator, _caller())

    def has(self, service: Any, *, name: str | None = None) -> bool:
        """True when this module has registered the key so far."""
        key = _key(service, name)
        return any(
            item.key == key and item.module is self._node for item in self._container.bindings
        )

    def _record(
        self,
        service: Any,
        implementation: Any,
        factory: Callable[..., Any] | None,
        lifetime: ServiceScope,
        name: str | None,
        when: Any,
    ) -> None:
        kind, target = describe_target(service, implementation, factory, lifetime)
        self._add(_key(service, name), lifetime, kind, target, when)

    def _add(self, key: Key, lifetime: ServiceScope, kind: Kind, target: Any, when: Any) -> None:
        self._container.add(
            Binding(
                key,
                lifetime,
                kind,
                target,
                module=self._node,
                owner=self._owner,
                site=_caller(),
                order=len(self._container.bindings),
                when=when,
            )
        )


class BootContainer:
    """What ``Provider.boot`` is given: resolves as its module, binds what was promised."""

    def __init__(self, resolver: Resolver, provider: Provider) -> None:
        self._resolver = resolver
        self._provider = provider
        self._booting = True

    @overload
    def get(self, service: TypeForm[T], /) -> T: ...
    @overload
    def get(self, service: str, /) -> Any: ...
    def get(self, service: Any, /) -> Any:
        """The service, synchronously."""
        self._note(service)
        return self._resolver.get(service)

    @overload
    async def resolve(self, service: TypeForm[T], /) -> T: ...
    @overload
    async def resolve(self, service: str, /) -> Any: ...
    async def resolve(self, service: Any, /) -> Any:
        """The service, built with ``await`` where needed."""
        self._note(service)
        return await self._resolver.resolve(service)

    async def resolve_optional(self, service: Any, /) -> Any:
        """Like ``resolve``, but None when nothing visible provides it."""
        return await self.resolve(service) if self._resolver.sees(service) else None

    async def resolve_all(self, service: TypeForm[T], /) -> list[T]:
        """Everything visible under the type, in declared order."""
        return await self._resolver.resolve_all(service)

    async def call(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``func``, filling the parameters that were not given."""
        return await self._resolver.call(func, *args, **kwargs)

    def entry(self, func: Callable[..., Any], /, *, given: Sequence[str] = ()) -> Callable[..., Any]:
        """Compile a handler; see ``Container.entry``."""
        return self._resolver.entry(func, given=given)

    def scope(self) -> Scope:
        """A new scope."""
        return self._resolver.scope()

    def bind(self, service: Any, value: Any, *, name: str | None = None) -> None:
        """Fulfil a promise made in ``register``."""
        self._resolver.container.fulfil(self._resolver.node, _key(service, name), value)

    def booted(self) -> None:
        """From here on, what is resolved is no longer counted as used in boot."""
        self._booting = False

    def _note(self, service: Any) -> None:
        """An override cannot reach what a provider took in its boot, so remember it."""
        if self._booting:
            self._resolver.find(service).used_in_boot = self._provider.name


class Container(Resolver, Registrar):
    """All bindings of an application, and the root's view of them.

    Alone: register, ``freeze()``, resolve; ``async with`` freezes and tears down. Inside an
    Application the providers register and the application does the rest.
    """

    def __init__(self, name: str = "app", modules: ModuleGraph | None = None) -> None:
        from lexigram.di import _providers  # 80 ms: paid by the first container only

        self.name = name
        self.modules = modules or ModuleGraph()
        self.bindings: list[Binding] = []
        self.epoch = [0]  # one cell, compared by every compiled entry
        self.owns_tasks = False
        self.config: Any = None
        # Called when a generator resource dies while in use; the application stops then.
        self.on_resource_death: Callable[[Binding, BaseException], None] | None = None
        self.deaths: list[tuple[Binding, BaseException]] = []
        self._model = _providers
        self._graph: ObjectGraph | None = None
        self._decorators: list[tuple[ModuleNode, Key, Callable[..., Any], Site | None]] = []
        self._resolvers: dict[ModuleNode, Resolver] = {}
        self._dirty: set[Binding] = set()
        self._epochs = 0
        self._renewed: dict[Binding, tuple[int, Callable[..., Any]]] = {}
        self.builder = Builder(self)
        self._compiler = Compiler(self, self.builder)
        Resolver.__init__(self, None, self.modules.root)
        Registrar.__init__(self, self, self.modules.root, None)
        self._resolvers[self.modules.root] = self

    @property
    def is_frozen(self) -> bool:
        """True once the graph has been checked; nothing can be registered any more."""
        return self._graph is not None

    def registrar(self, node: ModuleNode, provider: Provider | None = None) -> Registrar:
        """A registrar that records ``node`` and ``provider`` as the owners."""
        return Registrar(self, node, provider)

    def of(self, module: ModuleLike) -> Resolver:
        """The container as ``module`` sees it, its private services included."""
        return self.of_node(self.modules.node(module))

    def of_node(self, node: ModuleNode) -> Resolver:
        """The same for a node of the module graph."""
        known = self._resolvers.get(node)
        if known is None:
            known = self._resolvers[node] = Resolver(self, node)
        return known

    def boot_view(self, node: ModuleNode, provider: Provider) -> BootContainer:
        """What ``provider.boot`` is given."""
        return BootContainer(self.of_node(node), provider)

    def add(self, binding: Binding) -> None:
        """Take in a registration."""
        if self._graph is not None:
            raise RegistrationError(
                f"{binding.name} was registered after the container froze",
                hint="register in Provider.register(); a value made in boot() is announced there "
                f"with container.promise({binding.name}) and bound in boot()",
            )
        self.bindings.append(binding)

    def add_decorator(
        self, node: ModuleNode, key: Key, decorator: Callable[..., Any], site: Site | None
    ) -> None:
        """Take in a decoration, applied at freeze."""
        if self._graph is not None:
            raise RegistrationError(
                f"{show(key)} was decorated after the container froze",
                hint="call container.decorate(...) in Provider.register()",
            )
        self._decorators.append((node, key, decorator, site))

    def freeze(self, overrides: Mapping[Any, Any] | None = None) -> None:
        """Check the whole graph and close registration; every problem is in one error."""
        if self._graph is not None:
            return
        started = time.perf_counter()
        for node in self.modules.nodes:
            for cls in node.injectables:
                self._register_marked(node, cls)
        problems = list(self.modules.problems)
        visibility = Visibility(self.modules, _active(self, self.modules))
        graph = ObjectGraph(visibility, self.of_node, self._adopt, self._model)
        graph.problems = problems
        graph.bindings = self.bindings = [
            item for item in self.bindings if item in visibility.candidates_of(item)
        ]
        for binding in self.bindings:
            self._give_provider(binding)
        self._graph = graph
        try:
            self._decorate(graph)
            standins = self._replace(graph, overrides or {})
            graph.connect()
            graph.validate()
            self._check_standins(graph, standins)
            if graph.problems:
                raise self._invalid(graph, time.perf_counter() - started)
        except BaseException:
            self._graph = None
            raise
        self.owns_tasks = any(
            item.kind is Kind.ASYNC_GENERATOR and not item.is_singleton for item in self.bindings
        )

    async def start(self, provider: Provider | None = None) -> None:
        """Start the async and generator singletons a provider registered (None: all)."""
        mine = [
            item
            for item in self.bindings
            if item.is_singleton and not item.made and provider in (None, item.owner)
        ]
        await self.builder.start_all(
            item for item in mine if item.kind is not Kind.PROMISE
        )
        for item in mine:
            if item.kind is Kind.GENERATOR:
                self.builder.singleton(item)

    def fulfil(self, node: ModuleNode, key: Key, value: Any) -> None:
        """Bind the value of a promise."""
        for item in self.bindings:
            if item.kind is Kind.PROMISE and item.key == key and item.module is node:
                item.value, item.made = value, True
                return
        raise RegistrationError(
            f"{show(key)} was bound during boot, but {node.name} has not promised it",
            hint=f"announce it in register(): container.promise({show(key)})",
        )

    def broken_promises(self, provider: Provider) -> list[str]:
        """Names of promises that ``provider`` made and has not kept."""
        return [
            item.name
            for item in self.bindings
            if item.kind is Kind.PROMISE and item.owner is provider and not item.made
        ]

    def graph(self) -> Picture:
        """The object graph, to be drawn: ``.mermaid()``, ``.dot()``, ``.to_dict()``."""
        self.demand_frozen()
        return Picture(self.name, self.bindings)

    async def aclose(self, error: BaseException | None = None) -> None:
        """Tear down generator singletons in reverse; each sees ``error``."""
        await close(self.builder.exits, error)

    async def __aenter__(self) -> Self:
        self.freeze()
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose(error)

    # Below: what resolvers, scopes and generated code ask for.

    def demand_frozen(self) -> None:
        """Nothing can be resolved from a graph that has not been checked."""
        if self._graph is None:
            raise ContainerError(
                f'the container of "{self.name}" is not frozen yet',
                hint="call container.freeze(), or `async with` the container or application",
            )

    def graph_of(self) -> ObjectGraph:
        """The checked graph."""
        self.demand_frozen()
        assert self._graph is not None
        return self._graph

    def candidates(self, node: ModuleNode, key: Key) -> list[Binding]:
        """What ``node`` may mean by ``key``; marked and generic classes join on first sight."""
        graph = self.graph_of()
        before = len(self.bindings)
        found = graph.find(node, key)
        if len(self.bindings) > before:
            self._extend(graph, before)
        return found

    def function(self, binding: Binding, *, is_async: bool) -> Callable[..., Any]:
        """The generated function of a binding, with the singletons under it made."""
        return self._compiler.function(binding, is_async=is_async)

    def source(self, binding: Binding) -> str:
        """The source that builds a binding; empty for what is built once or given."""
        return "" if binding.is_singleton else self._compiler.source(binding)

    def handler(self, func: Callable[..., Any], node: ModuleNode, given: Sequence[str]) -> Binding:
        """A binding for a function that is called, not resolved."""
        code = getattr(func, "__code__", None)
        handler = Binding(
            getattr(func, "__qualname__", type(func).__qualname__).rpartition(".")[2],
            ServiceScope.TRANSIENT,
            kind_of(func),
            func,
            module=node,
            owner=None,
            site=Site(code.co_filename, code.co_firstlineno) if code else None,
            order=len(self.bindings),
        )
        self._give_provider(handler)
        graph = self.graph_of()
        before = len(self.bindings)
        problems = graph.attach_handler(handler, given)
        if len(self.bindings) > before:
            self._extend(graph, before)
        if problems:
            raise ContainerValidationError(
                problems, title=f"{handler.name} asks for what it cannot have"
            )
        return handler

    def compile_entry(
        self, resolver: Resolver, handler: Binding, given: tuple[str, ...]
    ) -> Callable[..., Any]:
        """The compiled entry, or one that first starts what is not started yet."""
        unmade = self.builder.unmade(handler)
        is_async = inspect.iscoroutinefunction(handler.target)
        if not (is_async and any(awaits(item) for item in unmade)):
            return self._compiler.entry(handler.target, resolver, handler, given)

        async def entry(*args: Any) -> Any:
            await self.builder.start_all(self.builder.unmade(handler))
            return await self.renew_entry(resolver, handler, given)(*args)

        return entry

    def renew_entry(
        self, resolver: Resolver, handler: Binding, given: tuple[str, ...]
    ) -> Callable[..., Any]:
        """The entry as it is under the overrides of this moment."""
        epoch, entry = self._renewed.get(handler, (-1, None))
        if entry is None or epoch != self.epoch[0]:
            entry = self.compile_entry(resolver, handler, given)
            self._renewed[handler] = (self.epoch[0], entry)
        return entry

    def resource_died(self, binding: Binding, error: BaseException) -> None:
        """A generator resource ended while in use."""
        self.deaths.append((binding, error))
        if self.on_resource_death is not None:
            self.on_resource_death(binding, error)

    def _register_marked(self, node: ModuleNode, cls: type[Any]) -> None:
        from lexigram.di.decorators import marked_lifetime

        lifetime = marked_lifetime(cls)
        assert lifetime is not None
        site = Site(*found) if (found := _class_site(cls)) else None
        self.bindings.append(
            Binding(
                cls,
                lifetime,
                Kind.CALL,
                cls,
                module=node,
                owner=None,
                site=site,
                order=len(self.bindings),
            )
        )

    def _give_provider(self, binding: Binding) -> None:
        provider = self._model.provider_for(
            binding, is_value=binding.kind in (Kind.VALUE, Kind.PROMISE)
        )
        provider.supply = self._supply
        provider.permit = self._permit_override
        provider.notify = self._model_changed
        binding.provider = provider

    def _supply(self, binding: Binding) -> Any:
        """What calling the model's provider returns: the container's own value."""
        if binding.is_singleton:
            return self.builder.singleton(binding)
        if binding.needs_scope:
            raise outside_scope(binding)
        return self.function(binding, is_async=False)(None)

    def _adopt(self, binding: Binding) -> None:
        self._give_provider(binding)
        self.bindings.append(binding)
        self.graph_of().visibility.add(binding)

    def _extend(self, graph: ObjectGraph, first_new: int) -> None:
        """Connect and check bindings that joined after the freeze."""
        for binding in self.bindings[first_new:]:
            graph.attach(binding)
        graph.validate()
        if graph.problems:
            problems, graph.problems = graph.problems, []
            for binding in self.bindings[first_new:]:
                graph.visibility.remove(binding)
            del self.bindings[first_new:]
            raise ContainerValidationError(
                problems, title="a class that joined after the freeze does not fit"
            )

    def _decorate(self, graph: ObjectGraph) -> None:
        for node, key, decorator, site in self._decorators:
            found = graph.visibility.candidates(node, key)
            if len(found) != 1:
                graph.problems.append(_cannot_decorate(node, key, found, site))
                continue
            outer = found[0]
            inner = Binding(
                outer.key,
                outer.lifetime,
                outer.kind,
                outer.target,
                module=outer.module,
                owner=outer.owner,
                site=outer.site,
                order=outer.order,
            )
            inner.pinned = outer.pinned
            self._give_provider(inner)
            self.bindings.append(inner)
            wrapped = _decorated_parameter(decorator, outer)
            outer.kind, outer.target, outer.made = kind_of(decorator), decorator, False
            outer.module, outer.site = node, site
            outer.pinned = {wrapped: inner}
            self._give_provider(outer)

    def _replace(self, graph: ObjectGraph, overrides: Mapping[Any, Any]) -> list[Binding]:
        """Put the application's overrides in place; returns those nothing was bound for."""
        standins = []
        for service, value in overrides.items():
            key = key_of(service)
            found = graph.visibility.anywhere(key)
            for binding in found:
                binding.kind, binding.target = Kind.VALUE, value
                binding.lifetime = ServiceScope.SINGLETON
                binding.value, binding.made = value, True
                binding.pinned = {}
                self._give_provider(binding)
            if not found:
                standin = Binding(
                    key,
                    ServiceScope.SINGLETON,
                    Kind.VALUE,
                    value,
                    module=self.modules.root,
                    owner=None,
                    site=None,
                    order=len(self.bindings),
                )
                self._adopt(standin)
                standins.append(standin)
        return standins

    def _check_standins(self, graph: ObjectGraph, standins: list[Binding]) -> None:
        for standin in standins:
            if not graph.dependents(standin):
                graph.problems.append(
                    Problem(
                        error=OverrideError,
                        title=f"overrides has {standin.name}, which nothing provides or asks for",
                        fix="check the type, or take it out of overrides",
                        near=graph.near(standin.key, standin.module),
                    )
                )

    def _invalid(self, graph: ObjectGraph, seconds: float) -> ContainerValidationError:
        count = len(graph.problems)
        noun = "problem" if count == 1 else "problems"
        return ContainerValidationError(
            graph.problems,
            title=f'{count} {noun} in the object graph of app "{self.name}" '
            f"(checked {len(self.bindings)} bindings in {seconds * 1000:.1f} ms)",
        )

    def _permit_override(self, binding: Binding) -> None:
        """Refuse an override that could not reach everything built on the service."""
        if self._graph is None:
            return
        for item in [binding, *self._graph.dependents(binding)]:
            live = item is not binding and item.is_resource and item.is_singleton and item.made
            if not live and item.used_in_boot is None:
                continue
            why = (
                f"the running resource {item.name} was built on it"
                if live
                else f"provider {item.used_in_boot} used {item.name} in its boot"
            )
            raise OverrideError(
                f"{binding.name} cannot be overridden now: {why}",
                hint=f"override before boot: Application(..., overrides={{{binding.name}: ...}})",
            )

    def _model_changed(self, _: Binding) -> None:
        """Rebuild what stands on overridden bindings, and bring originals back afterwards."""
        if self._graph is None:
            return
        overridden = [item for item in self.bindings if item.provider.last_overriding is not None]
        dirty = set(overridden)
        for item in overridden:
            dirty |= self._graph.dependents(item)
        for item in dirty - self._dirty:
            item.stash = (item.value,) if item.made else None
        for item in self._dirty - dirty:
            item.made = item.stash is not None
            item.value = item.stash[0] if item.stash else None
            item.stash = None
        for item in dirty:
            item.made, item.value = False, None
        self._dirty = dirty
        # Without overrides everything is as it was, so entries compiled then are right again.
        self._epochs += 1
        self.epoch[0] = self._epochs if overridden else 0
        self._forget()

    def _forget(self) -> None:
        self._compiler.forget()
        for resolver in self._resolvers.values():
            resolver.forget()


class Override:
    """An override that lasts for a ``with`` or ``async with`` block."""

    def __init__(self, binding: Binding, value: Any) -> None:
        self._binding = binding
        self._value = value
        self._context: Any = None

    def __enter__(self) -> Any:
        from dependency_injector import providers

        self._context = self._binding.provider.override(providers.Object(self._value))
        return self._value

    def __exit__(self, *_: object) -> None:
        self._context.__exit__(None, None, None)

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


class Conditions:
    """What a ``when=`` callable may ask, at freeze."""

    def __init__(self, container: Container, binding: Binding, visibility: Visibility) -> None:
        self._binding = binding
        self._visibility = visibility
        self.config = container.config

    def has(self, service: Any, *, name: str | None = None) -> bool:
        """True when the binding's module sees another binding of the service."""
        found = self._visibility.candidates(self._binding.module, _key(service, name))
        return any(item is not self._binding for item in found)

    def taken(self) -> bool:
        """True when the very key of the binding is provided by another."""
        found = self._visibility.candidates(self._binding.module, self._binding.key)
        return any(item is not self._binding for item in found)


def unbound(conditions: Conditions) -> bool:
    """``when=unbound``: a default that steps back when somebody else binds the key."""
    return not conditions.taken()


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


def _active(container: Container, modules: ModuleGraph) -> Iterator[Binding]:
    """Bindings whose ``when`` holds; unconditional ones first, so that conditions see them."""
    conditional = [item for item in container.bindings if item.when is not None]
    visibility = Visibility(modules, [item for item in container.bindings if item.when is None])
    kept = {item for item in container.bindings if item.when is None}
    for item in conditional:
        if _holds(item, Conditions(container, item, visibility)):
            visibility.add(item)
            kept.add(item)
    return (item for item in container.bindings if item in kept)


def _holds(binding: Binding, conditions: Conditions) -> bool:
    when = binding.when
    if not callable(when):
        return bool(when)
    return bool(when(conditions) if inspect.signature(when).parameters else when())


def _decorated_parameter(decorator: Callable[..., Any], outer: Binding) -> str:
    """The parameter of a decorator that takes the inner service."""
    asked = parameters(decorator)
    for parameter in asked:
        if parameter.key in (outer.key, outer.service):
            return parameter.name
    if not asked:
        raise RegistrationError(
            f"{decorator!r} decorates {outer.name} but takes no parameter for it",
            hint=f"give it a parameter annotated {outer.name}",
        )
    return asked[0].name


def _cannot_decorate(
    node: ModuleNode, key: Key, found: Sequence[Binding], site: Site | None
) -> Problem:
    if found:
        return ambiguous(key, node.name, found)
    return Problem(
        error=RegistrationError,
        title=f"{node.name} decorates {show(key)}, which it cannot see",
        lines=(str(site),) if site else (),
        fix=f"bind {show(key)}, or import the module that exports it",
    )


def _constant(value: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def constant(scope: Any) -> Any:
        return value

    return constant


def _key(service: Any, name: str | None) -> Key:
    key = key_of(service)
    return key if name is None else (key, name)


def _caller() -> Site | None:
    """File and line of the registration: the first frame outside this package."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FILES):
        frame = frame.f_back  # type: ignore[assignment]
    return Site(frame.f_code.co_filename, frame.f_lineno) if frame else None


def _class_site(cls: type[Any]) -> tuple[str, int] | None:
    from lexigram.di.signature import constructor_site

    return constructor_site(cls)


injectable_aliases(resolvers=Container, scopes=Scope)
injectable_aliases(resolvers=Resolver)

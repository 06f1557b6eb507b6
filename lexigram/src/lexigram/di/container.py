"""The container: records bindings, freezes them into a checked graph, and hands out services."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lexigram.contracts.core.di import ServiceScope
from lexigram.di import _problems as words
from lexigram.di._build import Builder, Reach, awaits, outside_scope
from lexigram.di._compile import Compiler
from lexigram.di._diagram import ObjectGraphDiagram
from lexigram.di._graph import ObjectGraph
from lexigram.di._problems import Problem, spell
from lexigram.di._resolver import BootContainer, Locator, Override, Resolver
from lexigram.di._visibility import Conditions, Visibility, sift
from lexigram.di.binding import (
    Binding,
    Entry,
    Kind,
    Registrar,
    Site,
    Target,
    target_of_call,
    target_of_value,
    unbound,
)
from lexigram.di.decorators import marked_lifetime
from lexigram.di.errors import (
    AsyncDependencyError,
    ContainerError,
    ContainerValidationError,
    OverrideError,
    RegistrationError,
)
from lexigram.di.markers import Key, show
from lexigram.di.module import ModuleGraph, ModuleLike, ModuleNode
from lexigram.di.scope import Scope
from lexigram.di.signature import injectable_aliases, key_of, parameters

if TYPE_CHECKING:
    from lexigram.contracts.core.errors import LexigramError
    from lexigram.di.provider import Provider

__all__ = [
    "BootContainer",
    "Conditions",
    "Container",
    "Override",
    "Registrar",
    "Resolver",
    "Scope",
    "unbound",
]

_UNREACHED: Reach = frozenset()


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
        self._model = _providers
        self._graph: ObjectGraph | None = None
        self._decorators: list[tuple[ModuleNode, Key, Callable[..., Any], Site]] = []
        self._entries: list[tuple[ModuleNode, Entry]] = []
        self._reported: list[Problem] = []
        self._replaced: set[tuple[ModuleNode, Key]] = set()
        self._resolvers: dict[ModuleNode, Resolver] = {}
        self._reach: dict[Binding, Reach] = {}
        # By owner: what begins with a provider's boot, and what that boot has promised to bind.
        self._boot_work: dict[Provider | None, list[Binding]] = {}
        self._changes = 0
        self._base = 0  # the epoch without any override
        self._renewed: dict[Binding, Callable[..., Any]] = {}
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

    def freeze(self, overrides: Mapping[Any, Any] | None = None) -> None:
        """Check the whole graph and close registration; every problem is in one error.

        A container that did not pass is as it was before: register what is missing and freeze
        again. ``overrides`` replace what was registered, before anything is built.
        """
        if self._graph is not None:
            return
        started = time.perf_counter()
        registered = self.bindings
        try:
            self._graph = self._make_graph()
            self._decorate(self._graph)
            standins = self._replace(self._graph, overrides or {})
            self._graph.validate(self._entries)
            self._check_standins(self._graph, standins)
            if self._graph.problems:
                raise self._invalid(self._graph, time.perf_counter() - started)
        except BaseException:
            self._graph, self.bindings = None, registered
            self._replaced.clear()
            raise
        self.owns_tasks = any(
            item.kind is Kind.ASYNC_GENERATOR and not item.is_singleton for item in self.bindings
        )
        for resolver in self._resolvers.values():
            resolver.forget_scopes()
        self._note_owners()

    async def start(self, provider: Provider | None = None) -> None:
        """Start the async and generator singletons a provider registered (None: all)."""
        work = self._boot_work
        mine = chain(*work.values()) if provider is None else work.get(provider, ())
        await self.builder.start_all(item for item in mine if item.kind is not Kind.PROMISE)

    def fulfil(self, node: ModuleNode, key: Key, value: Any) -> None:
        """Bind the value of a promise; where the application overrides it, the override stays."""
        if (node, key) in self._replaced:
            return
        for item in self.bindings:
            if item.kind is Kind.PROMISE and item.key == key and item.module is node:
                self.keep(item, value)
                return
        raise RegistrationError(
            f"{show(key)} was bound during boot, but {node.name} has not promised it",
            hint=f"announce it in register(): container.promise({spell(key)})",
        )

    def broken_promises(self, provider: Provider) -> list[str]:
        """Names of promises that ``provider`` made and has not kept."""
        return [
            item.name
            for item in self._boot_work.get(provider, ())
            if item.kind is Kind.PROMISE and not item.made and item.stash is None
        ]

    def graph(self) -> ObjectGraphDiagram:
        """The object graph, as a diagram: ``.mermaid()``, ``.dot()``, ``.to_dict()``."""
        return ObjectGraphDiagram(self.name, self.checked_graph().bindings)

    async def aclose(self, error: BaseException | None = None) -> None:
        """Tear down generator singletons in reverse; each sees ``error``."""
        await self.builder.close(error)

    async def __aenter__(self) -> Self:
        self.freeze()
        try:
            await self.start()
        except BaseException as error:
            await self.aclose(error)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose(error)

    # Registration.

    def add(self, binding: Binding) -> None:
        """Take in a registration."""
        if self._graph is not None:
            raise RegistrationError(
                f"{binding.name} was registered after the container froze",
                hint="register in Provider.register(); a value made in boot() is announced there "
                f"with container.promise({spell(binding.key)}) and bound in boot()",
            )
        self.bindings.append(binding)

    def add_decorator(
        self, node: ModuleNode, key: Key, decorator: Callable[..., Any], site: Site
    ) -> None:
        """Take in a decoration, applied at freeze."""
        if self._graph is not None:
            raise RegistrationError(
                f"{show(key)} was decorated after the container froze",
                hint="call container.decorate(...) in Provider.register()",
            )
        self._decorators.append((node, key, decorator, site))

    def add_entry(self, node: ModuleNode, entry: Entry) -> None:
        """Take in a function that the freeze checks."""
        self._demand_open(f"{show(entry.function)} was announced")
        self._entries.append((node, entry))

    def add_error(self, error: LexigramError) -> None:
        """Take in what the freeze reports with what it finds."""
        self._demand_open(f"{error.message!r} was reported")
        self._reported.append(words.reported(error))

    def _demand_open(self, what: str) -> None:
        if self._graph is not None:
            raise RegistrationError(
                f"{what} after the container froze", hint="do it in Provider.register()"
            )

    def _note_owners(self) -> None:
        for item in self.bindings:
            if not item.is_singleton or item.kind is Kind.VALUE or item.is_open:
                continue
            if item.kind is Kind.PROMISE or item.is_resource or awaits(item):
                self._boot_work.setdefault(item.owner, []).append(item)

    def _make_graph(self) -> ObjectGraph:
        """The graph of what is registered and wanted, on copies: a freeze may fail."""
        marked = [
            _bind_marked_class(cls, node) for node in self.modules.nodes for cls in node.injectables
        ]
        kept, left_out = sift([*self.bindings, *marked], self.modules, self.config)
        self.bindings = [item.twin() for item in kept]
        for order, binding in enumerate(self.bindings):
            binding.order = order
            self.give_provider(binding)
        return ObjectGraph(
            self,
            Visibility(self.modules, self.bindings),
            self._model,
            self.bindings,
            left_out,
            [*self.modules.problems, *self._reported],
        )

    def _decorate(self, graph: ObjectGraph) -> None:
        for node, key, decorator, site in self._decorators:
            found = graph.visibility.candidates(node, key)
            if len(found) > 1:
                graph.problems.append(words.ambiguous(key, node.name, found))
            elif not found:
                graph.problems.append(words.cannot_decorate(node, key, site))
            elif (parameter := _find_inner_parameter(decorator, found[0])) is None:
                graph.problems.append(words.decorates_nothing(node, key, decorator, site))
            else:
                self._wrap(found[0], node, decorator, site, parameter)

    def _wrap(
        self, outer: Binding, node: ModuleNode, decorator: Any, site: Site, parameter: str
    ) -> None:
        """Put the decorator in the place of what it wraps, which nobody else sees any more."""
        inner = outer.twin()
        self.give_provider(inner)
        self.bindings.append(inner)
        outer.replace(target_of_call(decorator), outer.lifetime)
        outer.viewpoint, outer.site = node, site
        outer.pinned = {parameter: inner}
        self.give_provider(outer)

    def _replace(self, graph: ObjectGraph, overrides: Mapping[Any, Any]) -> list[Binding]:
        """Put the application's overrides in place; returns those nothing was bound for."""
        standins = []
        for service, value in overrides.items():
            key = key_of(service)
            found = graph.visibility.anywhere(key)
            for binding in found:
                for inner in binding.pinned.values():
                    self._drop(inner)
                binding.replace(target_of_value(value), ServiceScope.SINGLETON)
                self.give_provider(binding)
                self._replaced.add((binding.module, key))
            if not found:
                standin = Binding(
                    key, ServiceScope.SINGLETON, target_of_value(value), module=self.modules.root
                )
                standin.order = len(self.bindings)
                self.give_provider(standin)
                self.bindings.append(standin)
                graph.visibility.add(standin)
                standins.append(standin)
        return standins

    def _drop(self, inner: Binding) -> None:
        """What an override replaces is not started either, decorated or not."""
        self.bindings.remove(inner)
        for deeper in inner.pinned.values():
            self._drop(deeper)

    def _check_standins(self, graph: ObjectGraph, standins: list[Binding]) -> None:
        for standin in standins:
            is_used = graph.dependents(standin) or graph.is_called_for(standin)
            if not is_used and not graph.could_join(standin.key):
                near = graph.near(standin.key, standin.module)
                graph.problems.append(words.useless_override(standin.key, near))

    def _invalid(self, graph: ObjectGraph, seconds: float) -> ContainerValidationError:
        count = len(graph.problems)
        noun = "problem" if count == 1 else "problems"
        return ContainerValidationError(
            graph.problems,
            title=f'{count} {noun} in the object graph of app "{self.name}" '
            f"(checked {len(self.bindings)} bindings in {seconds * 1000:.1f} ms)",
        )

    # What resolvers, scopes, the model and generated code ask for.

    def checked_graph(self) -> ObjectGraph:
        """The graph; nothing can be resolved before it has been checked."""
        if self._graph is None:
            raise ContainerError(
                f'the container of "{self.name}" is not frozen yet',
                hint="call container.freeze(), or `async with` the container or application",
            )
        return self._graph

    def give_provider(self, binding: Binding) -> None:
        """Put the object into the model that stands for a binding."""
        is_value = binding.kind is Kind.VALUE or binding.kind is Kind.PROMISE
        binding.provider = self._model.provider_for(binding, self, is_value=is_value)

    def locator(self, binding: Binding) -> Any:
        """What a binding gets that asks for the container."""
        resolver = self.of_node(binding.viewpoint)
        if isinstance(binding.target, type):
            return resolver  # it keeps the container, and asks when it needs something

        def note(found: Binding) -> None:
            if not binding.made:
                binding.located.add(found)

        return Locator(resolver, note)

    def supply(self, binding: Binding) -> Any:
        """What calling the model's provider returns: the container's own value."""
        if binding.is_singleton:
            return self.builder.singleton(binding)
        if binding.needs_scope:
            raise outside_scope(binding)
        if binding.needs_await:
            raise AsyncDependencyError(
                f"building {binding.name} needs await",
                hint=f"use `await container.resolve({spell(binding.key)})`",
            )
        return self.function(binding, is_async=False)(None)

    def function(self, binding: Binding, *, is_async: bool) -> Callable[..., Any]:
        """The generated function of a binding, with the singletons under it made."""
        return self._compiler.function(binding, is_async=is_async)

    def source(self, binding: Binding) -> str:
        """The source that builds a binding; empty while it is unknown, or for singletons."""
        if binding.is_singleton or self.builder.unmade(binding):
            return ""
        return self._compiler.source(binding)

    def handler(self, func: Callable[..., Any], node: ModuleNode, names: Sequence[str]) -> Binding:
        """A binding for a function that is called, not resolved; ``names`` come from the caller."""
        handler = self.make_handler(func, node)
        if handler.is_resource:
            raise words.generator_as_handler(handler).as_error()
        self.checked_graph().attach_handler(handler, names)
        return handler

    def make_handler(
        self, func: Callable[..., Any], node: ModuleNode, role: str | None = None
    ) -> Binding:
        """The binding of a function that is called, with its provider; not connected."""
        target = target_of_call(func)
        key = _name_giver(func)
        handler = Binding(key, ServiceScope.TRANSIENT, target, module=node, role=role or "handler")
        self.give_provider(handler)
        return handler

    def compile_entry(
        self, resolver: Resolver, handler: Binding, names: tuple[str, ...]
    ) -> Callable[..., Any]:
        """The compiled entry, or one whose first call makes what is not made yet."""
        if handler.needs_await and handler.kind is not Kind.COROUTINE:
            raise words.plain_handler_awaits(handler).as_error()
        if not self.builder.unmade(handler):
            return self._compiler.entry(resolver, handler, names)

        def become() -> Callable[..., Any]:
            known = self._renewed.get(handler)
            if known is not None and known is not first:
                return known
            real = self._compiler.entry(resolver, handler, names)
            if self.epoch[0] != self._base:
                self._renewed[handler] = real
            else:
                # The caller keeps `first`, so it turns into the real one.
                first.__globals__.update(real.__globals__)
                first.__code__ = real.__code__
            return real

        first: Any = self._compiler.first_entry(handler, names, become)
        return first  # type: ignore[no-any-return]

    def renew_entry(
        self, resolver: Resolver, handler: Binding, names: tuple[str, ...]
    ) -> Callable[..., Any]:
        """The entry as it is under the overrides of this moment."""
        entry = self._renewed.get(handler)
        if entry is None:
            entry = self._renewed[handler] = self.compile_entry(resolver, handler, names)
        return entry

    def resource_died(self, binding: Binding, error: BaseException) -> None:
        """A generator resource ended while in use."""
        if self.on_resource_death is not None:
            self.on_resource_death(binding, error)

    # Overrides.

    def reached_by(self, binding: Binding) -> Reach:
        """The overrides that ``binding`` or anything it is built on has at this moment."""
        return self._reach.get(binding, _UNREACHED)

    def keep(self, binding: Binding, value: Any) -> None:
        """Give a binding its real value, which waits while an override is active."""
        if self.reached_by(binding):
            binding.stash = (value,)
        else:
            binding.value, binding.made = value, True

    def permit_override(self, binding: Binding) -> None:
        """Refuse an override that could not reach everything built on the service."""
        for item in [binding, *self.checked_graph().dependents(binding)]:
            if item is not binding and item.is_resource and item.is_singleton and item.made:
                why = f"the running resource {item.name} was built on it"
            elif item.used_in_boot is not None:
                why = f"provider {item.used_in_boot} used {item.name} in its boot"
            else:
                continue
            raise OverrideError(
                f"{binding.name} cannot be overridden now: {why}",
                hint="override before boot: Application(..., overrides="
                f"{{{spell(binding.key)}: ...}})",
            )

    def model_changed(self) -> None:
        """Rebuild what stands on overridden bindings, and bring originals back afterwards."""
        graph = self.checked_graph()
        reach: dict[Binding, Reach] = {}
        for item in graph.bindings:
            override = item.provider.last_overriding
            if override is not None:
                for reached in [item, *graph.dependents(item)]:
                    reach[reached] = reach.get(reached, _UNREACHED) | {id(override)}
        changed = {
            item for item in {*reach, *self._reach} if reach.get(item) != self._reach.get(item)
        }
        for item in changed:
            if item not in self._reach:
                item.stash = (item.value,) if item.made else None
            item.made, item.value = False, None
            if item not in reach and item.stash is not None:
                item.made, item.value = True, item.stash[0]
                item.stash = None
        self._reach = reach
        self.builder.retire(lambda binding: binding in changed)
        # Without overrides everything is as it was, so entries compiled then are right again.
        self._changes += 1
        self._forget(self._changes if reach else self._base)

    def remove(self, binding: Binding) -> None:
        """Take a binding out of the model: it and what stands on it can no longer be built."""
        graph = self.checked_graph()
        for item in [binding, *graph.dependents(binding)]:
            item.made, item.value, item.stash = False, None, None
        graph.remove(binding)
        binding.replace(Target(Kind.REMOVED, None, {}), ServiceScope.SINGLETON)
        self._changes += 1
        self._base = self._changes
        self._forget(self._base)

    def _forget(self, epoch: int) -> None:
        self.epoch[0] = epoch
        self._renewed.clear()
        self.builder.unsettle()
        self._compiler.forget()
        for resolver in self._resolvers.values():
            resolver.forget()


def _bind_marked_class(cls: type[Any], node: ModuleNode) -> Binding:
    """A marked class that a module lists among its providers."""
    lifetime = marked_lifetime(cls)
    assert lifetime is not None
    return Binding(cls, lifetime, Target(Kind.CALL, cls, {}), module=node)


def _name_giver(func: Any) -> Any:
    """The key of a handler: what a person would call it by."""
    while isinstance(func, partial):
        func = func.func
    return func if hasattr(func, "__name__") else type(func)


def _find_inner_parameter(decorator: Callable[..., Any], outer: Binding) -> str | None:
    """The parameter of a decorator that takes the inner service; its first one if none says so."""
    try:
        asked = parameters(decorator)
    except (TypeError, ValueError):  # built in, and without a signature
        return None
    for parameter in asked:
        if parameter.key in (outer.key, outer.service):
            return parameter.name
    return asked[0].name if asked else None


injectable_aliases(resolvers=Container)

"""Connect bindings into an object graph, and find everything wrong with it at once."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from attrs import define, field, frozen

from lexigram.contracts.core.di import ServiceScope
from lexigram.di.binding import Binding, Kind, eager
from lexigram.di.decorators import marked_lifetime
from lexigram.di.errors import (
    AmbiguousDependencyError,
    AsyncDependencyError,
    CircularDependencyError,
    ModuleExportError,
    ModuleVisibilityError,
    RegistrationError,
    RuntimeArgumentError,
    ScopedResolutionError,
    SignatureError,
    UnresolvableDependencyError,
)
from lexigram.di.markers import Key, show
from lexigram.di.module import ModuleNode
from lexigram.di.problems import Problem, Site, bound_in, path_lines
from lexigram.di.signature import Parameter, Wish, constructor_site, parameters
from lexigram.di.visibility import Visibility

MOST_NEAR = 3  # near matches named in a report

_MARKED = {
    ServiceScope.SINGLETON: "singleton",
    ServiceScope.SCOPED: "scoped",
    ServiceScope.TRANSIENT: "transient",
}


@frozen
class Missing:
    """A parameter for which there is not exactly one visible binding."""

    consumer: Binding
    parameter: Parameter
    candidates: tuple[Binding, ...]


@define(eq=False)
class ObjectGraph:
    """The bindings of a container with their edges, and what validation found."""

    visibility: Visibility
    resolver_of: Callable[[ModuleNode], Any]
    # Binds a marked or specialised class that nobody registered.
    adopt: Callable[[Binding], None]
    model: Any  # lexigram.di._providers, loaded late
    bindings: list[Binding] = field(factory=list)
    problems: list[Problem] = field(factory=list)
    order: list[Binding] = field(factory=list)
    _missing: list[Missing] = field(factory=list)
    _checks: list[Callable[[], None]] = field(factory=list)

    def connect(self) -> None:
        """Give every binding its edges; bindings adopted on the way are connected too."""
        index = 0
        while index < len(self.bindings):
            self.attach(self.bindings[index])
            index += 1

    def attach(self, binding: Binding) -> None:
        """Read one binding's signature and point its provider at what it asks for."""
        if binding.kind in (Kind.VALUE, Kind.PROMISE):
            return
        try:
            binding.parameters = parameters(binding.target, binding.type_arguments)
        except (TypeError, ValueError) as error:
            self.problems.append(_unreadable(binding, str(error)))
            return
        edges = {}
        for parameter in binding.parameters:
            edge = self.edge(binding, parameter)
            if edge is not None:
                edges[parameter.name] = edge
        if edges:
            binding.provider.set_kwargs(**edges)

    def edge(self, binding: Binding, parameter: Parameter) -> Any:
        """The provider that fills a parameter; None leaves it to its default or the caller."""
        if parameter.name in binding.pinned:
            return binding.pinned[parameter.name].provider
        wish = parameter.wish
        if wish is Wish.RESOLVER or (parameter.trouble and _is_locator(binding)):
            return self.model.Constant(self.resolver_of(binding.module))
        if parameter.trouble:
            self.problems.append(_bad_parameter(binding, parameter))
            return None
        if wish is Wish.SCOPE:
            return self.model.CurrentScope(None)
        if wish is Wish.ARGUMENT or parameter.key is None:
            return None
        if wish is Wish.ALL:
            return self._collection(binding, parameter)
        return self._single(binding, parameter)

    def attach_handler(self, handler: Binding, given: Iterable[str]) -> list[Problem]:
        """Connect a function that is called, not registered; returns what is wrong with it."""
        outer = self.problems, self._missing, self._checks
        self.problems, self._missing, self._checks = [], [], []
        try:
            handler.parameters = parameters(handler.target)
            edges = {
                item.name: edge
                for item in handler.parameters
                if item.name not in given and (edge := self.edge(handler, item)) is not None
            }
            if edges:
                handler.provider.set_kwargs(**edges)
            self._derive(handler)
            for check in self._checks:
                check()
            return [*self.problems, *self._render_missing()]
        finally:
            self.problems, self._missing, self._checks = outer

    def find(self, node: ModuleNode, key: Key) -> list[Binding]:
        """What ``node`` can mean by ``key``, adopting marked and generic classes as needed."""
        found = self.visibility.candidates(node, key)
        if found:
            return found
        adopted = self._specialised(node, key) or self._marked(key)
        return [adopted] if adopted else []

    def validate(self) -> None:
        """Order the graph and collect every problem in it."""
        self.order = self._sorted()
        for binding in self.order:
            self._derive(binding)
        for check in self._checks:
            check()
        self.problems.extend(self._render_missing())
        self._checks.clear()
        self._missing.clear()
        self._check_exports()

    def dependents(self, target: Binding) -> set[Binding]:
        """Everything built on ``target``, however far, itself left out."""
        consumers = self._consumers()
        found: set[Binding] = set()
        pending = [target]
        while pending:
            for consumer in consumers.get(pending.pop(), ()):
                if consumer not in found:
                    found.add(consumer)
                    pending.append(consumer)
        return found

    def near(self, key: Key, node: ModuleNode) -> tuple[str, ...]:
        """Bindings with a similar name, and why they do not serve."""
        names: dict[str, Binding] = {binding.name: binding for binding in self.bindings}
        wanted = show(key)
        close = difflib.get_close_matches(wanted, names, n=MOST_NEAR, cutoff=0.55)
        bare = getattr(key, "__name__", wanted)
        close += [name for name in names if bare in name and name not in close and name != wanted]
        close = [name for name in close if name != wanted]
        return tuple(_near(names[name], node, self.visibility) for name in close[:MOST_NEAR])

    def _collection(self, binding: Binding, parameter: Parameter) -> Any:
        whole = self.visibility.candidates(binding.module, list[parameter.key])  # type: ignore[name-defined]
        if whole:
            return whole[0].provider
        members = self.visibility.collection(binding.module, parameter.key)
        members = [member for member in members if member is not binding]
        if not members and parameter.has_default:
            return None
        return self.model.Collection(*(member.provider for member in members))

    def _single(self, binding: Binding, parameter: Parameter) -> Any:
        found = self.find(binding.module, parameter.key)
        if len(found) == 1:
            return self._wrapped(binding, parameter, found[0])
        constant = _type_argument(binding, parameter.key)
        if constant is not None:
            return self.model.Constant(constant)
        if not found and parameter.has_default:
            return None
        if not found and parameter.optional:
            return self.model.Constant(None)
        self._missing.append(Missing(binding, parameter, tuple(found)))
        return None

    def _wrapped(self, binding: Binding, parameter: Parameter, target: Binding) -> Any:
        if parameter.wish is Wish.ONE:
            self._check_arguments(binding, parameter, target)
            return target.provider
        self._checks.append(lambda: self._check_deferred(binding, parameter, target))
        return self.model.Deferred(target.provider, parameter.wish)

    def _specialised(self, node: ModuleNode, key: Key) -> Binding | None:
        """``Repo[User]`` from an open ``Repo``: the same binding with its variables filled."""
        origin = getattr(key, "__origin__", None)
        if not isinstance(origin, type) or getattr(key, "__parameters__", None):
            return None
        found = self.visibility.candidates(node, origin)
        if len(found) != 1 or found[0].kind is Kind.VALUE:
            return None
        opened = found[0]
        variables = getattr(opened.target, "__parameters__", ()) or getattr(
            origin, "__parameters__", ()
        )
        if not variables:
            return None
        special = Binding(
            key,
            opened.lifetime,
            opened.kind,
            opened.target,
            module=opened.module,
            owner=opened.owner,
            site=opened.site,
            order=opened.order,
        )
        special.type_arguments = dict(
            zip(variables, getattr(key, "__args__", ()), strict=False)
        )
        self.adopt(special)
        return special

    def _marked(self, key: Key) -> Binding | None:
        lifetime = marked_lifetime(key)
        if lifetime is None:
            return None
        site = constructor_site(key)
        marked = Binding(
            key,
            lifetime,
            Kind.CALL,
            key,
            module=self.visibility.modules.root,
            owner=None,
            site=Site(*site) if site else None,
            order=len(self.bindings),
        )
        self.adopt(marked)
        return marked

    def _sorted(self) -> list[Binding]:
        """Dependencies first; each cycle is reported once and cut. Iterative: graphs are deep."""
        order: list[Binding] = []
        state: dict[Binding, int] = {}
        for start in self.bindings:
            if start in state:
                continue
            path: list[Binding] = [start]
            stack: list[tuple[Binding, Iterator[Binding]]] = [(start, eager(start.provider))]
            state[start] = 1
            while stack:
                node, edges = stack[-1]
                child = next(edges, None)
                if child is None:
                    stack.pop()
                    path.pop()
                    state[node] = 2
                    node.position = len(order)
                    order.append(node)
                elif child not in state:
                    state[child] = 1
                    path.append(child)
                    stack.append((child, eager(child.provider)))
                elif state[child] == 1:
                    self.problems.append(_cycle(path[path.index(child) :]))
        return order

    def _derive(self, binding: Binding) -> None:
        """Size, whether building needs await or a scope; and the checks that follow from it."""
        needs_await = binding.kind in (Kind.COROUTINE, Kind.ASYNC_GENERATOR)
        needs_scope = not binding.is_singleton and (
            binding.lifetime is ServiceScope.SCOPED or binding.is_resource
        )
        size = 1
        for dependency in eager(binding.provider):
            if dependency.is_singleton:
                continue  # made before this one is, whatever that takes
            size += dependency.size
            needs_await = needs_await or dependency.needs_await
            if dependency.needs_scope:
                if binding.is_singleton:
                    self.problems.append(_leak(binding, dependency))
                needs_scope = True
        binding.size = size
        binding.needs_await = needs_await
        binding.needs_scope = needs_scope and not binding.is_singleton

    def _check_arguments(self, binding: Binding, parameter: Parameter, target: Binding) -> None:
        def check() -> None:
            wanted = [
                argument.name
                for argument in target.parameters
                if argument.wish is Wish.ARGUMENT and not argument.has_default
            ]
            if wanted:
                self.problems.append(_needs_arguments(binding, parameter, target, wanted))

        self._checks.append(check)

    def _check_deferred(self, binding: Binding, parameter: Parameter, target: Binding) -> None:
        wish = parameter.wish
        if wish is Wish.LAZY and binding.is_singleton and target.needs_scope:
            self.problems.append(_leak(binding, target))
        elif wish is Wish.LAZY and target.needs_await and not target.is_singleton:
            self.problems.append(_async_in_sync(binding, parameter, target, "AsyncFactory"))
        elif wish is not Wish.LAZY and target.is_singleton:
            self.problems.append(_factory_of_singleton(binding, parameter, target))
        elif wish is Wish.FACTORY and target.needs_await:
            self.problems.append(_async_in_sync(binding, parameter, target, "AsyncFactory"))
        elif wish is not Wish.LAZY and binding.is_singleton and _has_teardown(target):
            self.problems.append(_factory_with_teardown(binding, parameter, target))

    def _consumers(self) -> dict[Binding, list[Binding]]:
        consumers: dict[Binding, list[Binding]] = {}
        for binding in self.bindings:
            for dependency in eager(binding.provider):
                consumers.setdefault(dependency, []).append(binding)
        return consumers

    def _path_to(
        self, consumer: Binding, consumers: dict[Binding, list[Binding]]
    ) -> list[tuple[Binding, str | None]]:
        """The shortest way from something nobody needs down to ``consumer``."""
        previous: dict[Binding, Binding | None] = {consumer: None}
        pending = deque([consumer])
        top = consumer
        while pending:
            top = pending.popleft()
            above = [item for item in consumers.get(top, ()) if item not in previous]
            if not consumers.get(top):
                break
            for item in above:
                previous[item] = top
                pending.append(item)
        path: list[tuple[Binding, str | None]] = []
        step: Binding | None = top
        while step is not None:
            below = previous[step]
            path.append((step, _parameter_to(step, below) if below else None))
            step = below
        return path

    def _render_missing(self) -> Iterator[Problem]:
        consumers = self._consumers() if self._missing else {}
        told: set[tuple[int, Key]] = set()
        for missing in self._missing:
            mark = (id(missing.consumer.module), missing.parameter.key)
            if mark in told:
                continue
            told.add(mark)
            also = [
                other.consumer.name
                for other in self._missing
                if other.parameter.key == missing.parameter.key
                and other.consumer.module is missing.consumer.module
                and other.consumer is not missing.consumer
            ]
            path = self._path_to(missing.consumer, consumers)
            path[-1] = (missing.consumer, missing.parameter.name)
            yield self._describe(missing, path, also)

    def _describe(
        self, missing: Missing, path: list[tuple[Binding, str | None]], also: list[str]
    ) -> Problem:
        key, node = missing.parameter.key, missing.consumer.module
        extra = (f"also needed by {', '.join(dict.fromkeys(also))}",) if also else ()
        if missing.candidates:
            lines = path_lines(path, key, f"✗ {len(missing.candidates)} bindings are visible")
            return ambiguous(key, node.name, missing.candidates, (*lines, *extra))
        hidden = self.visibility.anywhere(key)
        if hidden:
            lines = path_lines(path, key, f"✗ not visible to {node.name}")
            return invisible(key, node, hidden[0], self.visibility, (*lines, *extra))
        lines = path_lines(path, key, "✗ not bound")
        return Problem(
            error=UnresolvableDependencyError,
            title=f"nothing provides {show(key)}",
            lines=(*lines, *extra),
            fix=f"bind it:  container.singleton({_spell(key)}, ...)  in {node.name}",
            near=self.near(key, node),
        )

    def _check_exports(self) -> None:
        for node in self.visibility.modules.nodes:
            for key in node.exported_keys():
                if not self.visibility.provides_export(node, key):
                    self.problems.append(_empty_export(node, key, self.near(key, node)))


def ambiguous(
    key: Key, asker: str, candidates: Iterable[Binding], lines: tuple[str, ...] = ()
) -> Problem:
    """Two or more bindings where one was asked for."""
    named = [f"{binding.name}  {bound_in(binding)}" for binding in candidates]
    return Problem(
        error=AmbiguousDependencyError,
        title=f"{asker} can see {len(named)} bindings of {show(key)}",
        lines=(*lines, *(f"- {text}" for text in named)),
        fix=f"stop exporting one, give one a name= and ask for Annotated[{_spell(key)}, Named(...)], "
        f"or take list[{_spell(key)}]",
    )


def invisible(
    key: Key, node: ModuleNode, hidden: Binding, visibility: Visibility, lines: tuple[str, ...] = ()
) -> Problem:
    """Bound somewhere, but not where it was asked for."""
    owner = hidden.module
    exported = any(key in visibility.exports(other) for other in [owner])
    if exported:
        why = f"{owner.name} exports it, but {node.name} does not import {owner.name}"
        fix = f"import it:  imports=[{owner.name}]  in {node.name}"
    else:
        why = f"{owner.name} binds it but does not export it"
        fix = f"export it:  exports=[{_spell(key)}]  in {owner.name}"
        if node is not visibility.modules.root and owner not in node.imports:
            fix += f", and import {owner.name} in {node.name}"
    return Problem(
        error=ModuleVisibilityError,
        title=f"{show(key)} is not visible to {node.name}: {why}",
        lines=(*lines, f"{hidden.name}  {bound_in(hidden)}"),
        fix=fix,
    )


def _unreadable(binding: Binding, reason: str) -> Problem:
    return Problem(
        error=RegistrationError,
        title=f"the signature of {binding.target!r}, bound to {binding.name}, cannot be read",
        lines=(reason, bound_in(binding)),
        fix="bind it with factory= a function that has annotated parameters",
    )


def _bad_parameter(binding: Binding, parameter: Parameter) -> Problem:
    return Problem(
        error=SignatureError,
        title=f"parameter {parameter.name} of {binding.name} cannot be filled: {parameter.trouble}",
        lines=path_lines([(binding, parameter.name)]),
        fix=f"annotate {parameter.name} with a type that is importable at run time, "
        "or give it a default",
    )


def _cycle(path: list[Binding]) -> Problem:
    circle = [*path, path[0]]
    hops = []
    for step, following in zip(circle, circle[1:], strict=False):
        site = constructor_site(step.target)
        parameter = _parameter_to(step, following)
        where = f" {Site(*site)}" if site else ""
        hops.append(f"{step.name}({parameter}: {following.name}){where}")
    last, first = path[-1], path[0]
    return Problem(
        error=CircularDependencyError,
        title=f"cycle: {' -> '.join(binding.name for binding in circle)}",
        lines=("  ->  ".join(hops),),
        fix=f"break one edge: take `{_parameter_to(last, first)}: Lazy[{first.name}]` in "
        f"{last.name} and call it when needed",
    )


def _leak(keeper: Binding, kept: Binding) -> Problem:
    path: list[tuple[Binding, str | None]] = [(keeper, None)]
    step = keeper
    target = kept
    while True:
        path[-1] = (step, _parameter_to(step, target))
        path.append((target, None))
        if target.lifetime is ServiceScope.SCOPED or target.is_resource:
            break
        step = target
        target = next(item for item in eager(target.provider) if item.needs_scope)
    what = "scoped" if target.lifetime is ServiceScope.SCOPED else "torn-down"
    parameter = path[0][1]
    return Problem(
        error=ScopedResolutionError,
        title=f"scope leak: singleton {keeper.name} would keep {what} {target.name} alive",
        lines=path_lines(path),
        fix=f"make {keeper.name} scoped, or take `{parameter}: Factory[{kept.name}]` and call it "
        "per unit of work",
    )


def _needs_arguments(
    binding: Binding, parameter: Parameter, target: Binding, wanted: list[str]
) -> Problem:
    return Problem(
        error=RuntimeArgumentError,
        title=f"{target.name} takes {', '.join(wanted)} at run time, {binding.name} gives nothing",
        lines=path_lines([(binding, parameter.name), (target, None)]),
        fix=f"take `{parameter.name}: Factory[{target.name}]` and call it with "
        f"{', '.join(f'{name}=...' for name in wanted)}",
    )


def _async_in_sync(
    binding: Binding, parameter: Parameter, target: Binding, instead: str
) -> Problem:
    return Problem(
        error=AsyncDependencyError,
        title=f"building {target.name} needs await, but "
        f"{parameter.wish.name.capitalize()}[{target.name}] is called without it",
        lines=path_lines([(binding, parameter.name), (target, None)]),
        fix=f"take `{parameter.name}: {instead}[{target.name}]` and await its call",
    )


def _factory_of_singleton(binding: Binding, parameter: Parameter, target: Binding) -> Problem:
    return Problem(
        error=RegistrationError,
        title=f"{binding.name} asks for a factory of {target.name}, which is a singleton",
        lines=path_lines([(binding, parameter.name), (target, None)]),
        fix=f"take `{parameter.name}: Lazy[{target.name}]`, or bind {target.name} as transient",
    )


def _factory_with_teardown(binding: Binding, parameter: Parameter, target: Binding) -> Problem:
    return Problem(
        error=ScopedResolutionError,
        title=f"singleton {binding.name} builds {target.name} by factory, but nothing would tear "
        "it down",
        lines=path_lines([(binding, parameter.name), (target, None)]),
        fix=f"open a scope where it is used: `async with container.scope() as scope: "
        f"await scope.resolve({target.name})`",
    )


def _empty_export(node: ModuleNode, key: Key, near: tuple[str, ...]) -> Problem:
    return Problem(
        error=ModuleExportError,
        title=f"{node.name} exports {show(key)}, but nobody registers it",
        lines=(f"{node.name}  {node.site}",) if node.site else (),
        fix=f"register it in a provider of {node.name}, or take it out of exports",
        near=near,
    )


def _near(binding: Binding, node: ModuleNode, visibility: Visibility) -> str:
    visible = binding in visibility.candidates(node, binding.key)
    exported = binding.key in visibility.exports(binding.module)
    state = "" if visible else ", not imported" if exported else ", not exported"
    return f"{binding.name} (bound in {binding.module.name}{state})"


def _parameter_to(consumer: Binding, target: Binding) -> str:
    for name, edge in consumer.provider.kwargs.items():
        members = getattr(edge, "members", (edge,))
        if any(getattr(member, "binding", None) is target for member in members):
            return str(name)
    return "?"


def _has_teardown(binding: Binding) -> bool:
    pending, seen = [binding], {binding}
    while pending:
        step = pending.pop()
        if step.is_resource:
            return True
        for dependency in eager(step.provider):
            if not dependency.is_singleton and dependency not in seen:
                seen.add(dependency)
                pending.append(dependency)
    return False


def _type_argument(binding: Binding, key: Key) -> Any:
    """``type[T]`` in a generic asks for the type argument itself."""
    if binding.type_arguments and getattr(key, "__origin__", None) is type:
        return getattr(key, "__args__", (None,))[0]
    return None


def _is_locator(binding: Binding) -> bool:
    """A factory with one bare parameter (``lambda c: ...``) is handed the container."""
    return len(binding.parameters) == 1 and not isinstance(binding.target, type)


def _spell(key: Key) -> str:
    return show(key[0]) if isinstance(key, tuple) else show(key)

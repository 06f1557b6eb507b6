"""Connect bindings into an object graph, and find everything wrong with it at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from lexigram.contracts.core.di import ServiceScope
from lexigram.di import _problems as words
from lexigram.di._problems import Problem, parameter_to, path_lines
from lexigram.di._visibility import Visibility, covers
from lexigram.di.binding import Binding, Entry, Kind, Target, eager
from lexigram.di.decorators import marked_lifetime
from lexigram.di.errors import ContainerValidationError
from lexigram.di.markers import Key, origin_of, show
from lexigram.di.module import ModuleNode
from lexigram.di.signature import (
    Parameter,
    Wish,
    has_free_variables,
    is_service,
    parameters,
    type_arguments,
)

if TYPE_CHECKING:
    from lexigram.di.container import Container

MOST_NEAR = 3  # near matches named in a report


@frozen
class Missing:
    """A parameter for which there is not exactly one visible binding."""

    consumer: Binding
    parameter: Parameter
    candidates: tuple[Binding, ...]


@define(eq=False)
class ObjectGraph:
    """The bindings of a container with their edges, and what validation found."""

    container: Container
    visibility: Visibility
    model: Any  # lexigram.di._providers, loaded late
    bindings: list[Binding]
    # Registered, but their ``when`` did not hold: named in reports.
    left_out: Sequence[Binding] = ()
    problems: list[Problem] = field(factory=list)
    _missing: list[Missing] = field(factory=list)
    _checks: list[Callable[[], None]] = field(factory=list)
    # Bindings nobody registered: marked classes, and generic ones filled in.
    _marks: dict[Key, Binding] = field(factory=dict)
    _specials: dict[tuple[Binding, Key], Binding] = field(factory=dict)
    # Functions that are called, not resolved, as they were announced.
    _handlers: list[Binding] = field(factory=list)
    _lock: threading.RLock = field(factory=threading.RLock)

    def validate(self, entries: Iterable[tuple[ModuleNode, Entry]] = ()) -> None:
        """Connect everything, and collect every problem in it and in what is called with it."""
        self._check_exports()
        self._connect(0)
        first = len(self.bindings)
        for node, entry in entries:
            self._attach_entry(node, entry)
        self._connect(first)
        self._arrange()
        for handler in self._handlers:
            self._derive(handler)
            if handler.needs_await and handler.kind is not Kind.COROUTINE:
                self.problems.append(words.plain_handler_awaits(handler))
        self._conclude()

    def is_called_for(self, binding: Binding) -> bool:
        """True when a function that was announced asks for it."""
        return any(binding in eager(handler.provider) for handler in self._handlers)

    def find(self, node: ModuleNode, key: Key) -> list[Binding]:
        """What ``node`` can mean by ``key``; marked and generic classes join on first sight."""
        known = self.visibility.candidates(node, key)
        if known:
            return known
        with self._lock:
            first = len(self.bindings)
            found = self._find(node, key)
            self._admit(first, show(key))
            return found

    def attach_handler(self, handler: Binding, given: Collection[str]) -> None:
        """Connect a function that is called, not registered; raises what is wrong with it."""
        with self._lock:
            first = len(self.bindings)
            self._attach(handler, given)
            self._admit(first, handler.name, handler)

    def members(self, node: ModuleNode, key: Key) -> list[Binding]:
        """What ``list[key]`` holds for ``node``."""
        with self._lock:
            first = len(self.bindings)
            found = self._members(node, key)
            self._admit(first, show(key))
            return found

    def anywhere(self, key: Key) -> list[Binding]:
        """Every binding of ``key``, visible or not."""
        adopted = (*self._marks.values(), *self._specials.values())
        found = [*self.visibility.anywhere(key), *(item for item in adopted if item.key == key)]
        return list(dict.fromkeys(found))

    def could_join(self, key: Key) -> bool:
        """True for a class that joins when asked for, though nobody registered it."""
        origin = origin_of(key)
        return marked_lifetime(key) is not None or bool(
            isinstance(origin, type) and self.visibility.anywhere(origin)
        )

    def remove(self, binding: Binding) -> None:
        """Take a binding out of the model."""
        self.bindings.remove(binding)
        self._marks = {key: item for key, item in self._marks.items() if item is not binding}
        self._specials = {key: item for key, item in self._specials.items() if item is not binding}
        if binding in self.visibility.anywhere(binding.key):
            self.visibility.remove(binding)

    def dependents(self, target: Binding) -> list[Binding]:
        """Everything built on ``target``, however far, itself left out; the nearest first."""
        consumers = self._consumers()
        found: dict[Binding, None] = {}
        pending = deque([target])
        while pending:
            for consumer in consumers.get(pending.popleft(), ()):
                if consumer not in found:
                    found[consumer] = None
                    pending.append(consumer)
        return list(found)

    def why_not(self, key: Key, node: ModuleNode, found: Sequence[Binding]) -> Problem:
        """Why ``node`` cannot have ``key``."""
        return self._describe(key, node, found, [], "")

    def near(self, key: Key, node: ModuleNode) -> tuple[str, ...]:
        """Bindings with a similar name, and why they do not serve."""
        from difflib import get_close_matches  # 1 ms that only a start with a problem pays

        names = {binding.name: binding for binding in self.bindings}
        wanted = show(key)
        close = get_close_matches(wanted, names, n=MOST_NEAR, cutoff=0.55)
        bare = getattr(key, "__name__", wanted)
        close += [name for name in names if bare in name and name not in close]
        found = [self._near(names[name], node) for name in close if name != wanted]
        unmet = [
            f"{item.name} (bound in {item.module.name}, left out by its when=)"
            for item in self.left_out
            if item.key == key
        ]
        return tuple([*unmet, *found][:MOST_NEAR])

    # Edges.

    def _connect(self, first: int) -> None:
        """Give bindings their edges; those adopted on the way are connected too."""
        index = first
        while index < len(self.bindings):
            self._attach(self.bindings[index])
            index += 1

    def _attach(self, binding: Binding, given: Collection[str] = ()) -> None:
        """Read one binding's signature and point its provider at what it asks for."""
        if binding.kind is Kind.VALUE or binding.kind is Kind.PROMISE:
            return
        try:
            binding.parameters = parameters(binding.target, binding.type_arguments)
        except (TypeError, ValueError) as error:
            self.problems.append(words.unreadable(binding, str(error)))
            return
        self._check_target(binding)
        if not binding.type_arguments:
            binding.is_open = any(has_free_variables(item.key) for item in binding.parameters)
            if binding.is_open:
                return
        edges = {}
        for parameter in binding.parameters:
            if parameter.name not in given:
                edge = self._edge(binding, parameter)
                if edge is not None:
                    edges[parameter.name] = edge
        if edges:
            binding.provider.set_kwargs(**edges)

    def _attach_entry(self, node: ModuleNode, entry: Entry) -> None:
        handler = self.container.make_handler(entry.function, node, entry.role)
        handler.in_scope = entry.in_scope
        if handler.is_resource:
            self.problems.append(words.generator_as_handler(handler))
            return
        given = set(entry.given)
        if entry.takes_arguments:
            try:
                asked = parameters(entry.function)
            except (TypeError, ValueError):
                asked = ()  # reported by _attach
            given.update(item.name for item in asked if not is_service(item, self._is_bound(node)))
        self._attach(handler, given)
        self._handlers.append(handler)

    def _is_bound(self, node: ModuleNode) -> Callable[[Key], bool]:
        """Whether anybody binds a key: what is hidden from ``node`` is a service all the same."""
        return lambda key: bool(self._find(node, key) or self.visibility.anywhere(key))

    def _edge(self, binding: Binding, parameter: Parameter) -> Any:
        """The provider that fills a parameter; None leaves it to its default or the caller."""
        if parameter.name in binding.pinned:
            inner = binding.pinned[parameter.name]
            self._check_edge(binding, parameter, inner)
            return inner.provider
        wish = parameter.wish
        if wish is Wish.RESOLVER or (parameter.bare and _is_locator(binding)):
            return self.model.Constant(self.container.locator(binding))
        if parameter.trouble:
            self.problems.append(words.bad_parameter(binding, parameter))
            return None
        if wish is Wish.SCOPE:
            return self.model.CurrentScope(None)
        if wish is Wish.ARGUMENT or parameter.key is None:
            return None
        if wish is Wish.ALL:
            return self._collection(binding, parameter)
        return self._single(binding, parameter)

    def _collection(self, binding: Binding, parameter: Parameter) -> Any:
        node, key = binding.viewpoint, parameter.key
        whole: Any = None if isinstance(key, (tuple, str)) else list[key]  # type: ignore[valid-type]
        if whole is not None and self.visibility.candidates(node, whole):
            return self._single(binding, evolve(parameter, key=whole, wish=Wish.ONE))
        members = [member for member in self._members(node, key) if member is not binding]
        if not members and parameter.has_default:
            return None
        for member in members:
            self._check_edge(binding, parameter, member)
        return self.model.Collection(*(member.provider for member in members))

    def _single(self, binding: Binding, parameter: Parameter) -> Any:
        found = self._find(binding.viewpoint, parameter.key)
        if len(found) == 1:
            return self._wrap(binding, parameter, found[0])
        constant = _type_argument(binding, parameter.key)
        if constant is not None:
            return self.model.Constant(constant)
        if not found and parameter.has_default:
            return None
        if not found and parameter.optional:
            return self.model.Constant(None)
        self._missing.append(Missing(binding, parameter, tuple(found)))
        return None

    def _wrap(self, binding: Binding, parameter: Parameter, target: Binding) -> Any:
        self._check_edge(binding, parameter, target)
        if parameter.wish is Wish.ONE:
            return target.provider
        return self.model.Deferred(target.provider, parameter.wish)

    # What nobody registered.

    def _find(self, node: ModuleNode, key: Key) -> list[Binding]:
        return (
            self.visibility.candidates(node, key)
            or self._specialise(node, key)
            or self._find_marked(key)
        )

    def _members(self, node: ModuleNode, key: Key) -> list[Binding]:
        return self.visibility.collection(node, key) or self._find(node, key)

    def _specialise(self, node: ModuleNode, key: Key) -> list[Binding]:
        """``Repo[User]`` from an open ``Repo``: the same binding with its variables filled."""
        service, name = key if isinstance(key, tuple) else (key, None)
        origin = origin_of(service)
        if not isinstance(origin, type) or has_free_variables(service):
            return []
        if not getattr(origin, "__parameters__", ()):
            return []
        opened = self.visibility.candidates(node, origin if name is None else (origin, name))
        return [
            self._special(item, key, service)
            for item in opened
            if item.kind is not Kind.VALUE and item.kind is not Kind.PROMISE
        ]

    def _special(self, opened: Binding, key: Key, service: Any) -> Binding:
        known = self._specials.get((opened, key))
        if known is None:
            known = self._specials[opened, key] = opened.twin()
            known.key = key
            known.type_arguments = type_arguments(service, opened.target)
            known.pinned = {
                name: self._special(inner, key, service) for name, inner in opened.pinned.items()
            }
            self._adopt(known)
        return known

    def _find_marked(self, key: Key) -> list[Binding]:
        lifetime = marked_lifetime(key)
        if lifetime is None:
            return []
        known = self._marks.get(key)
        if known is None:
            known = self._marks[key] = Binding(
                key, lifetime, Target(Kind.CALL, key, {}), module=self.visibility.modules.root
            )
            known.order = len(self.bindings)
            self._adopt(known)
        return [known]

    def _adopt(self, binding: Binding) -> None:
        self.container.give_provider(binding)
        self.bindings.append(binding)

    def _admit(self, first: int, asked: str, *handlers: Binding) -> None:
        """Check what joined after the freeze; with a problem it leaves again."""
        joined = self.bindings[first:]
        if joined:
            self._connect(first)
            self._arrange()
            joined = self.bindings[first:]
        for handler in handlers:
            self._derive(handler)
        self._conclude()
        found, self.problems = self.problems, []
        if found:
            for binding in joined:
                self.remove(binding)
            raise ContainerValidationError(found, title=f"{asked} asks for what it cannot have")

    # Checks.

    def _arrange(self) -> None:
        """Order the graph, dependencies first, and derive what follows from the order."""
        for binding in self._sort():
            self._derive(binding)

    def _conclude(self) -> None:
        """Run the checks that need the whole graph, and put missing edges into words."""
        for check in self._checks:
            check()
        self.problems.extend(self._render_missing())
        self._checks.clear()
        self._missing.clear()

    def _sort(self) -> list[Binding]:
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
                    self.problems.append(words.cycle(path[path.index(child) :]))
        return order

    def _derive(self, binding: Binding) -> None:
        """Size, whether building needs await or a scope; and the checks that follow from it."""
        needs_await = binding.kind is Kind.COROUTINE or binding.kind is Kind.ASYNC_GENERATOR
        needs_scope = binding.lifetime is ServiceScope.SCOPED or binding.is_resource
        size = chunk = 1
        for dependency in eager(binding.provider):
            if dependency.is_singleton:
                continue  # made before this one is, whatever that takes
            size += dependency.size
            chunk += 1 if dependency.is_large else dependency.chunk
            needs_await = needs_await or dependency.needs_await
            if dependency.needs_scope:
                needs_scope = True
                if binding.is_singleton:
                    self.problems.append(words.leak(binding, dependency))
        for parameter in binding.parameters:
            if parameter.wish is Wish.SCOPE and not parameter.optional:
                needs_scope = True
                if binding.is_singleton:
                    self.problems.append(words.singleton_keeps_scope(binding, parameter))
        binding.size, binding.chunk = size, chunk
        binding.needs_await = needs_await
        binding.needs_scope = needs_scope and not binding.is_singleton

    def _check_target(self, binding: Binding) -> None:
        """A class must be buildable, and have the members of the protocol it is bound to."""
        cls = binding.target
        if not isinstance(cls, type):
            return
        abstract = sorted(getattr(cls, "__abstractmethods__", ()))
        if abstract or getattr(cls, "_is_protocol", False):
            self.problems.append(words.abstract_target(binding, abstract))
            return
        service = origin_of(binding.service) or binding.service
        if service is cls or not getattr(service, "_is_protocol", False) or binding.pinned:
            return
        lacking = [name for name in _methods(service) if not _has_member(cls, name)]
        if lacking:
            self.problems.append(words.lacks_members(binding, lacking))

    def _check_edge(self, binding: Binding, parameter: Parameter, target: Binding) -> None:
        def check() -> None:
            if target.is_open:
                self.problems.append(words.generic_without_type(binding, parameter, target))
            elif parameter.wish in (Wish.FACTORY, Wish.ASYNC_FACTORY):
                self._check_factory(binding, parameter, target)
            elif any(item.is_required_argument for item in target.parameters):
                self.problems.append(words.needs_arguments(binding, parameter, target))
            elif parameter.wish is Wish.LAZY:
                self._check_lazy(binding, parameter, target)

        self._checks.append(check)

    def _check_lazy(self, binding: Binding, parameter: Parameter, target: Binding) -> None:
        if binding.is_singleton and target.needs_scope:
            self.problems.append(words.leak(binding, target))
        elif target.needs_await and not target.is_singleton:
            self.problems.append(words.async_in_sync(binding, parameter, target))

    def _check_factory(self, binding: Binding, parameter: Parameter, target: Binding) -> None:
        if target.is_singleton:
            self.problems.append(words.factory_of_singleton(binding, parameter, target))
        elif parameter.wish is Wish.FACTORY and target.needs_await:
            self.problems.append(words.async_in_sync(binding, parameter, target))
        elif binding.is_singleton and has_teardown(target):
            self.problems.append(words.factory_with_teardown(binding, parameter, target))

    def _check_exports(self) -> None:
        for node in self.visibility.modules.nodes:
            for key in node.exported_keys():
                if not self._is_provided(node, key):
                    self.problems.append(words.empty_export(node, key, self.near(key, node)))

    def _is_provided(self, node: ModuleNode, key: Key) -> bool:
        if self.visibility.behind_export(node, key):
            return True
        if any(item.module is node and covers(key, item.key) for item in self.left_out):
            return True
        found = self._find(node, key)
        for item in found:
            if item not in self._marks.values():
                self.visibility.add(item)  # one form of an open generic, shown by itself
        return bool(found)

    # Reports.

    def _consumers(self) -> dict[Binding, list[Binding]]:
        consumers: dict[Binding, list[Binding]] = {}
        for binding in self.bindings:
            for dependency in (*eager(binding.provider), *binding.located):
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
            if not consumers.get(top):
                break
            for item in consumers[top]:
                if item not in previous:
                    previous[item] = top
                    pending.append(item)
        path: list[tuple[Binding, str | None]] = []
        step: Binding | None = top
        while step is not None:
            below = previous[step]
            path.append((step, parameter_to(step, below) if below else None))
            step = below
        return path

    def _render_missing(self) -> Iterator[Problem]:
        """One problem for each key a module lacks, however many ask for it."""
        consumers = self._consumers() if self._missing else {}
        asked: dict[tuple[ModuleNode, Key], list[Missing]] = {}
        for missing in self._missing:
            asked.setdefault((missing.consumer.viewpoint, missing.parameter.key), []).append(
                missing
            )
        for (node, key), [first, *others] in asked.items():
            path = self._path_to(first.consumer, consumers)
            path[-1] = (first.consumer, first.parameter.name)
            also = dict.fromkeys(
                item.consumer.name for item in others if item.consumer is not first.consumer
            )
            extra = f"also needed by {', '.join(also)}" if also else ""
            in_scope = all(item.consumer.in_scope for item in (first, *others))
            yield self._describe(key, node, first.candidates, path, extra, in_scope=in_scope)

    def _describe(
        self,
        key: Key,
        node: ModuleNode,
        found: Sequence[Binding],
        path: words.Steps,
        extra: str,
        *,
        in_scope: bool = True,
    ) -> Problem:
        hidden = [] if found else self.visibility.anywhere(key)
        verdict = "✗ not bound"
        if found:
            verdict = f"✗ {len(found)} bindings are visible"
        elif hidden:
            verdict = f"✗ not visible to {node.name}"
        lines = [*path_lines(path, key, verdict)] if path else []
        lines += [extra] if extra else []
        if found:
            return words.ambiguous(key, node.name, found, lines)
        if hidden:
            owner = hidden[0].module
            return words.invisible(
                key,
                words.Asker(node, self.visibility.importer(node), in_scope),
                hidden,
                exported=key in self.visibility.exports(owner),
                imported=node is self.visibility.modules.root or owner in node.imports,
                lines=lines,
            )
        asker = words.Asker(node, self.visibility.importer(node))
        return words.unbound_key(key, asker, lines, self.near(key, node))

    def _near(self, binding: Binding, node: ModuleNode) -> str:
        visible = binding in self.visibility.candidates(node, binding.key)
        exported = binding.key in self.visibility.exports(binding.module)
        state = "" if visible else ", not imported" if exported else ", not exported"
        return f"{binding.name} (bound in {binding.module.name}{state})"


def has_teardown(binding: Binding) -> bool:
    """True when building it enters a generator that its scope must leave."""
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
    if binding.type_arguments and origin_of(key) is type:
        return getattr(key, "__args__", (None,))[0]
    return None


def _is_locator(binding: Binding) -> bool:
    """A factory with one bare parameter (``lambda c: ...``) is handed the container."""
    return len(binding.parameters) == 1 and not isinstance(binding.target, type)


@lru_cache(maxsize=1024)
def _methods(protocol: type[Any]) -> tuple[str, ...]:
    """Methods a protocol asks for. Not its attributes: those may be set on the instance."""
    return tuple(
        name
        for base in protocol.__mro__
        if getattr(base, "_is_protocol", False)
        for name, member in vars(base).items()
        if callable(getattr(member, "__func__", member)) and not _is_machinery(name)
    )


def _is_machinery(name: str) -> bool:
    """Names Python itself puts on every protocol class."""
    return name in {"__init__", "__subclasshook__", "__class_getitem__", "__init_subclass__"} or (
        name.startswith("_abc_")
    )


def _has_member(cls: type[Any], name: str) -> bool:
    dynamic = hasattr(cls, "__getattr__") or any(
        name in vars(base).get("__annotations__", {}) for base in cls.__mro__
    )
    return dynamic or hasattr(cls, name)

"""One registration: what provides a key, for how long, owned by which module, and its state.

The registrar records them, each with the line it was written on.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from lexigram.contracts.core.di import ServiceScope
from lexigram.di.errors import RegistrationError
from lexigram.di.markers import Key, origin_of, show
from lexigram.di.signature import Parameter, key_of, key_with_name, type_arguments

if TYPE_CHECKING:
    from lexigram.contracts.core.errors import LexigramError
    from lexigram.di._build import Pending
    from lexigram.di._visibility import Conditions
    from lexigram.di.container import Container
    from lexigram.di.module import ModuleNode
    from lexigram.di.provider import Provider


_OWN_FOLDER = f"{Path(__file__).parent}{os.sep}"
INLINE_CAP = 8  # nodes of one generated function


class Kind(Enum):
    """How the target of a binding turns into a value."""

    VALUE = auto()
    CALL = auto()
    COROUTINE = auto()
    GENERATOR = auto()
    ASYNC_GENERATOR = auto()
    PROMISE = auto()  # bound during boot
    REMOVED = auto()  # taken out of the model; what stands on it cannot be built


class Target(NamedTuple):
    """What a registration builds from."""

    kind: Kind
    target: Any
    # Type variables of a generic target, filled.
    type_arguments: dict[Any, Any]


class Site(NamedTuple):
    """A place in a source file."""

    file: str
    line: int

    def __str__(self) -> str:
        relative = os.path.relpath(self.file)
        return f"{self.file if relative.startswith('..') else relative}:{self.line}"


class Entry(NamedTuple):
    """A function that is called, not resolved: announced, so that the freeze checks it."""

    function: Callable[..., Any]
    given: tuple[str, ...]
    takes_arguments: bool
    role: str | None
    in_scope: bool


class Binding:
    """The record behind one dependency-injector provider.

    What is built, from which edges, and what overrides it is asked of ``provider``; this
    object keeps what that model has no place for: owner, lifetime, and the value once made.
    """

    __slots__ = (
        "chunk",
        "in_scope",
        "is_default",
        "is_open",
        "key",
        "kind",
        "lifetime",
        "located",
        "made",
        "module",
        "needs_await",
        "needs_scope",
        "order",
        "owner",
        "parameters",
        "pending",
        "pinned",
        "position",
        "provider",
        "role",
        "site",
        "size",
        "stash",
        "target",
        "type_arguments",
        "used_in_boot",
        "value",
        "viewpoint",
        "when",
    )

    def __init__(
        self,
        key: Key,
        lifetime: ServiceScope,
        target: Target,
        *,
        module: ModuleNode,
        owner: Provider | None = None,
        site: Site | None = None,
        order: int = 0,
        when: Any = None,
        is_default: bool = False,
        role: str | None = None,
    ) -> None:
        self.key = key
        self.lifetime = lifetime
        self.kind, self.target, self.type_arguments = target
        self.module = module
        # Whose visibility fills the parameters: another module's for what that one decorates.
        self.viewpoint = module
        self.owner = owner
        self.site = site
        self.in_scope = True  # whether a feature of its module could have it
        self.role = role  # of a function that is called, not resolved: "job 'send_mail'"
        self.order = order
        self.when = when
        self.is_default = is_default  # yields to any other binding of its key
        self.parameters: tuple[Parameter, ...] = ()
        # Edges fixed by us rather than found by type: a decorator's inner binding.
        self.pinned: dict[str, Binding] = {}
        # What its factory took from the container by hand; no edge of the model shows it.
        self.located: set[Binding] = set()
        self.provider: Any = None
        self.position = -1  # in topological order, dependencies first
        self.size = 1  # nodes when everything under it is written into one function
        self.chunk = 1  # nodes of its own function, where large parts are functions of their own
        self.is_open = False  # a generic class, built only as Repo[User]
        self.needs_await = False
        self.needs_scope = False
        self.made = self.kind is Kind.VALUE
        self.value: Any = self.target if self.made else None
        self.pending: Pending | None = None
        self.stash: tuple[Any] | None = None  # the real value while an override is active
        self.used_in_boot: str | None = None  # name of the provider that did

    @property
    def name(self) -> str:
        """The key as a person writes it."""
        return show(self.key)

    @property
    def is_singleton(self) -> bool:
        """Shared by the whole container."""
        return self.lifetime is ServiceScope.SINGLETON

    @property
    def is_large(self) -> bool:
        """Written as a function of its own, not into those that need it."""
        return self.chunk > INLINE_CAP

    @property
    def is_resource(self) -> bool:
        """Built by a generator, so it has a teardown."""
        return self.kind is Kind.GENERATOR or self.kind is Kind.ASYNC_GENERATOR

    @property
    def service(self) -> Any:
        """The type without its name; a token is its own service."""
        return self.key[0] if isinstance(self.key, tuple) else self.key

    def replace(self, target: Target, lifetime: ServiceScope) -> None:
        """Stand for something else from now on, under the same key."""
        self.kind, self.target, self.type_arguments = target
        self.lifetime = lifetime
        self.made = self.kind is Kind.VALUE
        self.value = self.target if self.made else None
        self.pinned = {}

    def twin(self) -> Binding:
        """The same registration again, with a state of its own."""
        target = Target(self.kind, self.target, self.type_arguments)
        other = Binding(
            self.key,
            self.lifetime,
            target,
            module=self.module,
            owner=self.owner,
            site=self.site,
            order=self.order,
            is_default=self.is_default,
        )
        other.viewpoint, other.pinned = self.viewpoint, self.pinned
        return other

    def __repr__(self) -> str:
        return f"<Binding {self.name} {self.lifetime.value} of {self.module.name}>"


class Registrar:
    """Records bindings on behalf of one provider of one module."""

    def __init__(self, container: Container, node: ModuleNode, owner: Provider | None) -> None:
        self.container = container
        self.node = node
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
        self._add(
            key_with_name(service, name), ServiceScope.SINGLETON, target_of_value(value), None
        )

    def promise(self, service: Any, *, name: str | None = None) -> None:
        """Announce a value that this provider will ``bind`` during its boot."""
        target = Target(Kind.PROMISE, None, {})
        self._add(key_with_name(service, name), ServiceScope.SINGLETON, target, None)

    def decorate(
        self, service: Any, decorator: Callable[..., Any], *, name: str | None = None
    ) -> None:
        """Wrap what provides ``service``; the decorator takes the inner one by annotation."""
        self.container.add_decorator(self.node, key_with_name(service, name), decorator, _caller())

    def check_entry(
        self,
        func: Callable[..., Any],
        *,
        given: Collection[str] = (),
        arguments: bool = False,
        role: str | None = None,
        in_scope: bool = True,
    ) -> None:
        """Have a function that ``entry`` compiles later checked with the graph at freeze.

        ``given`` are parameters that its caller passes. With ``arguments`` the caller passes
        those too whose types are data that nobody binds. ``role`` is how reports call it, and
        ``in_scope`` whether ``scope()`` of this module takes such functions.
        """
        self.container.add_entry(self.node, Entry(func, tuple(given), arguments, role, in_scope))

    def report(self, error: LexigramError) -> None:
        """Have the freeze report an error of this module with all that is wrong with the graph."""
        self.container.add_error(error)

    def has(self, service: Any, *, name: str | None = None) -> bool:
        """True when this module has registered the key so far."""
        key = key_with_name(service, name)
        return any(item.key == key and item.module is self.node for item in self.container.bindings)

    def _record(
        self,
        service: Any,
        implementation: Any,
        factory: Callable[..., Any] | None,
        lifetime: ServiceScope,
        name: str | None,
        when: Any,
    ) -> None:
        target = describe_target(service, implementation, factory, lifetime)
        self._add(key_with_name(service, name), lifetime, target, when)

    def _add(self, key: Key, lifetime: ServiceScope, target: Target, when: Any) -> None:
        self.container.add(
            Binding(
                key,
                lifetime,
                target,
                module=self.node,
                owner=self._owner,
                site=_caller(),
                order=len(self.container.bindings),
                when=when,
                is_default=when is unbound,
            )
        )


def unbound(conditions: Conditions) -> bool:
    """``when=unbound``: a default that steps back when another provider binds the key.

    It is left out when its module sees another; and where a module sees both it and another
    one that its own module does not see, the other is meant.
    """
    return not conditions.taken()


def describe_target(
    service: Any,
    implementation: Any,
    factory: Callable[..., Any] | None,
    lifetime: ServiceScope,
) -> Target:
    """Turn the arguments of a registrar method into what is built."""
    key = key_of(service)
    asked = key[0] if isinstance(key, tuple) else key
    if factory is not None and implementation is not None:
        raise RegistrationError(
            f"{show(key)} is given both an implementation and a factory",
            hint="pass one of the two",
        )
    target = implementation if factory is None else _generator_behind(factory)
    if target is None:
        target = asked
    origin = origin_of(target)
    if isinstance(origin, type):  # Repo[User] builds its class
        variables = getattr(origin, "__parameters__", ())
        return Target(Kind.CALL, origin, dict(zip(variables, get_args(target), strict=False)))
    if factory is not None or isinstance(target, type | partial) or inspect.isroutine(target):
        return Target(kind_of(target), target, type_arguments(asked, target))
    if implementation is None:
        raise RegistrationError(
            f"{show(key)} says nothing about how it is built",
            hint="pass a class, a factory=, or an instance",
        )
    if lifetime is not ServiceScope.SINGLETON:
        raise RegistrationError(
            f"{show(key)} is {lifetime.value}, but {target!r} is already built",
            hint=f"register it as singleton, or pass a class or factory={type(target).__name__}",
        )
    return target_of_value(target)


def target_of_value(value: Any) -> Target:
    """A value as it is."""
    return Target(Kind.VALUE, value, {})


def target_of_call(target: Callable[..., Any]) -> Target:
    """A function or class to be called."""
    return Target(kind_of(target), target, {})


def kind_of(target: Callable[..., Any]) -> Kind:
    """How calling ``target`` produces the value."""
    if isinstance(target, type):
        return Kind.CALL
    if not inspect.isroutine(target) and not isinstance(target, partial):
        target = target.__call__  # type: ignore[operator]
    # A plain wrapper made with functools.wraps returns what the function inside returns.
    for layer in (target, inspect.unwrap(target)):
        if inspect.isasyncgenfunction(layer):
            return Kind.ASYNC_GENERATOR
        if inspect.isgeneratorfunction(layer):
            return Kind.GENERATOR
        if inspect.iscoroutinefunction(layer):
            return Kind.COROUTINE
    return Kind.CALL


def eager(provider: Any) -> Iterator[Binding]:
    """Bindings that must be built before ``provider``, one edge away; lazy edges are not."""
    for edge in provider.kwargs.values():
        if hasattr(edge, "binding"):
            if not getattr(edge, "deferred", False):
                yield edge.binding
        elif hasattr(edge, "members"):
            for member in edge.members:
                yield member.binding


# What contextlib makes of a generator function.
_MANAGERS = {
    contextmanager(lambda: iter(())).__code__,
    asynccontextmanager(lambda: iter(())).__code__,  # type: ignore[arg-type,return-value]
}


def _generator_behind(factory: Callable[..., Any]) -> Callable[..., Any]:
    """A context manager function is the generator it was made from: we enter and leave it."""
    if inspect.isfunction(factory) and factory.__code__ in _MANAGERS:
        behind: Callable[..., Any] = inspect.unwrap(factory)
        return behind
    return factory


def _caller() -> Site:
    """File and line of the registration: the first frame outside this package."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith(_OWN_FOLDER) and frame.f_back is not None:
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)

"""One registration: what provides a key, for how long, owned by which module, and its state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from lexigram.contracts.core.di import ServiceScope
from lexigram.di.errors import RegistrationError
from lexigram.di.markers import Key, origin_of, show
from lexigram.di.signature import Parameter, key_of, type_arguments

if TYPE_CHECKING:
    from lexigram.di.build import Pending
    from lexigram.di.module import ModuleNode
    from lexigram.di.problems import Site
    from lexigram.di.provider import Provider


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


class Binding:
    """The record behind one dependency-injector provider.

    What is built, from which edges, and what overrides it is asked of ``provider``; this
    object keeps what that model has no place for: owner, lifetime, and the value once made.
    """

    __slots__ = (
        "chunk",
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
    ) -> None:
        self.key = key
        self.lifetime = lifetime
        self.kind, self.target, self.type_arguments = target
        self.module = module
        # Whose visibility fills the parameters: another module's for what that one decorates.
        self.viewpoint = module
        self.owner = owner
        self.site = site
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
    return given(target)


def given(value: Any) -> Target:
    """A value as it is."""
    return Target(Kind.VALUE, value, {})


def called(target: Callable[..., Any]) -> Target:
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

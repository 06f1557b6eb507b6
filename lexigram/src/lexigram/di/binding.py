"""One registration: what provides a key, for how long, owned by which module, and its state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from lexigram.contracts.core.di import ServiceScope
from lexigram.di.errors import RegistrationError
from lexigram.di.markers import Key, show
from lexigram.di.signature import Parameter

if TYPE_CHECKING:
    import anyio

    from lexigram.di.problems import Site
    from lexigram.di.module import ModuleNode
    from lexigram.di.provider import Provider


class Kind(Enum):
    """How the target of a binding turns into a value."""

    VALUE = auto()
    CALL = auto()
    COROUTINE = auto()
    GENERATOR = auto()
    ASYNC_GENERATOR = auto()
    PROMISE = auto()  # bound during boot


class Binding:
    """The record behind one dependency-injector provider.

    What is built, from which edges, and what overrides it is asked of ``provider``; this
    object keeps what that model has no place for: owner, lifetime, and the value once made.
    """

    __slots__ = (
        "key",
        "kind",
        "lifetime",
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
        "when",
    )

    def __init__(
        self,
        key: Key,
        lifetime: ServiceScope,
        kind: Kind,
        target: Any,
        *,
        module: ModuleNode,
        owner: Provider | None,
        site: Site | None,
        order: int,
        when: Any = None,
    ) -> None:
        self.key = key
        self.lifetime = lifetime
        self.kind = kind
        self.target = target
        self.module = module
        self.owner = owner
        self.site = site
        self.order = order
        self.when = when
        self.parameters: tuple[Parameter, ...] = ()
        # Edges fixed by us rather than found by type: a decorator's inner binding.
        self.pinned: dict[str, Binding] = {}
        self.type_arguments: dict[Any, Any] = {}
        self.provider: Any = None
        self.position = -1  # in topological order, dependencies first
        self.size = 1  # nodes an inlined function would have
        self.needs_await = False
        self.needs_scope = False
        self.made = kind is Kind.VALUE
        self.value: Any = target if kind is Kind.VALUE else None
        self.pending: anyio.Event | None = None
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
    def is_resource(self) -> bool:
        """Built by a generator, so it has a teardown."""
        return self.kind is Kind.GENERATOR or self.kind is Kind.ASYNC_GENERATOR

    @property
    def service(self) -> Any:
        """The type without its name; a token is its own service."""
        return self.key[0] if isinstance(self.key, tuple) else self.key

    def __repr__(self) -> str:
        return f"<Binding {self.name} {self.lifetime.value} of {self.module.name}>"


def describe_target(
    service: Any,
    implementation: Any,
    factory: Callable[..., Any] | None,
    lifetime: ServiceScope,
) -> tuple[Kind, Any]:
    """Turn the arguments of a registrar method into a kind and a target."""
    if factory is not None:
        if implementation is not None:
            raise RegistrationError(
                f"{show(service)} is given both an implementation and a factory",
                hint="pass one of the two",
            )
        return kind_of(factory), factory
    target = service if implementation is None else implementation
    if isinstance(target, type) or inspect.isroutine(target):
        return kind_of(target), target
    if implementation is None:
        # A generic alias such as Repo[User] builds its class.
        origin = getattr(service, "__origin__", None)
        if isinstance(origin, type):
            return Kind.CALL, origin
        raise RegistrationError(
            f"{show(service)} says nothing about how it is built",
            hint="pass a class, a factory=, or an instance",
        )
    if lifetime is not ServiceScope.SINGLETON:
        raise RegistrationError(
            f"{show(service)} is {lifetime.value}, but {target!r} is already built",
            hint=f"register it as singleton, or pass a class or factory={type(target).__name__}",
        )
    return Kind.VALUE, target


def kind_of(target: Callable[..., Any]) -> Kind:
    """How calling ``target`` produces the value."""
    if isinstance(target, type):
        return Kind.CALL
    if inspect.isasyncgenfunction(target):
        return Kind.ASYNC_GENERATOR
    if inspect.isgeneratorfunction(target):
        return Kind.GENERATOR
    return Kind.COROUTINE if inspect.iscoroutinefunction(target) else Kind.CALL


def eager(provider: Any) -> Iterator[Binding]:
    """Bindings that must be built before ``provider``, one edge away; lazy edges are not."""
    for edge in provider.kwargs.values():
        if hasattr(edge, "binding"):
            if not getattr(edge, "deferred", False):
                yield edge.binding
        elif hasattr(edge, "members"):
            for member in edge.members:
                yield member.binding

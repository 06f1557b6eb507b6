"""Record bindings on behalf of a module and its provider, with the line they were written on."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexigram.contracts.core.di import ServiceScope
from lexigram.di.binding import Binding, Kind, Target, describe_target, given
from lexigram.di.markers import Key
from lexigram.di.problems import Site
from lexigram.di.signature import key_of
from lexigram.di.visibility import Visibility

if TYPE_CHECKING:
    from lexigram.di.container import Container
    from lexigram.di.module import ModuleGraph, ModuleNode
    from lexigram.di.provider import Provider

_OWN_FOLDER = f"{Path(__file__).parent}{os.sep}"


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
        self._add(named(service, name), ServiceScope.SINGLETON, given(value), None)

    def promise(self, service: Any, *, name: str | None = None) -> None:
        """Announce a value that this provider will ``bind`` during its boot."""
        target = Target(Kind.PROMISE, None, {})
        self._add(named(service, name), ServiceScope.SINGLETON, target, None)

    def decorate(
        self, service: Any, decorator: Callable[..., Any], *, name: str | None = None
    ) -> None:
        """Wrap what provides ``service``; the decorator takes the inner one by annotation."""
        self.container.add_decorator(self.node, named(service, name), decorator, _caller())

    def has(self, service: Any, *, name: str | None = None) -> bool:
        """True when this module has registered the key so far."""
        key = named(service, name)
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
        self._add(named(service, name), lifetime, target, when)

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


class Conditions:
    """What a ``when=`` callable may ask, at freeze."""

    def __init__(self, config: Any, binding: Binding, visibility: Visibility) -> None:
        self._binding = binding
        self._visibility = visibility
        self.config = config

    def has(self, service: Any, *, name: str | None = None) -> bool:
        """True when the binding's module sees another binding of the service."""
        return self._sees(named(service, name))

    def taken(self) -> bool:
        """True when the very key of the binding is provided by another."""
        return self._sees(self._binding.key)

    def _sees(self, key: Key) -> bool:
        return self._visibility.provides(self._binding.module, key)


def unbound(conditions: Conditions) -> bool:
    """``when=unbound``: a default that steps back when somebody else binds the key.

    It is left out when its module sees another; and where a module sees both it and another
    one that its own module does not see, the other is meant.
    """
    return not conditions.taken()


def sift(
    bindings: Iterable[Binding], modules: ModuleGraph, config: Any
) -> tuple[list[Binding], list[Binding]]:
    """Bindings whose ``when`` holds, and the rest.

    Unconditional ones count first, so that every condition sees them; conditional ones follow
    in the order of registration, each seeing those that held before it.
    """
    listed = list(bindings)
    visibility = Visibility(modules, [item for item in listed if item.when is None])
    left_out = set[Binding]()
    for item in listed:
        if item.when is None:
            continue
        if _holds(item, Conditions(config, item, visibility)):
            visibility.add(item)
        else:
            left_out.add(item)
    kept = [item for item in listed if item not in left_out]
    return kept, [item for item in listed if item in left_out]


def named(service: Any, name: str | None) -> Key:
    """The key of a service, with or without a name."""
    key = key_of(service)
    return key if name is None else (key, name)


def _holds(binding: Binding, conditions: Conditions) -> bool:
    when = binding.when
    if not callable(when):
        return bool(when)
    try:
        return bool(when(conditions) if inspect.signature(when).parameters else when())
    except Exception as error:
        error.add_note(f"raised by when= of {binding.name}, registered at {binding.site}")
        raise


def _caller() -> Site:
    """File and line of the registration: the first frame outside this package."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith(_OWN_FOLDER) and frame.f_back is not None:
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)

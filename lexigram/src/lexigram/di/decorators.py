"""Class decorators that let a class be injected without being registered anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from lexigram.contracts.core.di import ServiceScope

C = TypeVar("C", bound=type)

_MARK = "__lexigram_lifetime__"


def singleton(cls: C) -> C:
    """Mark a class: unbound, it is shared by the whole application."""
    return _mark(cls, ServiceScope.SINGLETON)


def scoped(cls: C) -> C:
    """Mark a class: unbound, there is one per scope."""
    return _mark(cls, ServiceScope.SCOPED)


def transient(cls: C) -> C:
    """Mark a class: unbound, a new one is built each time."""
    return _mark(cls, ServiceScope.TRANSIENT)


@overload
def injectable(cls: C) -> C: ...
@overload
def injectable(*, lifetime: ServiceScope | str = ...) -> Callable[[C], C]: ...
def injectable(
    cls: C | None = None, *, lifetime: ServiceScope | str = ServiceScope.TRANSIENT
) -> C | Callable[[C], C]:
    """Mark a class as injectable; transient unless ``lifetime`` says otherwise."""
    chosen = ServiceScope(lifetime)
    return _mark(cls, chosen) if cls is not None else lambda target: _mark(target, chosen)


inject = injectable  # the name older code uses


def marked_lifetime(cls: object) -> ServiceScope | None:
    """The lifetime a class was marked with; marks are not inherited."""
    mark = vars(cls).get(_MARK) if isinstance(cls, type) else None
    return mark if isinstance(mark, ServiceScope) else None


def _mark(cls: C, lifetime: ServiceScope) -> C:
    setattr(cls, _MARK, lifetime)
    return cls

"""dependency-injector's providers as our binding model; imported with the first container."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lexigram.contracts.core.di import ServiceScope

if TYPE_CHECKING:
    from lexigram.di.binding import Binding
    from lexigram.di.container import Container


# dependency-injector imports them where they are installed, for settings that are not used here.
_UNUSED = frozenset({"pydantic", "pydantic_settings", "yaml"})


class _WithoutUnused:
    """Hides libraries from the imports of one thread; a finder of ``sys.meta_path``."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        if fullname in _UNUSED and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)


@contextmanager
def _without_unused() -> Iterator[None]:
    """Pydantic is 30 to 700 ms of every first start, yaml a tenth. What is imported already stays."""
    finder = _WithoutUnused()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _without_unused():
    from dependency_injector import providers


class _Bound:
    """Ties a provider to its binding, and tells the container when it is overridden."""

    binding: Binding
    container: Container

    def _provide(self, args: Any, kwargs: Any) -> Any:
        # The container owns the value, so calling the provider never makes a second one.
        return self.container.supply(self.binding)

    def override(self, provider: Any) -> Any:
        self.container.permit_override(self.binding)
        super().override(provider)  # type: ignore[misc]
        self.container.model_changed()
        return Overriding(self, self._overridden()[-1])

    def withdraw(self, overriding: Any) -> None:
        """Take one override back, be it the last one or not."""
        kept = [provider for provider in self._overridden() if provider is not overriding]
        super().reset_override()  # type: ignore[misc]
        for provider in kept:
            super().override(provider)  # type: ignore[misc]
        self.container.model_changed()

    def _overridden(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = super().overridden  # type: ignore[misc]
        return found

    def reset_last_overriding(self) -> None:
        super().reset_last_overriding()  # type: ignore[misc]
        self.container.model_changed()

    def reset_override(self) -> None:
        super().reset_override()  # type: ignore[misc]
        self.container.model_changed()


class Overriding:
    """What ``provider.override()`` returns: ends its own override, in whichever order."""

    def __init__(self, provider: _Bound, overriding: Any) -> None:
        self._provider = provider
        self._overriding = overriding

    def __enter__(self) -> Any:
        return self._overriding

    def __exit__(self, *_: object) -> None:
        self._provider.withdraw(self._overriding)


class SingletonBinding(_Bound, providers.Singleton[Any]):
    """One value per container."""


class TransientBinding(_Bound, providers.Factory[Any]):
    """A new value each time."""


class ScopedBinding(_Bound, providers.Factory[Any]):
    """One value per scope; the scope keeps it."""


class ValueBinding(_Bound, providers.Object[Any]):
    """A value given by the user."""

    kwargs: dict[str, Any] = {}  # noqa: RUF012 - shared and never written: a value has no edges


class Collection(providers.List):
    """Everything bound to a type, in declared order."""

    def __init__(self, *members: Any) -> None:
        super().__init__(*members)
        self.members = members


class Deferred(providers.Delegate):
    """A Factory, AsyncFactory or Lazy over another binding: an edge that builds later."""

    deferred = True

    def __init__(self, target: Any, wish: Any) -> None:
        super().__init__(target)
        self.binding = target.binding
        self.wish = wish


class CurrentScope(providers.Object[Any]):
    """The scope something is built in."""

    is_scope = True


Constant = providers.Object

_BY_LIFETIME: dict[ServiceScope, Any] = {
    ServiceScope.SINGLETON: SingletonBinding,
    ServiceScope.SCOPED: ScopedBinding,
    ServiceScope.TRANSIENT: TransientBinding,
}


def provider_for(binding: Binding, container: Container, *, is_value: bool) -> Any:
    """A provider object for a binding, with no edges yet."""
    kind = ValueBinding if is_value else _BY_LIFETIME[binding.lifetime]
    provider = kind(binding.target)
    provider.binding = binding
    provider.container = container
    return provider

"""dependency-injector's providers as our binding model; imported with the first container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from lexigram.contracts.core.di import ServiceScope

if TYPE_CHECKING:
    from collections.abc import Callable

    from lexigram.di.binding import Binding


class _Bound:
    """Ties a provider to its binding, and tells the container when it is overridden."""

    binding: Binding
    notify: Callable[[Binding], None]
    permit: Callable[[Binding], None]
    supply: Callable[[Binding], Any]

    def _provide(self, args: Any, kwargs: Any) -> Any:
        # The container owns the value, so calling the provider never makes a second one.
        return self.supply(self.binding)

    def override(self, provider: Any) -> Any:
        self.permit(self.binding)
        context = super().override(provider)  # type: ignore[misc]
        self.notify(self.binding)
        return context

    def reset_last_overriding(self) -> None:
        super().reset_last_overriding()  # type: ignore[misc]
        self.notify(self.binding)

    def reset_override(self) -> None:
        super().reset_override()  # type: ignore[misc]
        self.notify(self.binding)


class SingletonBinding(_Bound, providers.Singleton):  # type: ignore[misc]
    """One value per container."""


class TransientBinding(_Bound, providers.Factory):  # type: ignore[misc]
    """A new value each time."""


class ScopedBinding(_Bound, providers.Factory):  # type: ignore[misc]
    """One value per scope; the scope keeps it."""


class ValueBinding(_Bound, providers.Object):  # type: ignore[misc]
    """A value given by the user."""

    kwargs: dict[str, Any] = {}  # noqa: RUF012 - shared and never written: a value has no edges


class Collection(providers.List):  # type: ignore[misc]
    """Everything bound to a type, in declared order."""

    def __init__(self, *members: Any) -> None:
        super().__init__(*members)
        self.members = members


class Deferred(providers.Delegate):  # type: ignore[misc]
    """A Factory, AsyncFactory or Lazy over another binding: an edge that builds later."""

    deferred = True

    def __init__(self, target: Any, wish: Any) -> None:
        super().__init__(target)
        self.binding = target.binding
        self.wish = wish


class CurrentScope(providers.Object):  # type: ignore[misc]
    """The scope something is built in."""


Constant = providers.Object

_BY_LIFETIME = {
    ServiceScope.SINGLETON: SingletonBinding,
    ServiceScope.SCOPED: ScopedBinding,
    ServiceScope.TRANSIENT: TransientBinding,
}


def provider_for(binding: Binding, *, is_value: bool) -> Any:
    """A provider object for a binding, with no edges yet."""
    kind = ValueBinding if is_value else _BY_LIFETIME[binding.lifetime]
    provider = kind(binding.target)
    provider.binding = binding
    return provider

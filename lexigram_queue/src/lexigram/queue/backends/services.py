"""What a driver may take from the application, such as its database."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lexigram.contracts.core.di import ContainerResolverProtocol
from lexigram.contracts.core.errors import ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")


class Services:
    """The container, once the provider boots: drivers are made before, and ask in ``connect``."""

    def __init__(self, container: ContainerResolverProtocol | None = None) -> None:
        self._container = container

    def open(self, container: ContainerResolverProtocol) -> None:
        """From now on the services of the application can be asked for."""
        self._container = container

    async def require(self, service: TypeForm[T], *, fix: str) -> T:
        """The service; without it, an error that says how to get it."""
        found = await self.find(service)
        if found is None:
            raise ConfigurationError(
                f"the bus needs {getattr(service, '__name__', service)}, and nothing provides it",
                hint=fix,
            )
        return found

    async def find(self, service: TypeForm[T]) -> T | None:
        """The service, or None where the application has none."""
        return None if self._container is None else await self._container.resolve_optional(service)

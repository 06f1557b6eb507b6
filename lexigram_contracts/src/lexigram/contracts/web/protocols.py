"""How a package adds routes to the web host without importing a web framework here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.core.di import ContainerResolverProtocol


@runtime_checkable
class RouteContributorProtocol(Protocol):
    """Named by an entry point, made without arguments, asked once when the host starts.

    A contributor that raises is reported and left out; it never stops the host.
    """

    @property
    def contributor_id(self) -> str:
        """Unique among contributors; of two with one id the second is left out."""
        ...

    def get_routers(self, container: ContainerResolverProtocol) -> Sequence[Any]:
        """FastAPI routers, mounted in this order, each bringing its own prefix and tags.

        The container is booted. A path that another contributor already took is refused,
        naming both.
        """
        ...

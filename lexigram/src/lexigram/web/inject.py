"""Services of the container in endpoints: ``service: Annotated[Service, Inject()]``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from lexigram.di import Named
from lexigram.observability.errors import MissingLibraryError
from lexigram.web.auth import Caller
from lexigram.web.errors import WebInjectionError

try:
    from fastapi.params import Depends
    from starlette.requests import HTTPConnection
except ImportError as error:
    raise MissingLibraryError("the web host", "web") from error

# Where the gate leaves the scope of the container for what runs inside it.
SCOPE_KEY: Final = "lexigram.scope"
# What a resolving function is known by.
SERVICE: Final = "__lexigram_service__"


@dataclass(frozen=True, init=False)
class Inject(Depends):
    """Marks a parameter of an endpoint or dependency that the container fills.

    ``Annotated[Service, Inject()]`` gives what the type says, also ``Service | None`` and
    ``list[Service]``; ``Inject("backup")`` gives the binding of that name. Scoped services are
    one for the whole request and are torn down after the response.
    """

    # A field, as the rest: FastAPI copies the mark field by field, with the type it stands at.
    name: str | None = None

    def __init__(
        self,
        name: str | None = None,
        *,
        dependency: Callable[..., Any] | None = None,
        use_cache: bool = True,
        scope: Literal["function", "request"] | None = None,
    ) -> None:
        found = None if dependency is None else _resolving(dependency, name)
        super().__init__(dependency=found, use_cache=use_cache, scope=scope)
        object.__setattr__(self, "name", name)


def current_caller(connection: HTTPConnection) -> Caller | None:
    """Who sent the request; None where nobody has to say so. Use it with ``Depends``."""
    caller: Caller | None = getattr(connection.state, "caller", None)
    return caller


def _resolving(service: Any, name: str | None) -> Callable[..., Awaitable[Any]]:
    if hasattr(service, SERVICE):
        return service  # type: ignore[no-any-return]  # a copy of a copy
    key: Any = service if name is None else Annotated[service, Named(name)]
    try:
        return _known.setdefault(key, _make(key))
    except TypeError:  # an annotation that cannot be hashed
        return _make(key)


# One function per service: FastAPI calls a dependency once per request, known by its function.
_known: dict[Any, Callable[..., Awaitable[Any]]] = {}


def _make(key: Any) -> Callable[..., Awaitable[Any]]:
    async def resolve(connection: HTTPConnection) -> Any:
        scope = connection.scope.get(SCOPE_KEY)
        if scope is None:
            raise WebInjectionError(
                f"{key} was asked for outside a request of the host",
                hint="give the router to WebModule.configure(routers=[...])",
            )
        return await scope.resolve(key)

    setattr(resolve, SERVICE, key)
    return resolve

"""What providers, handlers and libraries may ask of a container.

``ContainerRegistrarProtocol`` is given to ``Provider.register``; ``BootContainerProtocol``
to ``Provider.boot``; ``ContainerResolverProtocol`` may be injected anywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload, runtime_checkable

from lexigram.contracts.core.errors import LexigramError

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")


class ServiceScope(StrEnum):
    """How long one built object is shared."""

    SINGLETON = "singleton"
    SCOPED = "scoped"
    TRANSIENT = "transient"


@runtime_checkable
class ContainerRegistrarProtocol(Protocol):
    """Records bindings for one module. Nothing is built while registering.

    A key is a type, a generic alias, ``(type, name)`` through ``name=``, or a string token.
    Registering the same key twice is allowed (``list[T]`` collects both, in this order); a
    consumer that asks for one and could see two is refused when the container freezes.
    ``when`` is a bool or a callable evaluated once at freeze; False leaves the binding out.
    """

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

    def scoped(
        self,
        service: Any,
        implementation: Any = None,
        *,
        name: str | None = None,
        factory: Callable[..., Any] | None = None,
        when: Any = None,
    ) -> None:
        """Bind one object per scope: a class or a factory (an instance is refused)."""

    def transient(
        self,
        service: Any,
        implementation: Any = None,
        *,
        name: str | None = None,
        factory: Callable[..., Any] | None = None,
        when: Any = None,
    ) -> None:
        """Bind a new object per request: a class or a factory (an instance is refused)."""

    def bind(self, service: Any, value: Any, *, name: str | None = None) -> None:
        """Bind a value as it is, even if it is a class or a function."""

    def decorate(
        self, service: Any, decorator: Callable[..., Any], *, name: str | None = None
    ) -> None:
        """Wrap what provides ``service``; the decorator takes the inner one by annotation."""

    def promise(self, service: Any, *, name: str | None = None) -> None:
        """Announce a value that this provider will ``bind`` during its boot."""

    def check_entry(
        self,
        func: Callable[..., Any],
        *,
        given: Collection[str] = (),
        arguments: bool = False,
        role: str | None = None,
        in_scope: bool = True,
    ) -> None:
        """Have a function that is called later checked with the graph: a handler, a callback.

        ``given`` are parameters that its caller passes. With ``arguments`` the caller passes
        those too whose types are data that nobody binds. ``role`` is how reports call it, and
        ``in_scope`` whether ``scope()`` of this module takes such functions.
        """

    def report(self, error: LexigramError) -> None:
        """Have the freeze report an error of this module with all that is wrong with the graph."""

    def has(self, service: Any, *, name: str | None = None) -> bool:
        """True when this module has registered the key so far."""
        ...


@runtime_checkable
class ContainerResolverProtocol(Protocol):
    """Builds and hands out what one module can see."""

    @overload
    def get(self, service: TypeForm[T], /) -> T: ...
    @overload
    def get(self, service: str, /) -> Any: ...
    def get(self, service: Any, /) -> Any:
        """The service, synchronously. Raises when building it needs ``await`` or a scope."""
        ...

    @overload
    def resolve(self, service: TypeForm[T], /) -> Awaitable[T]: ...
    @overload
    def resolve(self, service: str, /) -> Awaitable[Any]: ...
    def resolve(self, service: Any, /) -> Awaitable[Any]:
        """The service, built with ``await`` where needed. Concurrent calls share one singleton."""
        ...

    @overload
    async def resolve_optional(self, service: TypeForm[T], /) -> T | None: ...
    @overload
    async def resolve_optional(self, service: str, /) -> Any | None: ...
    async def resolve_optional(self, service: Any, /) -> Any | None:
        """Like ``resolve``, but None when nothing visible provides it."""
        ...

    async def resolve_all(self, service: TypeForm[T], /) -> list[T]:
        """Everything visible under the type: named, unnamed and subclasses, in declared order."""
        ...

    async def call(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``func``, filling the parameters that were not given."""
        ...

    def entry(self, func: Callable[..., Any], /) -> Callable[..., Any]:
        """Compile ``func`` into a callable that opens a scope, injects, calls and tears down."""
        ...

    def scope(self) -> AbstractAsyncContextManager[ScopeProtocol]:
        """A new scope; leaving it tears down what it built, in reverse."""
        ...


@runtime_checkable
class ScopeProtocol(Protocol):
    """One unit of work (a request, a message, a job): scoped services live as long as it does."""

    @overload
    def get(self, service: TypeForm[T], /) -> T: ...
    @overload
    def get(self, service: str, /) -> Any: ...
    def get(self, service: Any, /) -> Any:
        """The service inside this scope, synchronously."""
        ...

    @overload
    def resolve(self, service: TypeForm[T], /) -> Awaitable[T]: ...
    @overload
    def resolve(self, service: str, /) -> Awaitable[Any]: ...
    def resolve(self, service: Any, /) -> Awaitable[Any]:
        """The service inside this scope. Tasks racing for one scoped service get one instance."""
        ...


@runtime_checkable
class BootContainerProtocol(ContainerResolverProtocol, Protocol):
    """The container as ``Provider.boot`` sees it: resolves, and binds what was promised."""

    def bind(self, service: Any, value: Any, *, name: str | None = None) -> None:
        """Fulfil a promise made in ``register``. Raises for a key that was not promised."""

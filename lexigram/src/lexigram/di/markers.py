"""Annotations that say how a parameter is filled: by name, lazily, many times, or at run time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    TypeAlias,
    TypeVar,
    Union,
    final,
    get_args,
    get_origin,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# A type, a generic alias, (type, name), or a string token. Not Hashable: a type is, but
# type checkers see the ``__hash__`` of its instances.
Key: TypeAlias = Any


@final
class Named:
    """``Annotated[Greeter, Named("backup")]`` asks for the binding registered with that name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash((Named, self.name))

    def __repr__(self) -> str:
        return f"Named({self.name!r})"


@final
class Inject:
    """``Annotated[type[Worker], Inject("TaskWorkerClass")]`` asks for a string token."""

    __slots__ = ("token",)

    def __init__(self, token: str) -> None:
        self.token = token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Inject) and other.token == self.token

    def __hash__(self) -> int:
        return hash((Inject, self.token))

    def __repr__(self) -> str:
        return f"Inject({self.token!r})"


class _RuntimeArgument:
    """The metadata behind ``Arg[T]``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Arg"


RUNTIME_ARGUMENT: Final = _RuntimeArgument()

# ``who: Arg[str]``: given by the caller (Factory, call, entry), never injected.
Arg: TypeAlias = Annotated[T, RUNTIME_ARGUMENT]


class Factory(Generic[T_co]):
    """Builds a new ``T`` on each call; keyword arguments fill its ``Arg`` parameters.

    Held by a scoped service it builds inside that scope, which also tears down what it made.
    """

    __slots__ = ("_build",)

    def __init__(self, build: Callable[..., T_co]) -> None:
        self._build = build

    def __call__(self, **arguments: Any) -> T_co:
        return self._build(**arguments)


class AsyncFactory(Generic[T_co]):
    """Like Factory for a ``T`` whose building needs ``await``."""

    __slots__ = ("_build",)

    def __init__(self, build: Callable[..., Coroutine[Any, Any, T_co]]) -> None:
        self._build = build

    def __call__(self, **arguments: Any) -> Coroutine[Any, Any, T_co]:
        return self._build(**arguments)


class Lazy(Generic[T_co]):
    """Resolves ``T`` when called, not when injected; breaks a cycle between two services."""

    __slots__ = ("_resolve",)

    def __init__(self, resolve: Callable[[], T_co]) -> None:
        self._resolve = resolve

    def __call__(self) -> T_co:
        return self._resolve()


def origin_of(form: object) -> Any:
    """``typing.get_origin``, as a type checker can use it on what may be anything."""
    return get_origin(form)


def show(key: Key) -> str:
    """A key as a person writes it: ``Repo[User]``, ``Greeter "backup"``, ``"token"``."""
    if isinstance(key, tuple):
        service, name = key
        return f'{show(service)} "{name}"'
    if isinstance(key, str):
        return f'"{key}"'
    if key is type(None):
        return "None"
    origin = origin_of(key)
    if origin is Union or origin is UnionType:
        return " | ".join(show(member) for member in get_args(key))
    if origin is Annotated:
        return f"Annotated[{show(get_args(key)[0])}, ...]"
    if origin is not None:
        return f"{show(origin)}[{', '.join(show(argument) for argument in get_args(key))}]"
    return getattr(key, "__name__", None) or repr(key)

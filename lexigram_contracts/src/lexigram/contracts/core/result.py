"""A value or an error, returned instead of raised, with pattern matching.

``match result: case Ok(value): ... case Err(error): ...``
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Never, TypeAlias, TypeVar, final

from lexigram.contracts.core.errors import LexigramError

T_co = TypeVar("T_co", covariant=True)
E_co = TypeVar("E_co", covariant=True)
U = TypeVar("U")
F = TypeVar("F")


class UnwrapError(LexigramError, ValueError):
    """``unwrap`` was called on an Err, or ``unwrap_err`` on an Ok."""

    code = "LEX_ERR_RESULT_002"


@final
class Ok(Generic[T_co]):
    """The success side of a Result."""

    __slots__ = ("_value",)
    __match_args__ = ("value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    @property
    def value(self) -> T_co:
        """The value carried."""
        return self._value

    def is_ok(self) -> bool:
        """Always True."""
        return True

    def is_err(self) -> bool:
        """Always False."""
        return False

    def unwrap(self) -> T_co:
        """The value."""
        return self._value

    def unwrap_err(self) -> Never:
        """Raises UnwrapError: there is no error to take out."""
        raise UnwrapError(f"unwrap_err() on Ok({self._value!r})")

    def expect(self, message: str) -> T_co:
        """The value; ``message`` is only used by Err."""
        return self._value

    def unwrap_or(self, default: object) -> T_co:
        """The value."""
        return self._value

    def unwrap_or_else(self, fallback: Callable[[Any], object]) -> T_co:
        """The value; ``fallback`` is not called."""
        return self._value

    def map_sync(self, func: Callable[[T_co], U]) -> Ok[U]:
        """Ok of ``func(value)``."""
        return Ok(func(self._value))

    def and_then_sync(self, func: Callable[[T_co], Result[U, F]]) -> Result[U, F]:
        """What ``func(value)`` returns."""
        return func(self._value)

    def or_else_sync(self, func: Callable[[Any], object]) -> Ok[T_co]:
        """This Ok; ``func`` is not called."""
        return self

    def map_err(self, func: Callable[[Any], object]) -> Ok[T_co]:
        """This Ok; ``func`` is not called."""
        return self

    async def map(self, func: Callable[[T_co], Awaitable[U]]) -> Ok[U]:
        """Ok of ``await func(value)``."""
        return Ok(await func(self._value))

    async def and_then(self, func: Callable[[T_co], Awaitable[Result[U, F]]]) -> Result[U, F]:
        """What ``await func(value)`` returns."""
        return await func(self._value)

    async def or_else(self, func: Callable[[Any], Awaitable[object]]) -> Ok[T_co]:
        """This Ok; ``func`` is not called."""
        return self

    def match(self, *, ok: Callable[[T_co], U], err: Callable[[Any], object]) -> U:
        """What ``ok(value)`` returns; ``err`` is not called."""
        return ok(self._value)

    def flatten(self: Ok[Result[U, F]]) -> Result[U, F]:
        """The Result inside; the value must be one."""
        return self._value

    def filter(self, predicate: Callable[[T_co], bool], error: F) -> Result[T_co, F]:
        """This Ok where ``predicate(value)`` holds, else Err of ``error``."""
        return self if predicate(self._value) else Err(error)

    def inspect(self, func: Callable[[T_co], object]) -> Ok[T_co]:
        """Call ``func(value)`` for its effect and return this Ok."""
        func(self._value)
        return self

    def inspect_err(self, func: Callable[[Any], object]) -> Ok[T_co]:
        """This Ok; ``func`` is not called."""
        return self

    def to_optional(self) -> T_co | None:
        """The value."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ok) and bool(other._value == self._value)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - any Ok compares

    def __hash__(self) -> int:
        return hash((Ok, self._value))

    def __repr__(self) -> str:
        return f"Ok({self._value!r})"


@final
class Err(Generic[E_co]):
    """The failure side of a Result."""

    __slots__ = ("_error",)
    __match_args__ = ("error",)

    def __init__(self, error: E_co) -> None:
        self._error = error

    @property
    def error(self) -> E_co:
        """The error carried."""
        return self._error

    def is_ok(self) -> bool:
        """Always False."""
        return False

    def is_err(self) -> bool:
        """Always True."""
        return True

    def unwrap(self) -> Never:
        """Raises UnwrapError with the error in the text, from it when it is an exception."""
        self.expect("unwrap() on Err")

    def unwrap_err(self) -> E_co:
        """The error."""
        return self._error

    def expect(self, message: str) -> Never:
        """Raises UnwrapError with ``message``, from the carried error when it is an exception."""
        cause = self._error if isinstance(self._error, BaseException) else None
        raise UnwrapError(f"{message}: {self._error!r}") from cause

    def unwrap_or(self, default: U) -> U:
        """The default."""
        return default

    def unwrap_or_else(self, fallback: Callable[[E_co], U]) -> U:
        """What ``fallback(error)`` returns."""
        return fallback(self._error)

    def map_sync(self, func: Callable[[Any], object]) -> Err[E_co]:
        """This Err; ``func`` is not called."""
        return self

    def and_then_sync(self, func: Callable[[Any], object]) -> Err[E_co]:
        """This Err; ``func`` is not called."""
        return self

    def or_else_sync(self, func: Callable[[E_co], Result[U, F]]) -> Result[U, F]:
        """What ``func(error)`` returns."""
        return func(self._error)

    def map_err(self, func: Callable[[E_co], F]) -> Err[F]:
        """Err of ``func(error)``."""
        return Err(func(self._error))

    async def map(self, func: Callable[[Any], Awaitable[object]]) -> Err[E_co]:
        """This Err; ``func`` is not called."""
        return self

    async def and_then(self, func: Callable[[Any], Awaitable[object]]) -> Err[E_co]:
        """This Err; ``func`` is not called."""
        return self

    async def or_else(self, func: Callable[[E_co], Awaitable[Result[U, F]]]) -> Result[U, F]:
        """What ``await func(error)`` returns."""
        return await func(self._error)

    def match(self, *, ok: Callable[[Any], object], err: Callable[[E_co], U]) -> U:
        """What ``err(error)`` returns; ``ok`` is not called."""
        return err(self._error)

    def flatten(self) -> Err[E_co]:
        """This Err."""
        return self

    def filter(self, predicate: Callable[[Any], bool], error: object) -> Err[E_co]:
        """This Err; ``predicate`` is not called."""
        return self

    def inspect(self, func: Callable[[Any], object]) -> Err[E_co]:
        """This Err; ``func`` is not called."""
        return self

    def inspect_err(self, func: Callable[[E_co], object]) -> Err[E_co]:
        """Call ``func(error)`` for its effect and return this Err."""
        func(self._error)
        return self

    def to_optional(self) -> None:
        """None."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Err) and bool(other._error == self._error)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - any Err compares

    def __hash__(self) -> int:
        return hash((Err, self._error))

    def __repr__(self) -> str:
        return f"Err({self._error!r})"


Result: TypeAlias = Ok[T_co] | Err[E_co]

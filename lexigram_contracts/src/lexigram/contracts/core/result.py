"""A value or an error, returned instead of raised, with pattern matching.

``match result: case Ok(value): ... case Err(error): ...``
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Never, TypeAlias, TypeVar, final

from lexigram.contracts.core.errors import LexigramError

T = TypeVar("T", covariant=True)
E = TypeVar("E", covariant=True)
U = TypeVar("U")
F = TypeVar("F")


class UnwrapError(LexigramError, ValueError):
    """``unwrap`` was called on an Err, or ``unwrap_err`` on an Ok."""

    code = "LEX_ERR_RESULT_002"


@final
class Ok(Generic[T]):
    """The success side of a Result."""

    __slots__ = ("_value",)
    __match_args__ = ("value",)

    def __init__(self, value: T) -> None:
        self._value = value

    @property
    def value(self) -> T:
        """The value carried."""
        return self._value

    def is_ok(self) -> bool:
        """Always True."""
        return True

    def is_err(self) -> bool:
        """Always False."""
        return False

    def unwrap(self) -> T:
        """The value."""
        return self._value

    def unwrap_err(self) -> Never:
        """Raises UnwrapError: there is no error to take out."""
        raise UnwrapError(f"unwrap_err() on Ok({self._value!r})")

    def expect(self, message: str) -> T:
        """The value; ``message`` is only used by Err."""
        return self._value

    def unwrap_or(self, default: object) -> T:
        """The value."""
        return self._value

    def unwrap_or_else(self, fallback: Callable[[Any], object]) -> T:
        """The value; ``fallback`` is not called."""
        return self._value

    def map_sync(self, func: Callable[[T], U]) -> Ok[U]:
        """Ok of ``func(value)``."""
        return Ok(func(self._value))

    def and_then_sync(self, func: Callable[[T], Result[U, F]]) -> Result[U, F]:
        """What ``func(value)`` returns."""
        return func(self._value)

    def or_else_sync(self, func: Callable[[Any], object]) -> Ok[T]:
        """This Ok; ``func`` is not called."""
        return self

    def map_err(self, func: Callable[[Any], object]) -> Ok[T]:
        """This Ok; ``func`` is not called."""
        return self

    async def map(self, func: Callable[[T], Awaitable[U]]) -> Ok[U]:
        """Ok of ``await func(value)``."""
        return Ok(await func(self._value))

    async def and_then(self, func: Callable[[T], Awaitable[Result[U, F]]]) -> Result[U, F]:
        """What ``await func(value)`` returns."""
        return await func(self._value)

    async def or_else(self, func: Callable[[Any], Awaitable[object]]) -> Ok[T]:
        """This Ok; ``func`` is not called."""
        return self

    def to_optional(self) -> T | None:
        """The value."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ok) and bool(other._value == self._value)

    def __hash__(self) -> int:
        return hash((Ok, self._value))

    def __repr__(self) -> str:
        return f"Ok({self._value!r})"


@final
class Err(Generic[E]):
    """The failure side of a Result."""

    __slots__ = ("_error",)
    __match_args__ = ("error",)

    def __init__(self, error: E) -> None:
        self._error = error

    @property
    def error(self) -> E:
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
        return self.expect("unwrap() on Err")

    def unwrap_err(self) -> E:
        """The error."""
        return self._error

    def expect(self, message: str) -> Never:
        """Raises UnwrapError with ``message``, from the carried error when it is an exception."""
        cause = self._error if isinstance(self._error, BaseException) else None
        raise UnwrapError(f"{message}: {self._error!r}") from cause

    def unwrap_or(self, default: U) -> U:
        """The default."""
        return default

    def unwrap_or_else(self, fallback: Callable[[E], U]) -> U:
        """What ``fallback(error)`` returns."""
        return fallback(self._error)

    def map_sync(self, func: Callable[[Any], object]) -> Err[E]:
        """This Err; ``func`` is not called."""
        return self

    def and_then_sync(self, func: Callable[[Any], object]) -> Err[E]:
        """This Err; ``func`` is not called."""
        return self

    def or_else_sync(self, func: Callable[[E], Result[U, F]]) -> Result[U, F]:
        """What ``func(error)`` returns."""
        return func(self._error)

    def map_err(self, func: Callable[[E], F]) -> Err[F]:
        """Err of ``func(error)``."""
        return Err(func(self._error))

    async def map(self, func: Callable[[Any], Awaitable[object]]) -> Err[E]:
        """This Err; ``func`` is not called."""
        return self

    async def and_then(self, func: Callable[[Any], Awaitable[object]]) -> Err[E]:
        """This Err; ``func`` is not called."""
        return self

    async def or_else(self, func: Callable[[E], Awaitable[Result[U, F]]]) -> Result[U, F]:
        """What ``await func(error)`` returns."""
        return await func(self._error)

    def to_optional(self) -> None:
        """None."""
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Err) and bool(other._error == self._error)

    def __hash__(self) -> int:
        return hash((Err, self._error))

    def __repr__(self) -> str:
        return f"Err({self._error!r})"


Result: TypeAlias = Ok[T] | Err[E]

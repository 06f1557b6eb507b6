"""Turn exceptions into results, and many results into one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

from lexigram.contracts.core.result import Err, Ok, Result

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E")
X = TypeVar("X", bound=Exception)


def as_result(
    *errors: type[X],
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[Result[T, X]]]]:
    """Decorate an async function: its value becomes Ok, the given errors become Err.

    Any other exception is raised as before, and so is cancellation.
    """

    def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[Result[T, X]]]:
        @wraps(function)
        async def wrapper(*args: P.args, **kwargs: P.kwargs) -> Result[T, X]:
            return await try_catch(errors, function, *args, **kwargs)

        return wrapper

    return decorate


def as_result_sync(
    *errors: type[X],
) -> Callable[[Callable[P, T]], Callable[P, Result[T, X]]]:
    """``as_result`` for a plain function."""

    def decorate(function: Callable[P, T]) -> Callable[P, Result[T, X]]:
        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> Result[T, X]:
            return try_catch_sync(errors, function, *args, **kwargs)

        return wrapper

    return decorate


async def try_catch(
    errors: tuple[type[X], ...],
    function: Callable[P, Awaitable[T]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Result[T, X]:
    """Call an async function once: Ok of its value, or Err of one of the given errors."""
    try:
        return Ok(await function(*args, **kwargs))
    except errors as error:
        return Err(error)


def try_catch_sync(
    errors: tuple[type[X], ...], function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> Result[T, X]:
    """``try_catch`` for a plain function."""
    try:
        return Ok(function(*args, **kwargs))
    except errors as error:
        return Err(error)


def collect(results: Iterable[Result[T, E]]) -> Result[list[T], E]:
    """Ok of all values in order, or the first Err; later results are not looked at."""
    values: list[T] = []
    for result in results:
        if isinstance(result, Err):
            return result
        values.append(result.value)
    return Ok(values)


def partition(results: Iterable[Result[T, E]]) -> tuple[list[T], list[E]]:
    """All values and all errors, each in order."""
    values: list[T] = []
    errors: list[E] = []
    for result in results:
        if isinstance(result, Err):
            errors.append(result.error)
        else:
            values.append(result.value)
    return values, errors

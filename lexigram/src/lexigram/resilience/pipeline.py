"""Several protections around one call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar, cast

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.infra.resilience.errors import ResilienceError
from lexigram.contracts.infra.resilience.protocols import BulkheadProtocol, RateLimiterProtocol

P = ParamSpec("P")
T = TypeVar("T")


class ResiliencePipeline:
    """Protections in the order they were added, the first outermost.

    The order that mostly makes sense: rate limiter, bulkhead, retry, breaker, timeout. Then a
    retried call keeps its place in the bulkhead, each attempt is counted by the breaker, and
    each attempt has the whole time-out.
    """

    def __init__(self, *patterns: Any) -> None:
        self._layers: list[Callable[..., Awaitable[Any]]] = []
        self._used = False
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: Any) -> Self:
        """Add a protection inside the ones added before."""
        if self._used:
            raise ResilienceError(
                "the pipeline is in use; it cannot be changed any more",
                hint="add every protection before the first call",
            )
        self._layers.append(_layer(pattern))
        return self

    async def execute(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call through all protections; an empty pipeline just calls."""
        self._used = True
        call: Callable[..., Awaitable[Any]] = partial(func, *args, **kwargs)
        for layer in reversed(self._layers):
            call = partial(layer, call)
        result: T = await call()
        return result


def _layer(pattern: Any) -> Callable[..., Awaitable[Any]]:
    """The function of a protection that takes a function and calls it."""
    for method in ("execute", "call"):
        layer: Any = getattr(pattern, method, None)
        if layer is not None:
            return cast("Callable[..., Awaitable[Any]]", layer)
    if isinstance(pattern, BulkheadProtocol):
        return partial(_inside, pattern)
    if isinstance(pattern, RateLimiterProtocol):
        return partial(_after_permit, pattern)
    raise ConfigurationError(
        f"{type(pattern).__name__} is no protection: it has no execute, call, acquire,"
        " and cannot be entered with `async with`",
    )


async def _inside(bulkhead: BulkheadProtocol, func: Callable[[], Awaitable[T]]) -> T:
    async with bulkhead:
        return await func()


async def _after_permit(limiter: RateLimiterProtocol, func: Callable[[], Awaitable[T]]) -> T:
    await limiter.acquire()
    return await func()

"""The protections as decorators of async functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from lexigram.contracts.infra.resilience.protocols import CircuitBreakerProtocol
from lexigram.contracts.infra.resilience.types import (
    CircuitBreakerConfig,
    RetryConfig,
    TimeoutConfig,
)
from lexigram.resilience.breaker import CircuitBreaker
from lexigram.resilience.bulkheads import Bulkhead
from lexigram.resilience.limiter import RateLimiter
from lexigram.resilience.pipeline import ResiliencePipeline
from lexigram.resilience.retrying import RetryPolicy
from lexigram.resilience.timeouts import Timeout

P = ParamSpec("P")
T = TypeVar("T")


def resilient(
    *patterns: Any,
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Call the function through these protections, the first outermost.

    They are shared by all calls of the function, and by all functions that get the same objects.
    """

    def decorate(func: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        if not inspect.iscoroutinefunction(func):
            raise TypeError(f"{func!r} is not an async function")
        pipeline = ResiliencePipeline(*patterns)

        @functools.wraps(func)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return await pipeline.execute(func, *args, **kwargs)

        return call

    return decorate


def retry(
    config: RetryConfig | None = None, /, **settings: Any
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Retry the function: ``@retry(max_attempts=5, retry_on=(OSError,))``."""
    return resilient(RetryPolicy(replace(config or RetryConfig(), **settings)))


def circuit_breaker(
    breaker: CircuitBreakerProtocol | CircuitBreakerConfig | None = None, /, **settings: Any
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Put the function behind a breaker: one of its own, made from settings, or a given one."""
    if breaker is None or isinstance(breaker, CircuitBreakerConfig):
        breaker = CircuitBreaker(replace(breaker or CircuitBreakerConfig(), **settings))
    elif settings:
        raise TypeError("a breaker that exists takes no settings")
    return resilient(breaker)


def timeout(
    seconds: float | TimeoutConfig, /
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Cancel calls of the function that take longer."""
    return resilient(Timeout(seconds))


def bulkhead(
    max_concurrent: int, /, *, max_waiting: int = 0
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Let so many calls of the function run, and so many wait."""
    return resilient(Bulkhead(max_concurrent, max_waiting=max_waiting))


def rate_limit(
    rate: float, per: float = 1.0, /, *, burst: int | None = None
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Start at most ``rate`` calls of the function per ``per`` seconds; the others wait."""
    return resilient(RateLimiter(rate, per, burst=burst))

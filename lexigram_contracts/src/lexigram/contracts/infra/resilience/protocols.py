"""Protection around a call: each takes a function and its arguments and returns its result.

Common to all: the caller sees the function's own exception, and cancellation passes through at
once, is never retried and never counts as a failure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.infra.resilience.types import CircuitBreakerConfig, CircuitState

P = ParamSpec("P")
T = TypeVar("T")


@runtime_checkable
class RetryPolicyProtocol(Protocol):
    """Calls again after a failure. Not guaranteed: that a failed attempt had no effect."""

    async def execute(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The first result that is good; the function runs once or more.

        After the last attempt its exception is raised as it is, or RetryExhaustedError when
        the function kept returning a result that asks for another attempt.
        """
        ...


@runtime_checkable
class CircuitBreakerProtocol(Protocol):
    """Stops calling what keeps failing. One breaker is shared by all callers of one thing."""

    @property
    def state(self) -> CircuitState:
        """The state as last known here; with shared state another process may be ahead."""
        ...

    async def call(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call through the breaker and count the outcome.

        Raises CircuitOpenError, without calling, while open or when the probes are taken.
        """
        ...

    def protect(self) -> AbstractAsyncContextManager[None]:
        """The same for a block: ``async with breaker.protect(): ...``; made anew per use."""
        ...

    async def reset(self) -> None:
        """Close the circuit and forget the counts; harmless when closed."""
        ...

    async def force_open(self) -> None:
        """Open the circuit until ``reset``; harmless when open."""
        ...


@runtime_checkable
class CircuitBreakerRegistryProtocol(Protocol):
    """One breaker per name."""

    def get(self, name: str) -> CircuitBreakerProtocol | None:
        """The breaker, or None when nobody made it yet."""
        ...

    async def get_or_create(
        self, name: str, config: CircuitBreakerConfig | None = None
    ) -> CircuitBreakerProtocol:
        """The breaker; concurrent callers get one object. ``config`` counts at creation only."""
        ...

    def list_breakers(self) -> Sequence[str]:
        """The names, in the order of creation."""
        ...


@runtime_checkable
class BulkheadProtocol(Protocol):
    """Limits how many blocks run at once: ``async with bulkhead: ...``.

    Waiters enter in the order they came. Raises BulkheadError on entry when the queue of
    waiters is full.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


@runtime_checkable
class RateLimiterProtocol(Protocol):
    """Limits how many permits are given per time. Not guaranteed: order among waiters."""

    async def acquire(self, permits: int = 1) -> None:
        """Wait for the permits. Raises ValueError for more than the limiter can ever give."""
        ...

    async def try_acquire(self, permits: int = 1) -> bool:
        """Take the permits now or not at all; never waits for them."""
        ...

    def get_stats(self) -> Mapping[str, Any]:
        """Statistics: the limit, the permits left, the number of waiters."""
        ...


@runtime_checkable
class TimeoutProtocol(Protocol):
    """Limits how long a call takes."""

    async def execute(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result; TimeoutError after cancelling a call that took too long."""
        ...


@runtime_checkable
class ResiliencePipelineProtocol(Protocol):
    """Several protections around one call, the first added outermost."""

    def add(self, pattern: Any) -> Self:
        """Add a protection inside the ones added before. Refused after the first execute."""
        ...

    async def execute(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call through all protections; an empty pipeline just calls."""
        ...

"""Settings and states of retry, circuit breaker and timeout. All times are seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal


class CircuitState(StrEnum):
    """Whether calls pass a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class RetryStrategy(StrEnum):
    """How the delay grows from attempt to attempt."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"


@dataclass(frozen=True)
class RetryConfig:
    """When to try again. ``abort_*`` wins over ``retry_*``; a cancelled task is never retried."""

    # the first attempt counts: 3 means at most two retries
    max_attempts: int = 3
    base_delay: float = 1.0
    max_delay: float = 60.0
    backoff_factor: float = 2.0
    # True: each delay is drawn between 0 and the computed one, so that callers spread out
    jitter: bool = True
    retry_on: tuple[type[Exception], ...] = (Exception,)
    retry_if: Callable[[Exception], bool] | None = None
    # called before each wait with the error (None for a result) and the attempt that failed
    on_retry: Callable[[Exception | None, int], Any] | None = None
    retry_on_result: Callable[[Any], bool] | None = None
    abort_on: tuple[type[Exception], ...] = ()
    abort_if: Callable[[Exception], bool] | None = None
    strategy: RetryStrategy = RetryStrategy.EXPONENTIAL


@dataclass(frozen=True)
class CircuitBreakerConfig:
    """When to stop calling something that fails, and when to try it again."""

    failure_threshold: int = 5
    # how long the circuit stays open before probes are let through
    recovery_timeout: float = 60.0
    expected_exception: tuple[type[Exception], ...] = (Exception,)
    # successful probes that close the circuit again
    success_threshold: int = 3
    # a call that takes longer is cancelled and counts as a failure
    timeout: float | None = 30.0
    name: str = ""
    sliding_window_seconds: float = 60.0
    # share of failures within the window that opens the circuit, besides the threshold
    failure_rate_threshold: float = 0.5
    backend: Literal["memory", "redis"] = "memory"
    # probes allowed at the same time while half open
    half_open_max: int = 1


@dataclass(frozen=True)
class TimeoutConfig:
    """How long a call may take, and what the TimeoutError then says."""

    timeout: float = 30.0
    timeout_message: str = "Operation timed out"

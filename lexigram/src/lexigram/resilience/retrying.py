"""Calls again after a failure, on tenacity."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import anyio

from lexigram.concurrency import as_failure, call, is_retryable
from lexigram.contracts.infra.resilience.errors import RetryExhaustedError
from lexigram.contracts.infra.resilience.types import RetryConfig, RetryStrategy
from lexigram.resilience.checks import require
from lexigram.resilience.events import CallRetried, RetriesExhausted
from lexigram.resilience.report import Reporter

if TYPE_CHECKING:
    from tenacity import RetryCallState
    from tenacity.asyncio import AsyncRetrying

    from lexigram.contracts.events.protocols import EventBusProtocol
    from lexigram.contracts.observability.metrics import MetricsProtocol

P = ParamSpec("P")
T = TypeVar("T")


class RetryPolicy:
    """Retries as its configuration says; one policy serves any number of calls at once.

    An error with ``is_retryable = False`` is raised at once, whatever the configuration says.

    The first attempt is a plain call: tenacity is asked, and imported, when it did not succeed.
    """

    def __init__(
        self,
        config: RetryConfig | None = None,
        *,
        name: str = "",
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        draw: Callable[[], float] = random.random,
        metrics: MetricsProtocol | None = None,
        events: EventBusProtocol | None = None,
    ) -> None:
        self.config = config or RetryConfig()
        _check(self.config)
        self._sleep = sleep
        self._draw = draw
        self._report = Reporter("retry", name, metrics, events)

    async def execute(
        self, func: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The first good result; after the last attempt its own exception."""
        cancels = _cancel_requests()
        try:
            result = await func(*args, **kwargs)
        except BaseException as raised:  # the boundary to code of others
            error = as_failure(raised)
            if error is None:
                raise
            if not self._asks_again(error) or _cancel_requests() > cancels:
                if error is raised:
                    raise
                raise error from raised
            known: list[Callable[[], Awaitable[T]]] = [partial(_raise, error)]
        else:
            if not self._result_asks_again(result) or _cancel_requests() > cancels:
                return result
            known = [partial(_return, result)]

        async def attempt() -> T:
            if known:
                return await known.pop()()
            return await call(partial(func, *args, **kwargs))

        return await self._retrying(cancels)(attempt)

    def _retrying(self, cancels: int) -> AsyncRetrying:
        # One per call: tenacity keeps the state of a call in the object.
        from tenacity import stop_after_attempt
        from tenacity.asyncio import AsyncRetrying

        def again(state: RetryCallState) -> bool:
            if state.attempt_number == 1:  # asked already, or we would not be here
                return True
            return _cancel_requests() <= cancels and self._outcome_asks_again(state)

        return AsyncRetrying(
            sleep=self._sleep,
            stop=stop_after_attempt(self.config.max_attempts),
            wait=lambda state: delay_after(self.config, state.attempt_number, self._draw),
            retry=again,
            before_sleep=self._before_sleep,
            retry_error_callback=self._give_up,
        )

    def _outcome_asks_again(self, state: RetryCallState) -> bool:
        error, result = _outcome(state)
        if error is None:
            return self._result_asks_again(result)
        return isinstance(error, Exception) and self._asks_again(error)

    def _asks_again(self, error: Exception) -> bool:
        config = self.config
        if not is_retryable(error):
            return False
        if isinstance(error, config.abort_on) or (config.abort_if and config.abort_if(error)):
            return False
        if not isinstance(error, config.retry_on):
            return False
        return config.retry_if is None or bool(config.retry_if(error))

    def _result_asks_again(self, result: object) -> bool:
        check = self.config.retry_on_result
        return check is not None and bool(check(result))

    async def _before_sleep(self, state: RetryCallState) -> None:
        error, _ = _outcome(state)
        self._report.count("retries")
        await self._report.publish(
            CallRetried,
            lambda: CallRetried(
                policy=self._report.name,
                attempt=state.attempt_number,
                delay=state.upcoming_sleep,
                error=_text(error),
            ),
        )
        if self.config.on_retry is not None:
            result = self.config.on_retry(
                error if isinstance(error, Exception) else None, state.attempt_number
            )
            if inspect.isawaitable(result):
                await result

    async def _give_up(self, state: RetryCallState) -> Any:
        error, result = _outcome(state)
        self._report.count("exhausted")
        await self._report.publish(
            RetriesExhausted,
            lambda: RetriesExhausted(
                policy=self._report.name, attempts=state.attempt_number, error=_text(error)
            ),
        )
        if error is not None:
            raise error
        raise RetryExhaustedError(
            f"attempt {state.attempt_number} of {self.config.max_attempts} still asked for another",
            details={"attempts": state.attempt_number, "result": result},
        )


def delay_after(config: RetryConfig, attempt: int, draw: Callable[[], float]) -> float:
    """Seconds to wait after the given attempt (1 is the first); ``draw`` gives 0 to 1."""
    try:
        grown = config.base_delay * _growth(config, attempt)
    except OverflowError:
        grown = config.max_delay
    longest = min(grown, config.max_delay)
    return longest * draw() if config.jitter else longest


def _growth(config: RetryConfig, attempt: int) -> float:
    if config.strategy is RetryStrategy.FIXED:
        return 1.0
    if config.strategy is RetryStrategy.LINEAR:
        return float(attempt)
    return float(config.backoff_factor) ** (attempt - 1)


async def _raise(error: Exception) -> Any:
    raise error


async def _return(result: T) -> T:
    return result


def _outcome(state: RetryCallState) -> tuple[BaseException | None, Any]:
    outcome = state.outcome
    assert outcome is not None
    error = outcome.exception()
    return error, None if error is not None else outcome.result()


def _cancel_requests() -> int:
    # A function that turns its cancellation into an error of its own leaves this number raised.
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _text(error: BaseException | None) -> str | None:
    return None if error is None else repr(error)


def _check(config: RetryConfig) -> None:
    require(config.max_attempts >= 1, "max_attempts", config.max_attempts, "at least 1")
    require(config.base_delay >= 0, "base_delay", config.base_delay, "0 or more")
    require(config.max_delay >= 0, "max_delay", config.max_delay, "0 or more")
    require(config.backoff_factor > 0, "backoff_factor", config.backoff_factor, "more than 0")

"""Ask every provider how it is, within a time limit, and never fail while asking."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
from attrs import frozen

from lexigram.app.state import AppState
from lexigram.concurrency import CallAbortedError, CallTimeoutError, call
from lexigram.contracts.core.health import (
    AggregateHealthResult,
    HealthCheckCategory,
    HealthCheckResult,
    HealthStatus,
)
from lexigram.contracts.core.provider import ProviderState
from lexigram.di.provider import Provider

_log = logging.getLogger(__name__)

Check = Callable[[float], Awaitable[HealthCheckResult]]


@frozen
class NamedCheck:
    """A health check and the component it speaks for."""

    component: str
    check: Check


def provider_check(provider: Provider) -> NamedCheck:
    """The check of a provider; one that failed to boot but is not required is DEGRADED."""

    async def check(timeout: float) -> HealthCheckResult:
        if provider.state is ProviderState.FAILED:
            return HealthCheckResult(
                component=provider.name,
                status=HealthStatus.DEGRADED,
                message="failed to boot; the application runs without it",
            )
        return await provider.health_check(timeout)

    return NamedCheck(provider.name, check)


def dead_part(component: str, error: BaseException) -> NamedCheck:
    """A resource or provider that ended while in use."""
    return _verdict(component, HealthStatus.UNHEALTHY, "died while in use", repr(error))


def not_running(app: str, state: AppState) -> NamedCheck:
    """There is nobody to ask."""
    return _verdict(app, HealthStatus.UNHEALTHY, f"Application is {state.value}")


def process_alive(app: str, state: AppState) -> NamedCheck:
    """Alive until stopped: restarting a process that is starting would only make it later."""
    dead = state is AppState.STOPPED
    status = HealthStatus.UNHEALTHY if dead else HealthStatus.HEALTHY
    return _verdict(app, status, f"Application is {state.value}")


def startup(app: str, state: AppState) -> NamedCheck:
    """STARTING until the application runs."""
    known = {
        AppState.CREATED: HealthStatus.STARTING,
        AppState.STARTING: HealthStatus.STARTING,
        AppState.RUNNING: HealthStatus.HEALTHY,
    }
    return _verdict(app, known.get(state, HealthStatus.UNHEALTHY), f"Application is {state.value}")


async def ask_all(checks: Sequence[NamedCheck], timeout: float) -> AggregateHealthResult:
    """Run the checks side by side; one that raises or hangs is UNHEALTHY, never an exception."""
    answers: dict[int, HealthCheckResult] = {}

    async def ask(index: int, check: NamedCheck) -> None:
        answers[index] = await _ask(check, timeout, host)

    host = asyncio.current_task()
    async with anyio.create_task_group() as tasks:
        for index, check in enumerate(checks):
            tasks.start_soon(ask, index, check)
    return AggregateHealthResult(tuple(answers[index] for index in range(len(checks))))


def without_details(result: AggregateHealthResult) -> AggregateHealthResult:
    """Only component and status, for those who should not see more."""
    return AggregateHealthResult(
        tuple(
            HealthCheckResult(component=item.component, status=item.status, category=item.category)
            for item in result.components
        )
    )


def of_category(
    result: AggregateHealthResult, category: HealthCheckCategory
) -> AggregateHealthResult:
    """The components of one probe."""
    return AggregateHealthResult(
        tuple(item for item in result.components if item.category is category)
    )


def _verdict(
    component: str, status: HealthStatus, message: str, error: str | None = None
) -> NamedCheck:
    async def check(_timeout: float) -> HealthCheckResult:
        return HealthCheckResult(component=component, status=status, message=message, error=error)

    return NamedCheck(component, check)


async def _ask(
    check: NamedCheck, timeout: float, host: asyncio.Task[Any] | None
) -> HealthCheckResult:
    started = time.perf_counter()
    try:
        result = await call(check.check, timeout, timeout=timeout, host=host)
        return _add_duration(result, started)
    except CallTimeoutError:
        failure = f"no answer within {timeout:g} s"
    except CallAbortedError as error:
        _log.exception("the health check of %s was aborted", check.component)
        failure = error.message
    except Exception as error:  # noqa: BLE001 - a check that raises is an answer
        failure = f"{type(error).__name__}: {error}"
    result = HealthCheckResult(
        component=check.component,
        status=HealthStatus.UNHEALTHY,
        message="the health check failed",
        error=failure,
    )
    return _add_duration(result, started)


def _add_duration(result: HealthCheckResult, started: float) -> HealthCheckResult:
    return HealthCheckResult(
        component=result.component,
        status=result.status,
        message=result.message,
        error=result.error,
        duration_ms=result.duration_ms or (time.perf_counter() - started) * 1000,
        details=result.details,
        checked_at=result.checked_at or datetime.now(UTC),
        category=result.category,
    )

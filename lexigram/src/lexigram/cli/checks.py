"""Ask an application and the contributed checks how they are."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
from attrs import frozen

from lexigram.cli.contributors.registry import Contributors, load_contributed
from lexigram.cli.failures import summary
from lexigram.concurrency import CallTimeoutError, call
from lexigram.contracts.cli import HealthCheckContribution
from lexigram.contracts.core.health import (
    AggregateHealthResult,
    HealthCheckResult,
    HealthStatus,
    worst,
)

if TYPE_CHECKING:
    from lexigram.app import Application


@frozen(kw_only=True)
class HealthReport:
    """Every component, and the status of the whole."""

    # Contributed checks that are not critical are shown here but do not count.
    status: HealthStatus
    components: list[dict[str, Any]]


async def check_health(application: Application, contributors: Contributors) -> HealthReport:
    """Start the application without its background work, ask everything at once, stop it."""
    application.background_enabled = False
    checks = list(contributors.health_checks.values())
    answers: dict[str, HealthCheckResult] = {}
    own = AggregateHealthResult()
    host = asyncio.current_task()
    async with application as app, anyio.create_task_group() as tasks:
        for check in checks:
            tasks.start_soon(_ask, check, answers, host)
        own = await app.health_check()
    counted = [own.status, *(answers[check.name].status for check in checks if check.critical)]
    components = [
        *({**result.to_dict(), "contributor": None} for result in own.components),
        *({**answers[c.name].to_dict(), "contributor": c.contributor} for c in checks),
    ]
    return HealthReport(status=worst(counted), components=components)


async def _ask(
    check: HealthCheckContribution,
    answers: dict[str, HealthCheckResult],
    host: asyncio.Task[Any] | None,
) -> None:
    """One contributed check; what raises or takes too long is UNHEALTHY."""
    started = anyio.current_time()
    try:
        function = load_contributed(check.contributor, check.check_path)
        result = await call(function, timeout=check.timeout, host=host)
        if not isinstance(result, HealthCheckResult):
            raise TypeError(f"{check.check_path} returned {result!r}, not a HealthCheckResult")
        result = replace(result, status=HealthStatus(result.status))
    except CallTimeoutError:
        result = _unhealthy(check, f"no answer within {check.timeout:g} s", started)
    except Exception as error:  # noqa: BLE001 - code we do not own
        result = _unhealthy(check, summary(error), started)
    answers[check.name] = result


def _unhealthy(check: HealthCheckContribution, error: str, started: float) -> HealthCheckResult:
    return HealthCheckResult(
        component=check.name,
        status=HealthStatus.UNHEALTHY,
        error=error,
        duration_ms=(anyio.current_time() - started) * 1000,
    )

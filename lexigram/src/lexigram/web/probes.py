"""What machines ask: ``/health/live|ready|startup`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from lexigram.app import Application
from lexigram.app.health import without_details
from lexigram.contracts.core.health import (
    AggregateHealthResult,
    HealthCheckResult,
    HealthStatus,
)
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.observability.exposition import (
    METRICS_CONTENT_TYPE,
    MetricsTextProtocol,
    metrics_text,
)
from lexigram.web.auth import Caller, Guard
from lexigram.web.inject import current_caller

# DEGRADED still does its work; UNKNOWN has nothing against it.
_SERVING = frozenset({HealthStatus.HEALTHY, HealthStatus.DEGRADED, HealthStatus.UNKNOWN})

Who = Annotated[Caller | None, Depends(current_caller)]


def probes(
    app: Application, metrics: MetricsProtocol, guard: Guard, draining: Callable[[], bool]
) -> APIRouter:
    """The router of the probes. Without a key, where one is needed, no details are shown."""
    router = APIRouter(tags=["probes"])

    def answer(result: AggregateHealthResult, who: Caller | None, *, well: bool) -> Response:
        shown = without_details(result) if guard.is_needed and who is None else result
        headers = {"Cache-Control": "no-store"}
        return JSONResponse(shown.to_dict(), status_code=200 if well else 503, headers=headers)

    @router.get("/health/live", summary="Is the process worth keeping?")
    async def live(who: Who) -> Response:
        result = await app.liveness()
        return answer(result, who, well=result.status in _SERVING)

    @router.get("/health/ready", summary="Can it do its work?")
    async def ready(who: Who) -> Response:
        result = await app.readiness()
        if draining():
            result = AggregateHealthResult((*result.components, _DRAINING))
        return answer(result, who, well=result.status in _SERVING)

    @router.get("/health/startup", summary="Is the start over?")
    async def startup(who: Who) -> Response:
        result = await app.startup_check()
        return answer(result, who, well=result.status is HealthStatus.HEALTHY)

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
    async def render_metrics() -> Response:
        if not isinstance(metrics, MetricsTextProtocol):
            raise HTTPException(
                404,
                "metrics are off: add ObservabilityModule, set observability.metrics to "
                "prometheus, and install lexigram[prometheus]",
            )
        return Response(metrics_text(metrics), headers={"Content-Type": METRICS_CONTENT_TYPE})

    return router


_DRAINING = HealthCheckResult(
    component="web", status=HealthStatus.UNHEALTHY, message="draining: no new work, please"
)

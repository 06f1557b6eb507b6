"""What a health check answers, and how several answers become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class HealthStatus(StrEnum):
    """How well a component works right now."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEGRADED = "degraded"
    UNKNOWN = "unknown"
    STARTING = "starting"


class HealthCheckCategory(StrEnum):
    """Which probe a check belongs to."""

    LIVENESS = "liveness"
    READINESS = "readiness"
    STARTUP = "startup"


# Worst last. UNKNOWN is better than STARTING: a check that cannot tell must not hide one that can.
_SEVERITY = (
    HealthStatus.HEALTHY,
    HealthStatus.UNKNOWN,
    HealthStatus.STARTING,
    HealthStatus.DEGRADED,
    HealthStatus.UNHEALTHY,
)


@dataclass(frozen=True)
class HealthCheckResult:
    """The answer of one component."""

    component: str
    status: HealthStatus = HealthStatus.HEALTHY
    message: str | None = None
    error: str | None = None
    duration_ms: float = 0.0
    details: dict[str, Any] | None = None
    checked_at: datetime | None = None
    category: HealthCheckCategory = HealthCheckCategory.READINESS

    def is_healthy(self) -> bool:
        """True only for HEALTHY; DEGRADED still serves but is not healthy."""
        return self.status is HealthStatus.HEALTHY

    def is_degraded(self) -> bool:
        """True only for DEGRADED."""
        return self.status is HealthStatus.DEGRADED

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-ready data."""
        return {
            "component": self.component,
            "status": self.status.value,
            "message": self.message,
            "error": self.error,
            "duration_ms": round(self.duration_ms, 3),
            "details": self.details,
            "checked_at": self.checked_at.isoformat() if self.checked_at else None,
            "category": self.category.value,
        }


@dataclass(frozen=True)
class AggregateHealthResult:
    """Several answers; the whole is as bad as its worst part, and nothing to check is HEALTHY."""

    components: tuple[HealthCheckResult, ...] = field(default=())

    @property
    def status(self) -> HealthStatus:
        """The worst status of all components."""
        return worst(result.status for result in self.components)

    def is_healthy(self) -> bool:
        """True when every component is HEALTHY."""
        return self.status is HealthStatus.HEALTHY

    def to_dict(self) -> dict[str, Any]:
        """The aggregate as JSON-ready data."""
        return {
            "status": self.status.value,
            "components": [result.to_dict() for result in self.components],
        }


def worst(statuses: Iterable[HealthStatus]) -> HealthStatus:
    """The worst of the given statuses; HEALTHY when there are none."""
    return max(statuses, key=_SEVERITY.index, default=HealthStatus.HEALTHY)

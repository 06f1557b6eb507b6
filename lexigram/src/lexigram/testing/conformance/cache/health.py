"""A working backend says so."""

from __future__ import annotations

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.infra.cache import CacheBackendProtocol
from lexigram.testing.conformance.cache.spec import CacheCapability, CacheSpec


class HealthSpec(CacheSpec, capability=CacheCapability.HEALTH):
    """health_check while all is well."""

    async def test_a_working_cache_is_healthy(self, subject: CacheBackendProtocol) -> None:
        health = await subject.health_check()
        assert isinstance(health, HealthCheckResult)
        assert health.status is HealthStatus.HEALTHY, health
        assert health.component

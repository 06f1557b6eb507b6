import subprocess
import sys

import pytest

from lexigram.app import Application
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.infra.resilience import (
    BulkheadError,
    CircuitBreakerRegistryProtocol,
    CircuitOpenError,
    CircuitState,
)
from lexigram.resilience import (
    ResilienceConfig,
    ResilienceModule,
    ResiliencePolicies,
)

POLICIES = {
    "policies": {
        "shop": {
            "rate_limit": {"rate": 1000, "burst": 10},
            "bulkhead": {"max_concurrent": 1},
            "retry": {"max_attempts": 3, "base_delay": 0},
            "breaker": {"failure_threshold": 2, "recovery_timeout": 600, "timeout": None},
            "timeout": 5,
        },
        "bare": {},
    }
}


async def broken():
    raise OSError("down")


async def answer():
    return 42


def config(**more):
    return ResilienceConfig.from_dict({**POLICIES, **more})


async def test_named_policies_come_from_the_configuration():
    async with Application(modules=[ResilienceModule.configure(config())]) as app:
        policies = await app.container.resolve(ResiliencePolicies)
        assert policies.names() == ["shop", "bare"]
        assert policies.get("shop") is policies.get("shop")
        assert await policies.get("shop").execute(answer) == 42
        assert await policies.get("bare").execute(answer) == 42
        with pytest.raises(ConfigurationError, match="no resilience policy is called 'shp'"):
            policies.get("shp")


async def test_a_policy_counts_each_attempt_in_its_breaker_and_does_not_retry_a_refusal():
    async with Application(modules=[ResilienceModule.configure(config())]) as app:
        shop = (await app.container.resolve(ResiliencePolicies)).get("shop")
        with pytest.raises(CircuitOpenError):
            await shop.execute(broken)
        breakers = await app.container.resolve(CircuitBreakerRegistryProtocol)
        breaker = breakers.get("shop")
        assert breaker is not None
        assert breaker.state is CircuitState.OPEN


async def test_a_policy_has_its_bulkhead():
    async with Application(modules=[ResilienceModule.configure(config())]) as app:
        shop = (await app.container.resolve(ResiliencePolicies)).get("shop")
        with pytest.raises(BulkheadError):
            await shop.execute(lambda: shop.execute(answer))


async def test_health_names_the_circuits_that_are_not_closed():
    async with Application(modules=[ResilienceModule.configure(config())]) as app:
        (provider,) = (p for p in app.providers if p.name == "resilience")
        assert (await provider.health_check()).status is HealthStatus.HEALTHY
        breakers = await app.container.resolve(CircuitBreakerRegistryProtocol)
        await (await breakers.get_or_create("mail")).force_open()
        health = await provider.health_check()
        assert health.status is HealthStatus.DEGRADED
        assert health.message == "circuit mail is open"
        assert health.details == {"circuits": {"shop": "closed", "mail": "open"}}


async def test_the_stub_reads_nothing_and_has_no_policies():
    async with Application(modules=[ResilienceModule.stub()]) as app:
        assert (await app.container.resolve(ResiliencePolicies)).names() == []


async def test_a_policy_that_shares_state_needs_a_redis():
    shared = ResilienceConfig.from_dict({"policies": {"a": {"breaker": {"backend": "redis"}}}})
    with pytest.raises(Exception, match="policies a share state over redis, but no redis_url"):
        async with Application(modules=[ResilienceModule.configure(shared)]):
            pass


@pytest.mark.parametrize(
    "policy",
    [
        {"retry": {"max_attempts": 0}},
        {"breaker": {"half_open_max": 0}},
        {"breaker": {"timeout": 0}},
        {"timeout": -1},
        {"bulkhead": {"max_concurrent": 0}},
        {"rate_limit": {"rate": 0}},
        {"retries": {}},
    ],
)
def test_wrong_settings_are_refused_when_the_configuration_is_read(policy):
    with pytest.raises(ConfigurationError):
        ResilienceConfig.from_dict({"policies": {"a": policy}})


def test_the_address_of_redis_is_not_shown():
    assert "s3cret" not in repr(ResilienceConfig(redis_url="redis://:s3cret@127.0.0.1:6379"))


def run_python(text):
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    ).stdout


def test_importing_it_loads_none_of_the_libraries():
    text = """
import sys
import lexigram.resilience as r
for name in r.__all__: getattr(r, name)
print(sorted({"tenacity", "pybreaker", "redis", "sqlalchemy"} & set(sys.modules)))
"""
    assert run_python(text).strip() == "[]"


def test_a_missing_redis_client_names_the_install_command():
    text = """
import sys
sys.modules["redis.asyncio"] = None
from lexigram.resilience import RedisState
try: RedisState("redis://127.0.0.1")
except Exception as error: print(error)
"""
    assert "pip install 'lexigram[redis]'" in run_python(text)


def test_an_address_that_is_none_is_refused():
    from lexigram.resilience import RedisState

    with pytest.raises(ConfigurationError, match="redis_url is not usable"):
        RedisState("shop:1234")

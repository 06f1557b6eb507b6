import subprocess
import sys
from typing import Annotated

import pytest

from lexigram.app import Application
from lexigram.cache import Cache, CacheConfig, CacheModule
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.core.idempotency import IdempotencyStoreProtocol
from lexigram.contracts.core.lock import DistributedLockProtocol
from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.di import Named
from lexigram.observability import ObservabilityModule
from lexigram.sql import Database, SqlModule
from lexigram.testing import wait_until

NOWHERE = "redis://127.0.0.1:1/0"


def config(**named):
    return CacheConfig.from_dict({"named": named})


def provider_of(app):
    (provider,) = (p for p in app.providers if p.name == "cache")
    return provider


async def test_the_unnamed_cache_and_named_ones_are_apart():
    module = CacheModule.configure(config(sessions={"max_entries": 5}))
    async with Application(modules=[module]) as app:
        primary = await app.container.resolve(CacheProtocol)
        sessions = await app.container.resolve(Annotated[CacheProtocol, Named("sessions")])
        assert await app.container.resolve(CacheBackendProtocol) is primary
        assert (
            await app.container.resolve(Annotated[CacheBackendProtocol, Named("sessions")])
            is sessions
        )
        await primary.set_many({str(number): number for number in range(10)})
        await sessions.set_many({str(number): -number for number in range(10)})
        assert await primary.get("0") == Ok(0)
        assert await sessions.get_many(map(str, range(10))) == Ok(
            {str(number): -number for number in range(5, 10)}
        )


async def test_locks_and_idempotency_come_with_every_cache():
    async with Application(modules=[CacheModule.stub(config(jobs={}))]) as app:
        for name in (None, "jobs"):

            def key(service, name=name):
                return service if name is None else Annotated[service, Named(name)]

            locks = await app.container.resolve(key(DistributedLockProtocol))
            assert await locks.acquire("same key", "me")
            once = await app.container.resolve(key(IdempotencyStoreProtocol))
            assert await once.acquire("same key") == Ok(True)


async def test_a_cache_in_the_database_of_the_application_is_swept():
    settings = {"backend": "sql", "sweep_interval": 0.01, "sweep_batch": 7}
    caches = CacheConfig.from_dict({"primary": settings})
    async with Application(modules=[SqlModule.stub(), CacheModule.configure(caches)]) as app:
        cache = await app.container.resolve(CacheProtocol)
        once = await app.container.resolve(IdempotencyStoreProtocol)
        database = await app.container.resolve(Database)
        await cache.set_many({str(number): number for number in range(50)}, ttl=0.001)
        await cache.set("kept", 1)
        await once.acquire("gone", ttl=0.001)

        async def rows():
            query = "SELECT count(*) AS n FROM lexigram_cache UNION ALL SELECT count(*) FROM lexigram_idempotency"
            return [row["n"] for row in (await database.execute_query(query)).rows]

        await wait_until(lambda: _is(rows, [1, 0]))
        assert await cache.get("kept") == Ok(1)
        assert (await provider_of(app).health_check()).status is HealthStatus.HEALTHY
        # The sweep survives a table that is not there for a while.
        await database.execute("ALTER TABLE lexigram_cache RENAME TO away")
        health = await provider_of(app).health_check()
        assert health.status is HealthStatus.DEGRADED
        assert "no such table" in health.error
        await database.execute("ALTER TABLE away RENAME TO lexigram_cache")
        await cache.set("gone", 1, ttl=0.001)
        await wait_until(lambda: _is(rows, [1, 0]))


async def test_a_cache_in_the_database_needs_one():
    caches = CacheConfig.from_dict({"primary": {"backend": "sql"}})
    with pytest.raises(Exception, match="Database"):
        async with Application(modules=[CacheModule.configure(caches)]):
            pass


async def test_an_application_starts_without_its_redis_and_says_so():
    caches = config(far={"backend": "redis", "redis_url": NOWHERE, "timeout": 0.5})
    async with Application(modules=[CacheModule.configure(caches)]) as app:
        health = await provider_of(app).health_check()
        assert health.status is HealthStatus.DEGRADED
        assert "cache far: redis does not answer" in health.message


async def test_evictions_are_counted_when_somebody_listens(fake_metrics):
    caches = CacheConfig.from_dict({"primary": {"max_entries": 2}})
    modules = [ObservabilityModule.stub(metrics=fake_metrics), CacheModule.configure(caches)]
    async with Application(modules=modules) as app:
        assert await app.container.resolve(MetricsProtocol) is fake_metrics
        cache = await app.container.resolve(CacheProtocol)
        await cache.set_many({"a": 1, "b": 2, "c": 3})
        await cache.get("a")
    assert fake_metrics.counted("cache.evictions", cache="default") == 1
    assert fake_metrics.counted("cache.misses", cache="default") == 1


async def test_nothing_is_counted_for_nobody():
    async with Application(modules=[CacheModule.stub()]) as app:
        cache = await app.container.resolve(CacheProtocol)
        assert isinstance(cache, Cache)
        assert cache._metrics is None


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"backend": "redis"}, "backend redis needs redis_url"),
        ({"backend": "sql", "max_entries": 5}, "max_entries is a setting of backend memory"),
        ({"redis_url": NOWHERE}, "redis_url is a setting of backend redis"),
        ({"max_bytes": 5, "share_values": True}, "no max_bytes, no serializer"),
        ({"max_entries": 0}, "must be >= 1"),
        ({"backend": "sql", "load_lease": 0}, "must be > 0"),
        ({"backend": "sql", "namespace": ""}, "1 to 100 characters"),
        ({"backend": "memcached"}, "memcached"),
        ({"size": 5}, "unknown key"),
    ],
)
def test_wrong_settings_are_refused_when_the_configuration_is_read(settings, problem):
    with pytest.raises(ConfigurationError, match=problem):
        CacheConfig.from_dict({"primary": settings})


async def test_an_unknown_serializer_stops_the_start():
    caches = CacheConfig.from_dict({"primary": {"serializer": "pickle"}})
    with pytest.raises(Exception, match="there is no codec 'pickle'"):
        async with Application(modules=[CacheModule.configure(caches)]):
            pass


def test_the_address_of_redis_is_not_shown():
    url = "redis://:s3cret@127.0.0.1:6379"
    assert "s3cret" not in repr(config(far={"backend": "redis", "redis_url": url}))


def test_without_the_client_the_error_names_the_command():
    code = (
        "import sys; sys.modules['redis'] = sys.modules['redis.asyncio'] = None\n"
        "from lexigram.cache import RedisConnection\n"
        "try: RedisConnection('redis://localhost')\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "a cache in redis needs the redis client" in done.stdout
    assert "pip install 'lexigram[redis]'" in done.stdout


def test_the_module_loads_neither_redis_nor_a_codec():
    code = (
        "import sys, lexigram.cache.module\n"
        "print(*{'redis', 'msgspec', 'asyncpg'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


async def _is(read, expected):
    return await read() == expected

"""Registers the caches with the container, sweeps those in the database, and reports on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from random import uniform
from typing import Any

import anyio
from anyio.abc import TaskGroup
from attrs import frozen

from lexigram.cache.cache import LOAD_LEASE, Cache
from lexigram.cache.config import CacheConfig, CacheSettings
from lexigram.cache.idempotency import MemoryIdempotencyStore
from lexigram.cache.locks import MemoryLocks, SqlLocks
from lexigram.cache.memory import MAX_ENTRIES, MemoryCache
from lexigram.cache.values import Copies, Shared, Values
from lexigram.contracts.core.di import BootContainerProtocol, ContainerRegistrarProtocol
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.core.idempotency import IdempotencyStoreProtocol
from lexigram.contracts.core.lock import DistributedLockProtocol, LockError
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol, NoOpMetrics
from lexigram.di import Provider, ProviderPriority
from lexigram.observability import get_logger
from lexigram.sql import Database
from lexigram.sql.locks import SqlResourceLocks

PRIMARY = "default"  # the name of the unnamed cache, in metrics and key prefixes
SWEEP_INTERVAL = 60.0
SWEEP_BATCH = 1000

logger = get_logger(__name__)


class CacheProvider(Provider):
    """Binds cache, locks and idempotency store, unnamed and by name."""

    name = "cache"
    priority = ProviderPriority.INFRASTRUCTURE
    optional_dependencies = ("sql",)
    config_key = "cache"
    config_model = CacheConfig

    config: CacheConfig

    def __init__(self, config: CacheConfig | None = None) -> None:
        super().__init__()
        if config is not None:
            self.config = config
        self._parts: dict[str, _Parts] = {}
        self._tasks: TaskGroup | None = None

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        """Bind everything; connections open on first use."""
        container.singleton(CacheConfig, self.config)
        _bind(container, None, self._maker(PRIMARY, self.config.primary))
        for name, settings in self.config.named.items():
            _bind(container, name, self._maker(name, settings))

    async def boot(self, container: BootContainerProtocol) -> None:
        """Make every cache now: a wrong setting is an error of the start."""
        await container.resolve(CacheProtocol)
        await container.resolve_all(CacheProtocol)
        self._tasks = await anyio.create_task_group().__aenter__()
        for name, parts in self._parts.items():
            if parts.sweep is not None and self.background_enabled:
                self._tasks.start_soon(_sweeping, name, parts.sweep, parts.sweep_interval)

    async def shutdown(self) -> None:
        """Stop the sweeps and give connections back."""
        if self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)
        for parts in self._parts.values():
            if parts.aclose is not None:
                await parts.aclose()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """DEGRADED while a backend does not answer: loads go on, stored values and locks do not."""
        answers: dict[str, HealthCheckResult] = {}

        async def ask(name: str, cache: Cache) -> None:
            answers[name] = await cache.health_check(timeout)

        async with anyio.create_task_group() as tasks:
            for name, parts in self._parts.items():
                tasks.start_soon(ask, name, parts.cache)
        silent = {
            name: answer.error or answer.message
            for name, answer in answers.items()
            if answer.status is not HealthStatus.HEALTHY
        }
        problems = "; ".join(f"cache {name}: {why}" for name, why in silent.items())
        return HealthCheckResult(
            component=self.name,
            status=HealthStatus.DEGRADED if silent else HealthStatus.HEALTHY,
            message=problems or f"{len(answers)} caches answer",
            error=problems or None,
            details={name: dict(answer.details or {}) for name, answer in answers.items()},
        )

    def _maker(self, name: str, settings: CacheSettings) -> Callable[..., _Parts]:
        """A function of what the backend needs, which makes its parts once."""

        def simple(metrics: MetricsProtocol) -> _Parts:
            if name not in self._parts:
                make = _in_redis if settings.backend == "redis" else _in_memory
                self._parts[name] = make(name, settings, _listening(metrics))
            return self._parts[name]

        def in_database(
            metrics: MetricsProtocol, database: Database, locks: SqlResourceLocks
        ) -> _Parts:
            if name not in self._parts:
                made = _in_sql(name, settings, _listening(metrics), database, locks)
                self._parts[name] = made
            return self._parts[name]

        return in_database if settings.backend == "sql" else simple


@frozen(kw_only=True)
class _Parts:
    cache: Cache
    locks: DistributedLockProtocol
    idempotency: IdempotencyStoreProtocol
    aclose: Callable[[], Any] | None = None
    sweep: Callable[[], Any] | None = None
    sweep_interval: float = SWEEP_INTERVAL


def _bind(
    container: ContainerRegistrarProtocol, name: str | None, parts: Callable[..., _Parts]
) -> None:
    for service, attribute in (
        (CacheProtocol, "cache"),
        (CacheBackendProtocol, "cache"),
        (DistributedLockProtocol, "locks"),
        (IdempotencyStoreProtocol, "idempotency"),
    ):
        container.singleton(service, _part(parts, attribute), name=name)


def _part(parts: Callable[..., _Parts], attribute: str) -> Callable[..., Any]:
    """One of the parts, with the same dependencies: the container reads the annotations."""

    @wraps(parts)
    def part(*dependencies: Any, **named: Any) -> Any:
        return getattr(parts(*dependencies, **named), attribute)

    return part


def _listening(metrics: MetricsProtocol) -> MetricsProtocol | None:
    return None if isinstance(metrics, NoOpMetrics) else metrics


def _in_memory(name: str, settings: CacheSettings, metrics: MetricsProtocol | None) -> _Parts:
    copies = Copies(settings.serializer or "msgpack")
    backend = MemoryCache(
        max_entries=settings.max_entries or MAX_ENTRIES,
        max_bytes=settings.max_bytes,
        values=Shared() if settings.share_values else copies,
        on_evict=None if metrics is None else _evictions(name, metrics),
    )
    return _Parts(
        cache=Cache(backend, name=name, metrics=metrics),
        locks=MemoryLocks(),
        idempotency=MemoryIdempotencyStore(copies),
    )


def _in_sql(
    name: str,
    settings: CacheSettings,
    metrics: MetricsProtocol | None,
    database: Database,
    locks: SqlResourceLocks,
) -> _Parts:
    from lexigram.cache.store import SqlCache
    from lexigram.cache.store_idempotency import SqlIdempotencyStore

    namespace, values = settings.namespace or name, _values(settings)
    backend = SqlCache(database, locks, namespace=namespace, values=values)
    store = SqlIdempotencyStore(database, namespace=namespace, values=values)
    batch = settings.sweep_batch or SWEEP_BATCH

    async def sweep() -> int:
        return await backend.sweep(batch) + await store.sweep(batch) + await locks.sweep_expired()

    return _Parts(
        cache=_cache(backend, name, settings, metrics),
        locks=SqlLocks(locks, namespace=namespace),
        idempotency=store,
        sweep=sweep,
        sweep_interval=settings.sweep_interval or SWEEP_INTERVAL,
    )


def _in_redis(name: str, settings: CacheSettings, metrics: MetricsProtocol | None) -> _Parts:
    from lexigram.cache.redis import PREFIX, RedisCache, RedisConnection
    from lexigram.cache.redis_idempotency import RedisIdempotencyStore
    from lexigram.cache.redis_locks import RedisLocks

    assert settings.redis_url is not None
    prefix, values = settings.namespace or f"{PREFIX}:{name}", _values(settings)
    limits: dict[str, Any] = {
        "timeout": settings.timeout,
        "max_connections": settings.max_connections,
    }
    given = {key: value for key, value in limits.items() if value is not None}
    connection = RedisConnection(settings.redis_url, **given)
    return _Parts(
        cache=_cache(RedisCache(connection, prefix=prefix, values=values), name, settings, metrics),
        locks=RedisLocks(connection, prefix=prefix),
        idempotency=RedisIdempotencyStore(connection, prefix=prefix, values=values),
        aclose=connection.aclose,
    )


def _cache(
    backend: CacheBackendProtocol,
    name: str,
    settings: CacheSettings,
    metrics: MetricsProtocol | None,
) -> Cache:
    return Cache(backend, name=name, metrics=metrics, load_lease=settings.load_lease or LOAD_LEASE)


def _values(settings: CacheSettings) -> Values:
    return Values(settings.serializer or "msgpack")


def _evictions(name: str, metrics: MetricsProtocol) -> Callable[[int], None]:
    tags = {"cache": name}
    return lambda evicted: metrics.increment("cache.evictions", evicted, tags)


async def _sweeping(name: str, sweep: Callable[[], Any], interval: float) -> None:
    while True:
        # Several processes sweep one table: not all at the same moment.
        await anyio.sleep(interval * uniform(0.5, 1.0))  # noqa: S311 - no secret
        try:
            removed = await sweep()
        except (DatabaseError, LockError) as error:
            logger.warning("expired rows not removed", cache=name, error=error.message)
        else:
            logger.debug("expired rows removed", cache=name, rows=removed)

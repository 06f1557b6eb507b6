"""Caches in memory, in the database and in Redis, with locks and idempotency beside them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.cache._leases import LoadLeases
    from lexigram.cache.cache import Cache
    from lexigram.cache.config import CacheConfig, CacheSettings
    from lexigram.cache.idempotency import MemoryIdempotencyStore
    from lexigram.cache.locks import MemoryLocks, SqlLocks
    from lexigram.cache.memory import MemoryCache
    from lexigram.cache.module import CacheModule
    from lexigram.cache.provider import CacheProvider
    from lexigram.cache.redis import RedisCache, RedisConnection
    from lexigram.cache.redis_idempotency import RedisIdempotencyStore
    from lexigram.cache.redis_locks import RedisLocks
    from lexigram.cache.store import SqlCache
    from lexigram.cache.store_idempotency import SqlIdempotencyStore
    from lexigram.cache.values import Copies, Shared, ValueCodec, Values
    from lexigram.contracts.core.idempotency import IdempotencyStoreProtocol
    from lexigram.contracts.core.lock import DistributedLockProtocol
    from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheProtocol

    # Type checkers prove here that each class satisfies its contract.
    _cache: type[CacheProtocol] = Cache
    _backends: tuple[type[CacheBackendProtocol], ...] = (MemoryCache, SqlCache, RedisCache)
    _leases: tuple[type[LoadLeases], ...] = (SqlCache, RedisCache)
    _locks: tuple[type[DistributedLockProtocol], ...] = (MemoryLocks, SqlLocks, RedisLocks)
    _stores: tuple[type[IdempotencyStoreProtocol], ...] = (
        MemoryIdempotencyStore,
        SqlIdempotencyStore,
        RedisIdempotencyStore,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.cache.cache": ["Cache"],
            "lexigram.cache.config": ["CacheConfig", "CacheSettings"],
            "lexigram.cache.idempotency": ["MemoryIdempotencyStore"],
            "lexigram.cache._leases": ["LoadLeases"],
            "lexigram.cache.locks": ["MemoryLocks", "SqlLocks"],
            "lexigram.cache.memory": ["MemoryCache"],
            "lexigram.cache.module": ["CacheModule"],
            "lexigram.cache.provider": ["CacheProvider"],
            "lexigram.cache.redis": ["RedisCache", "RedisConnection"],
            "lexigram.cache.redis_idempotency": ["RedisIdempotencyStore"],
            "lexigram.cache.redis_locks": ["RedisLocks"],
            "lexigram.cache.store": ["SqlCache"],
            "lexigram.cache.store_idempotency": ["SqlIdempotencyStore"],
            "lexigram.cache.values": ["Copies", "Shared", "ValueCodec", "Values"],
        },
    )

__all__ = [
    "Cache",
    "CacheConfig",
    "CacheModule",
    "CacheProvider",
    "CacheSettings",
    "Copies",
    "LoadLeases",
    "MemoryCache",
    "MemoryIdempotencyStore",
    "MemoryLocks",
    "RedisCache",
    "RedisConnection",
    "RedisIdempotencyStore",
    "RedisLocks",
    "Shared",
    "SqlCache",
    "SqlIdempotencyStore",
    "SqlLocks",
    "ValueCodec",
    "Values",
]

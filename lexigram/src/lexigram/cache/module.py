"""The caches as a module: ``CacheModule.configure(...)`` once at the root of an application."""

from __future__ import annotations

from lexigram.cache.config import CacheConfig
from lexigram.cache.provider import CacheProvider
from lexigram.contracts.core.idempotency import IdempotencyStoreProtocol
from lexigram.contracts.core.lock import DistributedLockProtocol
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheProtocol
from lexigram.di import DynamicModule, Module, module

_EXPORTS = (
    CacheConfig,
    CacheProtocol,
    CacheBackendProtocol,
    DistributedLockProtocol,
    IdempotencyStoreProtocol,
)


@module(providers=[CacheProvider], exports=_EXPORTS, is_global=True)
class CacheModule(Module):
    """Binds ``CacheProtocol`` and its companions; the bare class reads section ``cache``."""

    @classmethod
    def configure(cls, config: CacheConfig | None = None) -> DynamicModule:
        """The caches of an explicit configuration, or of section ``cache`` when None."""
        return DynamicModule(
            module=cls, providers=[CacheProvider(config)], exports=_EXPORTS, is_global=True
        )

    @classmethod
    def stub(cls, config: CacheConfig | None = None) -> DynamicModule:
        """Caches for tests: in memory, no file or variable is read."""
        return cls.configure(CacheConfig() if config is None else config)

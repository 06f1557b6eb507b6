"""Contracts of the cache."""

from lexigram.contracts.infra.cache.errors import CacheError, CacheWriteError
from lexigram.contracts.infra.cache.protocols import CacheBackendProtocol

__all__ = ["CacheBackendProtocol", "CacheError", "CacheWriteError"]

"""Contracts of the cache."""

from lexigram.contracts.infra.cache.errors import (
    CacheError,
    CacheKeyError,
    CacheReadError,
    CacheWriteError,
)
from lexigram.contracts.infra.cache.protocols import CacheBackendProtocol, CacheProtocol

__all__ = [
    "CacheBackendProtocol",
    "CacheError",
    "CacheKeyError",
    "CacheProtocol",
    "CacheReadError",
    "CacheWriteError",
]

"""What can go wrong in a cache."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.errors import InfrastructureError


class CacheError(InfrastructureError):
    """The cache could not be reached or answered wrongly."""

    code = "LEX_ERR_CACHE_001"


class CacheWriteError(CacheError):
    """A value was not stored: it cannot be encoded, is too large, or the backend refused it."""

    code = "LEX_ERR_CACHE_003"

    def __init__(self, key: str, reason: str, **kwargs: Any) -> None:
        super().__init__(f"cannot write {key!r} to the cache: {reason}", **kwargs)
        self.key = key
        self.reason = reason


class CacheKeyError(CacheError, ValueError):
    """The key or the time to live is one that no cache can hold; nothing was asked or written."""

    code = "LEX_ERR_CACHE_101"
    is_retryable = False


class CacheReadError(CacheError):
    """A stored value cannot be read: its class is not registered here, or the codec differs."""

    code = "LEX_ERR_CACHE_102"

"""The right to load one key, held by one process at a time: what a shared backend offers."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lexigram.contracts.core.result import Result
from lexigram.contracts.infra.cache import CacheError


@runtime_checkable
class LoadLeases(Protocol):
    """A lease per key, known by a token. It ends by itself after ``seconds`` without a renewal,
    so the death of a process costs those who wait no more than that.
    """

    @property
    def in_transaction(self) -> bool:
        """True where nobody else could see a lease: leave it, and load alone."""
        ...

    async def claim(self, key: str, token: str, seconds: float) -> Result[bool, CacheError]:
        """Take the lease if nobody has it."""
        ...

    async def renew(self, key: str, token: str, seconds: float) -> Result[bool, CacheError]:
        """Start the seconds anew; Ok(False) when it is not ours any more."""
        ...

    async def fill(
        self, key: str, token: str, value: Any, ttl: float | None
    ) -> Result[bool, CacheError]:
        """Store the value and give the lease back, both or none.

        Ok(False), and nothing is stored, when the lease is not ours any more: its owner
        knows newer things.
        """
        ...

    async def abandon(self, key: str, token: str) -> Result[bool, CacheError]:
        """Give the lease back without a value; another's is not changed."""
        ...

"""What the specs of the cache contract share."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from enum import StrEnum
from threading import Lock
from typing import Any

import anyio
import pytest

from lexigram.contracts.infra.cache import CacheBackendProtocol
from lexigram.testing.conformance.suite import ConformanceSuite


class CacheCapability(StrEnum):
    """What a cache can do. The first five are the core."""

    VALUES = "values"  # write, read, replace, remove, clear
    EXPIRY = "expiry"
    BATCHES = "batches"  # the *_many methods
    PATTERNS = "patterns"  # delete_pattern
    HEALTH = "health"
    COPIES = "copies"  # changing a value outside does not change the one inside
    REFUSAL = "refusal"  # what cannot be encoded is an Err; fixture `unencodable`
    SHARING = "sharing"  # several caches on one backend; fixture `neighbour`
    OUTAGE = "outage"  # the test can break the backend; fixture `outage`


class CacheSpec(ConformanceSuite):
    """The contract, the core, and how a test lets time pass or breaks the backend."""

    contract = CacheBackendProtocol
    core = frozenset(
        {
            CacheCapability.VALUES,
            CacheCapability.EXPIRY,
            CacheCapability.BATCHES,
            CacheCapability.PATTERNS,
            CacheCapability.HEALTH,
        }
    )

    @pytest.fixture
    def advance(self, subject: CacheBackendProtocol) -> Callable[[float], Any]:
        """Lets seconds pass for the cache, plain or async; they really pass by default."""
        return anyio.sleep

    @pytest.fixture
    def elapse(self, advance: Callable[[float], Any]) -> Callable[[float], Awaitable[None]]:
        """``advance``, always to be awaited."""

        async def elapse(seconds: float) -> None:
            done = advance(seconds)
            if inspect.isawaitable(done):
                await done

        return elapse

    @pytest.fixture
    def unencodable(self, subject: CacheBackendProtocol) -> Any:
        """A value the backend cannot store."""
        return Lock()

    @pytest.fixture
    def neighbour(self, subject: CacheBackendProtocol) -> CacheBackendProtocol:
        """Another cache with other keys on the same backend."""
        pytest.fail("declares 'sharing' but gives no fixture `neighbour`", pytrace=False)

    @pytest.fixture
    def outage(self, subject: CacheBackendProtocol) -> Callable[[], Any]:
        """Makes a context manager, plain or async, inside which the backend is out of reach."""
        pytest.fail("declares 'outage' but gives no fixture `outage`", pytrace=False)

"""What the specs of the cache contract share."""

from __future__ import annotations

from enum import StrEnum
from threading import Lock
from typing import Any

import pytest

from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheProtocol
from lexigram.testing.conformance.backed import BackedSuite


class CacheCapability(StrEnum):
    """What a cache can do. The first five are the core."""

    VALUES = "values"  # write, read, replace, remove, clear
    EXPIRY = "expiry"
    BATCHES = "batches"  # the *_many methods
    PATTERNS = "patterns"  # delete_pattern
    HEALTH = "health"
    KEYS = "keys"  # what is no key is an Err; an adapter that adds a prefix cannot tell
    COPIES = "copies"  # changing a value outside does not change the one inside
    REFUSAL = "refusal"  # what cannot be encoded is an Err; fixture `unencodable`
    SHARING = "sharing"  # several caches on one backend; fixture `neighbour`
    OUTAGE = "outage"  # the test can break the backend; fixture `outage`
    LOADING = "loading"  # get_or_set: the subject is a CacheProtocol
    SHARED_LOADING = "shared_loading"  # one load among several processes; fixture `peer`


class CacheSpec(BackedSuite):
    """The contract, the core, and what some capabilities need."""

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
    def unencodable(self, subject: CacheBackendProtocol) -> Any:
        """A value the backend cannot store."""
        return Lock()

    @pytest.fixture
    def neighbour(self, subject: CacheBackendProtocol) -> CacheBackendProtocol:
        """Another cache with other keys on the same backend."""
        pytest.fail("declares 'sharing' but gives no fixture `neighbour`", pytrace=False)

    @pytest.fixture
    def peer(self, subject: CacheBackendProtocol) -> CacheProtocol:
        """Another cache with the same keys on the same backend, as another process has it."""
        pytest.fail("declares 'shared_loading' but gives no fixture `peer`", pytrace=False)

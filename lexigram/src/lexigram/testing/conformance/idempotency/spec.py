"""What the specs of the idempotency contract share."""

from __future__ import annotations

from enum import StrEnum
from threading import Lock
from typing import Any

import pytest

from lexigram.contracts.core.idempotency import IdempotencyStoreProtocol
from lexigram.testing.conformance.backed import BackedSuite


class IdempotencyCapability(StrEnum):
    """What an idempotency store can do. The first three are the core."""

    CLAIMS = "claims"
    OUTCOMES = "outcomes"
    EXPIRY = "expiry"
    REFUSAL = "refusal"  # what cannot be encoded is an Err; fixture `unencodable`
    OUTAGE = "outage"  # the test can break the backend; fixture `outage`


class IdempotencySpec(BackedSuite):
    """The contract and the core."""

    contract = IdempotencyStoreProtocol
    core = frozenset(
        {
            IdempotencyCapability.CLAIMS,
            IdempotencyCapability.OUTCOMES,
            IdempotencyCapability.EXPIRY,
        }
    )

    @pytest.fixture
    def unencodable(self, subject: IdempotencyStoreProtocol) -> Any:
        """A value the backend cannot store."""
        return Lock()

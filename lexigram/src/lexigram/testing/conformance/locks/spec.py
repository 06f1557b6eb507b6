"""What the specs of the lock contract share."""

from __future__ import annotations

from enum import StrEnum

from lexigram.contracts.core.lock import DistributedLockProtocol
from lexigram.testing.conformance.backed import BackedSuite


class LockCapability(StrEnum):
    """What locks can do; all but the last are the core."""

    EXCLUSION = "exclusion"
    EXPIRY = "expiry"
    WAITING = "waiting"  # acquire_blocking
    FENCES = "fences"
    OUTAGE = "outage"  # the test can break the backend; fixture `outage`


class LockSpec(BackedSuite):
    """The contract and the core."""

    contract = DistributedLockProtocol
    core = frozenset(LockCapability) - {LockCapability.OUTAGE}

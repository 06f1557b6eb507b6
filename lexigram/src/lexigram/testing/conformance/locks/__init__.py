"""The conformance suite of DistributedLockProtocol."""

from lexigram.testing.conformance.locks.spec import LockCapability
from lexigram.testing.conformance.locks.suite import LockConformance

__all__ = ["LockCapability", "LockConformance"]

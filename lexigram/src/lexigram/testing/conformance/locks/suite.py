"""All that locks promise, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.locks.exclusion import ExclusionSpec
from lexigram.testing.conformance.locks.expiry import ExpirySpec
from lexigram.testing.conformance.locks.fences import FencesSpec
from lexigram.testing.conformance.locks.outage import OutageSpec
from lexigram.testing.conformance.locks.waiting import WaitingSpec


class LockConformance(ExclusionSpec, ExpirySpec, WaitingSpec, FencesSpec, OutageSpec):
    """Run it on locks: ``conformance_suite(LockConformance, MyLocks)``."""

"""All that a state persistence promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.states.history import HistorySpec
from lexigram.testing.conformance.states.versions import SharingSpec, VersionsSpec


class StatePersistenceConformance(HistorySpec, VersionsSpec, SharingSpec):
    """Run it on one: ``conformance_suite(StatePersistenceConformance, MyPersistence)``."""

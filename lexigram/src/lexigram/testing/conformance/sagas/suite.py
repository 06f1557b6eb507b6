"""All that a saga store promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.sagas.leases import LeasesSpec, SharingSpec
from lexigram.testing.conformance.sagas.states import StatesSpec


class SagaStoreConformance(StatesSpec, LeasesSpec, SharingSpec):
    """Run it on a store: ``conformance_suite(SagaStoreConformance, MyStore)``."""

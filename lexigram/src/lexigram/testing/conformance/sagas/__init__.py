"""The conformance suite of SagaStoreProtocol, and of stores that lend sagas."""

from lexigram.testing.conformance.sagas.spec import SagaStoreCapability
from lexigram.testing.conformance.sagas.suite import SagaStoreConformance

__all__ = ["SagaStoreCapability", "SagaStoreConformance"]

"""The conformance suite of StatePersistenceProtocol."""

from lexigram.testing.conformance.states.spec import StatePersistenceCapability
from lexigram.testing.conformance.states.suite import StatePersistenceConformance

__all__ = ["StatePersistenceCapability", "StatePersistenceConformance"]

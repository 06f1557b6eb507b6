"""The conformance suite of VectorStoreProtocol and VectorCollectionProtocol."""

from lexigram.testing.conformance.vectors.spec import VectorCapability
from lexigram.testing.conformance.vectors.suite import VectorConformance

__all__ = ["VectorCapability", "VectorConformance"]

"""The conformance suite of CheckpointStoreProtocol."""

from lexigram.testing.conformance.checkpoints.spec import CheckpointCapability
from lexigram.testing.conformance.checkpoints.suite import CheckpointConformance

__all__ = ["CheckpointCapability", "CheckpointConformance"]

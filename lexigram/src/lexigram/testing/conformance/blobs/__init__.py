"""The conformance suite of BlobStoreProtocol."""

from lexigram.testing.conformance.blobs.spec import BlobCapability
from lexigram.testing.conformance.blobs.suite import BlobConformance

__all__ = ["BlobCapability", "BlobConformance"]

"""The conformance suite of CacheBackendProtocol."""

from lexigram.testing.conformance.cache.spec import CacheCapability
from lexigram.testing.conformance.cache.suite import CacheConformance

__all__ = ["CacheCapability", "CacheConformance"]

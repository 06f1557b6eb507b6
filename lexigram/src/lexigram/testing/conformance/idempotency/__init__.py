"""The conformance suite of IdempotencyStoreProtocol."""

from lexigram.testing.conformance.idempotency.spec import IdempotencyCapability
from lexigram.testing.conformance.idempotency.suite import IdempotencyConformance

__all__ = ["IdempotencyCapability", "IdempotencyConformance"]

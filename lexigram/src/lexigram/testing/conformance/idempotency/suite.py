"""All that an idempotency store promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.idempotency.claims import ClaimsSpec
from lexigram.testing.conformance.idempotency.expiry import ExpirySpec
from lexigram.testing.conformance.idempotency.outage import OutageSpec
from lexigram.testing.conformance.idempotency.outcomes import OutcomesSpec
from lexigram.testing.conformance.idempotency.refusal import RefusalSpec


class IdempotencyConformance(ClaimsSpec, OutcomesSpec, ExpirySpec, RefusalSpec, OutageSpec):
    """Run it on a store: ``conformance_suite(IdempotencyConformance, MyStore)``."""

"""Shipped conformance suites: what each contract promises, as tests for its implementers.

They import contracts, pytest and anyio only.
"""

from lexigram.testing.conformance.suite import ConformanceSuite, conformance_suite

__all__ = ["ConformanceSuite", "conformance_suite"]

"""All that a cache promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.cache.concurrency import (
    LoadingSpec,
    SharedLoadingSpec,
    SharingSpec,
)
from lexigram.testing.conformance.cache.failures import HealthSpec, OutageSpec, RefusalSpec
from lexigram.testing.conformance.cache.storage import (
    BatchesSpec,
    CopiesSpec,
    ExpirySpec,
    KeysSpec,
    PatternsSpec,
    ValuesSpec,
)


class CacheConformance(
    ValuesSpec,
    ExpirySpec,
    BatchesSpec,
    PatternsSpec,
    HealthSpec,
    KeysSpec,
    CopiesSpec,
    RefusalSpec,
    SharingSpec,
    OutageSpec,
    LoadingSpec,
    SharedLoadingSpec,
):
    """Run it on a cache: ``conformance_suite(CacheConformance, MyCache)``.

    A cache with a limit needs room for 300 small values: the contract allows eviction, but a
    test cannot tell an evicted value from a lost one.
    """

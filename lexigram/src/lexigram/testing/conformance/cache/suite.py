"""All that a cache promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.cache.batches import BatchesSpec
from lexigram.testing.conformance.cache.copies import CopiesSpec
from lexigram.testing.conformance.cache.expiry import ExpirySpec
from lexigram.testing.conformance.cache.health import HealthSpec
from lexigram.testing.conformance.cache.keys import KeysSpec
from lexigram.testing.conformance.cache.loading import LoadingSpec
from lexigram.testing.conformance.cache.outage import OutageSpec
from lexigram.testing.conformance.cache.patterns import PatternsSpec
from lexigram.testing.conformance.cache.refusal import RefusalSpec
from lexigram.testing.conformance.cache.shared_loading import SharedLoadingSpec
from lexigram.testing.conformance.cache.sharing import SharingSpec
from lexigram.testing.conformance.cache.values import ValuesSpec


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

from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.cache import CacheCapability, CacheConformance
from lexigram.testing.fakes import FakeCache

TestFakeCache = conformance_suite(
    CacheConformance,
    FakeCache,
    capabilities=set(CacheCapability) - {CacheCapability.SHARING},
    advance=lambda cache: cache.clock.advance,
    outage=lambda cache: cache.outage,
)

from threading import Lock

import anyio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.infra.cache import CacheBackendProtocol, CacheError, CacheWriteError
from lexigram.testing import assert_err, assert_ok
from lexigram.testing.fakes import FakeCache, FakeClock

# What the contract promises is checked by tests/conformance/test_cache.py; here is the rest.


def test_a_fake_cache_satisfies_the_contract():
    assert isinstance(FakeCache(), CacheBackendProtocol)


async def test_values_expire_by_the_clock_it_was_given():
    clock = FakeClock()
    cache = FakeCache(clock=clock)
    await cache.set("key", 1, ttl=60)
    clock.advance(59.9)
    assert assert_ok(await cache.get("key")) == 1
    clock.advance(0.1)
    assert assert_ok(await cache.get("key")) is None


async def test_moving_the_wall_time_expires_nothing(fake_clock, fake_cache):
    await fake_cache.set("key", 1, ttl=60)
    fake_clock.set(fake_clock.now().replace(year=2099))
    assert assert_ok(await fake_cache.get("key")) == 1


async def test_the_keys_that_hold_a_value_can_be_listed(fake_clock, fake_cache):
    await fake_cache.set_many({"a": 1, "b": 2})
    await fake_cache.set("short", 3, ttl=1)
    fake_clock.tick()
    assert fake_cache.keys() == ["a", "b"]


async def test_an_outage_fails_with_the_error_it_was_given_and_ends(fake_cache):
    await fake_cache.set("key", 1)
    error = CacheError("connection refused")
    with fake_cache.outage(error):
        assert assert_err(await fake_cache.get("key"), CacheError) is error
        health = await fake_cache.health_check()
        assert (health.status, health.error) == (HealthStatus.UNHEALTHY, str(error))
    assert assert_ok(await fake_cache.get("key")) == 1


async def test_outages_nest(fake_cache):
    with fake_cache.outage():
        with fake_cache.outage():
            pass
        assert (await fake_cache.get("key")).is_err()


async def test_a_batch_with_a_value_that_cannot_be_copied_stores_nothing(fake_cache):
    error = assert_err(await fake_cache.set_many({"good": 1, "bad": Lock()}), CacheWriteError)
    assert error.key == "bad"
    assert isinstance(error.cause, TypeError)
    assert fake_cache.keys() == []


class CacheBesideADict(RuleBasedStateMachine):
    """Whatever is done in whatever order, the cache holds what a dict with deadlines holds."""

    def __init__(self):
        super().__init__()
        self.cache = FakeCache()
        self.model = {}

    keys = st.sampled_from("abc")
    ttls = st.none() | st.integers(1, 10)

    def run(self, call, *args):
        return assert_ok(anyio.run(call, *args))

    def live(self):
        now = self.cache.clock.monotonic()
        return {key: value for key, (value, end) in self.model.items() if end is None or now < end}

    @rule(key=keys, value=st.integers(), ttl=ttls)
    def set(self, key, value, ttl):
        self.run(self.cache.set, key, value, ttl)
        self.model[key] = (value, None if ttl is None else self.cache.clock.monotonic() + ttl)

    @rule(key=keys)
    def delete(self, key):
        assert self.run(self.cache.delete, key) == (key in self.live())
        self.model.pop(key, None)

    @rule(seconds=st.integers(0, 5))
    def advance(self, seconds):
        self.cache.clock.advance(seconds)

    @rule(pattern=st.sampled_from(["*", "[ab]", "c", "?"]))
    def delete_pattern(self, pattern):
        gone = {"*": "abc", "[ab]": "ab", "c": "c", "?": "abc"}[pattern]
        assert self.run(self.cache.delete_pattern, pattern) == len(set(gone) & set(self.live()))
        self.model = {key: value for key, value in self.model.items() if key not in gone}

    @invariant()
    def holds_what_the_dict_holds(self):
        assert self.run(self.cache.get_many, "abc") == self.live()
        assert sorted(self.cache.keys()) == sorted(self.live())


TestCacheBesideADict = CacheBesideADict.TestCase
TestCacheBesideADict.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)

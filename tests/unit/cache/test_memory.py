from collections import OrderedDict

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram import clock
from lexigram.cache import Cache, MemoryCache, Shared
from lexigram.contracts.core.result import Ok
from lexigram.contracts.infra.cache import CacheWriteError
from lexigram.testing.fakes import FakeClock


@pytest.fixture
def time():
    with clock.use(FakeClock()) as fake:
        yield fake


async def test_what_was_used_longest_ago_goes_first():
    cache = MemoryCache(max_entries=3)
    await cache.set_many({"a": 1, "b": 2, "c": 3})
    await cache.get("a")
    await cache.set("b", 22)
    await cache.exists("c")  # looking is not using
    await cache.set("d", 4)
    assert await cache.get_many("abcd") == Ok({"a": 1, "b": 22, "d": 4})


async def test_what_has_expired_goes_before_what_is_still_good(time):
    evicted = []
    cache = MemoryCache(max_entries=3, on_evict=evicted.append)
    await cache.set("old", 1)
    await cache.set("expired", 2, ttl=1)
    await cache.set("new", 3)
    time.advance(2)
    await cache.set("next", 4)
    assert await cache.get_many(["old", "expired", "new", "next"]) == Ok(
        {"old": 1, "new": 3, "next": 4}
    )
    assert evicted == []
    await cache.set("one more", 5)
    assert evicted == [1]


async def test_a_value_larger_than_the_whole_cache_is_refused_and_the_old_one_stays():
    cache = MemoryCache(max_bytes=1000)
    await cache.set("key", "small")
    error = (await cache.set("key", "x" * 1000)).unwrap_err()
    assert isinstance(error, CacheWriteError)
    assert "more than the 1000 of the whole cache" in str(error)
    assert await cache.get("key") == Ok("small")


async def test_bytes_are_bounded_and_given_back():
    cache = MemoryCache(max_bytes=10_000)
    for number in range(500):
        await cache.set(f"key {number}", {"text": "x" * (number % 50)})
        assert 0 < cache.size <= 10_000
    assert 20 < len(cache) < 500
    kept = len(cache)
    assert await cache.delete_pattern("*") == Ok(kept)
    assert (len(cache), cache.size) == (0, 0)


async def test_values_that_expire_and_are_replaced_leave_nothing_behind(time):
    cache = MemoryCache(max_entries=100)
    for number in range(10_000):
        await cache.set(f"key {number % 7}", number, ttl=1000)
    assert len(cache._expiries) <= 2 * len(cache) + 65


async def test_shared_values_are_the_objects_themselves():
    cache, value = Cache(MemoryCache(values=Shared())), object()
    assert await cache.set("key", value) == Ok(None)
    assert (await cache.get("key")).unwrap() is value


KEYS = st.sampled_from("abcdefgh")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("set"), KEYS, st.sampled_from([None, 1.0, 3.0])),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 2.0])),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 5))
def test_it_is_the_simple_model_of_a_bounded_cache(steps, limit):
    """An OrderedDict that drops all expired values before the one used longest ago."""
    with clock.use(FakeClock()) as time:
        cache, model = MemoryCache(max_entries=limit), OrderedDict()

        async def run():
            for number, step in enumerate(steps):
                await one(number, *step)
                assert len(cache) <= limit

        async def one(number, what, *args):
            now = time.monotonic()
            live = {key for key, (_, until) in model.items() if until > now}
            if what == "get":
                expected = model[args[0]][0] if args[0] in live else None
                assert await cache.get(args[0]) == Ok(expected)
                if args[0] in live:
                    model.move_to_end(args[0])
            elif what == "delete":
                assert await cache.delete(args[0]) == Ok(args[0] in live)
                model.pop(args[0], None)
            elif what == "set":
                key, ttl = args
                await cache.set(key, number, ttl)
                model.pop(key, None)
                if len(live - {key}) < len(model):
                    for gone in set(model) - live:
                        if len(model) >= limit:
                            del model[gone]
                while len(model) >= limit:
                    model.popitem(last=False)
                model[key] = (number, now + ttl if ttl else float("inf"))
            else:
                time.advance(args[0])

        anyio.run(run)


async def test_the_limits_hold_at_every_moment_under_load():
    """200 tasks read, write, expire and load 2,000 keys in a cache for 300 of them."""
    backend = MemoryCache(max_entries=300, max_bytes=60_000)
    cache = Cache(backend)

    async def work(number):
        for turn in range(100):
            key = f"key {(number * 37 + turn * 101) % 2000}"
            match turn % 4:
                case 0:
                    await cache.set(key, {"number": number, "x": "x" * (turn * 5)}, ttl=0.001)
                case 1:
                    await cache.get(key)
                case 2:
                    await cache.get_or_set(key, anyio.lowlevel.checkpoint, ttl=60)
                case _:
                    await cache.delete(key)
            assert len(backend) <= 300
            assert backend.size <= 60_000
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(work, number)
    await cache.clear()
    assert (len(backend), backend.size) == (0, 0)


async def test_no_value_is_read_after_its_ttl_under_load(time):
    cache = MemoryCache(max_entries=50)
    written: dict[str, float] = {}
    for turn in range(5000):
        key, ttl = f"key {turn * 7919 % 120}", 1.0 + turn % 5
        found = (await cache.get(key)).unwrap()
        if found is not None:
            assert time.monotonic() < written[key]
        await cache.set(key, turn, ttl)
        written[key] = time.monotonic() + ttl
        time.advance(0.05)

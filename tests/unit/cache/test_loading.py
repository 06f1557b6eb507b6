from contextlib import nullcontext

import anyio
import anyio.lowlevel
import pytest
from tests.failures import TIME_LIMIT, WAYS_TO_FAIL, block_the_loop

from lexigram.cache import Cache, MemoryCache
from lexigram.concurrency import CallAbortedError, CallTimeoutError
from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.infra.cache import CacheError, CacheReadError, CacheWriteError
from lexigram.testing.fakes import FakeCache


class Leased(FakeCache):
    """A shared backend in miniature: leases end when the test says so."""

    in_transaction = False

    def __init__(self):
        super().__init__()
        self.holders = {}
        self.renewed = anyio.Event()

    async def claim(self, key, token, seconds):
        if self._failure is not None:
            return Err(self._failure)
        return Ok(self.holders.setdefault(key, token) == token)

    async def renew(self, key, token, seconds):
        self.renewed.set()
        return Ok(self.holders.get(key) == token)

    async def fill(self, key, token, value, ttl):
        if self.holders.get(key) != token:
            return Ok(False)
        stored = await self.set(key, value, ttl)
        if stored.is_err():
            return stored
        return await self.abandon(key, token)

    async def abandon(self, key, token):
        if self.holders.get(key) != token:
            return Ok(False)
        del self.holders[key]
        return Ok(True)


async def one():
    return 1


@pytest.mark.parametrize("backend", [FakeCache, Leased])
async def test_an_outage_costs_the_cache_and_not_the_value(backend, logs):
    fake = backend()
    cache = Cache(fake)
    with fake.outage():
        assert await cache.get_or_set("key", one) == Ok(1)
        assert await cache.get_or_set("key", one) == Ok(1)
    assert await cache.get_or_set("key", one) == Ok(1)
    assert await cache.get("key") == Ok(1)
    assert len(logs.find("loading without the cache")) == 1
    assert len(logs.find("the cache answers again")) == 1


@pytest.mark.parametrize("backend", [FakeCache, Leased])
async def test_callers_share_a_load_during_an_outage_too(backend):
    fake, runs, go = backend(), [], anyio.Event()
    cache = Cache(fake)

    async def load():
        runs.append(1)
        await go.wait()
        return [1]

    with fake.outage():
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(cache.get_or_set, "key", load)
            await anyio.wait_all_tasks_blocked()
            go.set()
    assert len(runs) == 1


@pytest.mark.parametrize("is_out", [False, True])
@pytest.mark.parametrize("backend", [FakeCache, Leased])
async def test_a_value_that_cannot_be_copied_is_an_err_for_all_who_waited(backend, is_out):
    fake, answers = backend(), []
    cache = Cache(fake)

    async def load():
        await anyio.lowlevel.checkpoint()
        return object()

    async def ask():
        answers.append(await cache.get_or_set("key", load))

    with fake.outage() if is_out else nullcontext():
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
    assert [type(answer.unwrap_err()) for answer in answers] == [CacheWriteError] * 3
    assert getattr(fake, "holders", {}) == {}


async def test_a_loader_that_lost_its_lease_gives_its_value_and_stores_nothing(logs):
    backend = Leased()
    cache = Cache(backend, load_lease=0.05)

    async def load():
        backend.holders["key"] = "somebody else"
        await backend.renewed.wait()
        return "mine"

    assert await cache.get_or_set("key", load) == Ok("mine")
    assert await backend.exists("key") == Ok(False)
    assert backend.holders == {"key": "somebody else"}


async def test_a_slow_loader_keeps_its_lease():
    backend = Leased()

    async def load():
        await backend.renewed.wait()
        return 1

    assert await Cache(backend, load_lease=0.05).get_or_set("key", load) == Ok(1)
    assert backend.holders == {}


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_the_lease_is_given_back_when_the_loader_did_not_end_well(how):
    backend = Leased()
    cache = Cache(backend)

    async def load():
        if how == "failed":
            raise KeyError
        scope.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        try:
            await cache.get_or_set("key", load)
        except KeyError:
            pass
    assert backend.holders == {}


async def test_a_stored_value_that_cannot_be_read_is_loaded_again(logs):
    class Garbled(FakeCache):
        async def get_many(self, keys):
            return Err(CacheReadError("written by another version"))

    assert await Cache(Garbled()).get_or_set("key", one) == Ok(1)
    assert logs.find("cached value ignored")


@pytest.mark.parametrize("backend", [MemoryCache, Leased])
async def test_a_loader_that_asks_for_its_own_key_is_told_so_and_does_not_hang(backend):
    cache = Cache(backend())

    async def load():
        return str((await cache.get_or_set("key", load)).unwrap_err())

    answer = (await cache.get_or_set("key", load)).unwrap()
    assert "the loader of 'key' asks for 'key' and would wait for itself" in answer


async def test_a_transaction_loads_alone():
    backend = Leased()
    backend.in_transaction = True
    assert await Cache(backend).get_or_set("key", one) == Ok(1)
    assert await backend.get("key") == Ok(1)
    assert backend.holders == {}


async def test_figures_are_told_to_who_listens(fake_metrics):
    cache = Cache(MemoryCache(), name="shop", metrics=fake_metrics)
    await cache.set("none", None)
    await cache.get("none")
    await cache.get("missing")
    await cache.get_many(["none", "missing", "missing"])
    await cache.get_or_set("key", one)
    await cache.get_or_set("key", one)
    assert fake_metrics.counted("cache.hits", cache="shop") == 3
    assert fake_metrics.counted("cache.misses", cache="shop") == 3
    assert len(fake_metrics.observed("cache.load_seconds", cache="shop")) == 1
    fake = FakeCache()
    with fake.outage():
        assert isinstance(
            (await Cache(fake, metrics=fake_metrics).get("k")).unwrap_err(), CacheError
        )
    assert fake_metrics.counted("cache.errors", cache="default") == 1


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
@pytest.mark.parametrize("backend", [FakeCache, Leased])
async def test_a_loader_that_fails_in_any_way_fails_its_callers_and_holds_up_nobody(backend, fail):
    fake = backend()
    cache, failures, begun = Cache(fake), [], anyio.Event()

    async def broken():
        begun.set()
        await anyio.lowlevel.checkpoint()
        await fail()

    async def ask():
        with pytest.raises((ValueError, CallAbortedError, CallTimeoutError)) as caught:
            await cache.get_or_set("key", broken, timeout=TIME_LIMIT)
        failures.append(caught.value)

    async with anyio.create_task_group() as callers:
        callers.start_soon(ask)
        await begun.wait()
        callers.start_soon(ask)
        assert await cache.get_or_set("other", one) == Ok(1)
    assert len(failures) == 2
    assert await cache.get_or_set("key", one, timeout=TIME_LIMIT) == Ok(1)
    assert getattr(fake, "holders", {}) == {}


async def test_a_loader_that_blocks_the_loop_past_its_lease_still_gives_its_value():
    lease = 0.05
    fake = Leased()
    cache = Cache(fake, load_lease=lease)

    async def slow():
        await fake.renewed.wait()
        block_the_loop(lease)
        fake.holders.clear()  # the lease is over
        return 1

    assert await cache.get_or_set("key", slow) == Ok(1)
    assert fake.keys() == []
    assert await cache.get_or_set("key", one) == Ok(1)
    assert fake.keys() == ["key"]

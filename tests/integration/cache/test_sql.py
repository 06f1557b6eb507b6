"""What only a cache in a database has: transactions, a sweep, many rows."""

import anyio
import pytest

from lexigram.cache import Cache, SqlCache, SqlIdempotencyStore
from lexigram.contracts.core.result import Ok
from lexigram.sql import TransactionScopeError
from lexigram.testing import wait_until


@pytest.fixture
def cache(database):
    return Cache(SqlCache(database))


async def test_what_is_rolled_back_was_never_cached(cache, database):
    await cache.set("key", "before")
    with pytest.raises(KeyError):
        async with database.transaction():
            await cache.set("key", "inside")
            assert await cache.get("key") == Ok("inside")
            assert await cache.get_or_set("loaded", _load) == Ok("loaded")
            raise KeyError
    assert await cache.get("key") == Ok("before")
    assert await cache.exists("loaded") == Ok(False)


async def test_a_claim_is_undone_with_its_work(database):
    once = SqlIdempotencyStore(database)
    with pytest.raises(KeyError):
        async with database.transaction():
            assert await once.acquire("key") == Ok(True)
            raise KeyError
    assert await once.acquire("key") == Ok(True)


async def test_the_transaction_of_another_task_is_a_mistake_and_raised(cache, database):
    caught = []

    async def child():
        with pytest.raises(TransactionScopeError):
            await cache.get("key")
        caught.append(True)

    async with database.transaction(), anyio.create_task_group() as tasks:
        tasks.start_soon(child)
    assert caught


async def test_the_sweep_removes_expired_rows_of_its_namespace_in_batches(database):
    mine, theirs = SqlCache(database, namespace="mine"), SqlCache(database, namespace="theirs")
    items = {f"key {number}": number for number in range(250)}
    await mine.set_many(items, ttl=0.01)
    await theirs.set_many(items, ttl=0.01)
    await mine.set("kept", 1, ttl=60)
    await mine.set("for ever", 1)
    await wait_until(lambda: _is_empty(mine, items))
    assert await mine.sweep(batch=100) == 250
    assert await mine.sweep() == 0
    left = await database.execute_query("SELECT count(*) AS n FROM lexigram_cache")
    assert left.rows[0]["n"] == 252
    assert await mine.get_many(["kept", "for ever"]) == Ok({"kept": 1, "for ever": 1})


async def test_a_pattern_goes_through_more_keys_than_a_page(database):
    cache = SqlCache(database)
    await cache.set_many({f"{'ab'[number % 2]}:{number}": number for number in range(2500)})
    assert await cache.delete_pattern("a:*") == Ok(1250)
    assert await cache.delete_pattern("*:2499") == Ok(1)
    assert await cache.delete_pattern("*") == Ok(1249)


async def test_many_writers_of_the_same_keys_do_not_wait_for_each_other(database):
    cache = SqlCache(database)
    keys = [f"key {number}" for number in range(30)]
    answers = []

    async def work(number):
        order = keys if number % 2 else keys[::-1]
        answers.append(await cache.set_many(dict.fromkeys(order, number)))
        answers.append((await cache.delete_many(order)).map_sync(lambda _: None))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(work, number)
    assert answers == [Ok(None)] * 20


async def _load():
    return "loaded"


async def _is_empty(cache, items):
    return (await cache.get_many(items)).unwrap() == {}

"""A Redis that goes away and comes back."""

import asyncio
import signal

import anyio
import pytest

from lexigram.cache import (
    Cache,
    RedisCache,
    RedisConnection,
    RedisIdempotencyStore,
    RedisLocks,
)
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.core.lock import LockError
from lexigram.contracts.core.result import Ok
from lexigram.testing import wait_until


@pytest.fixture
async def connection(redis_server):
    made = RedisConnection(redis_server.url, timeout=10.0, max_connections=4)
    yield made
    await made.aclose()


async def test_a_restart_is_err_results_and_then_it_works_again(redis_server, connection):
    cache = Cache(RedisCache(connection))
    locks, once = RedisLocks(connection), RedisIdempotencyStore(connection)
    await wait_until(lambda: _answers(cache))
    async with anyio.create_task_group() as tasks:  # fill the pool
        for number in range(20):
            tasks.start_soon(cache.set, f"key {number}", number)

    await anyio.to_thread.run_sync(redis_server.kill)
    assert (await cache.get("key 1")).is_err()
    assert (await cache.set("key 1", 2)).is_err()
    assert (await once.acquire("key")).is_err()
    with pytest.raises(LockError):
        await locks.acquire("key", "me")
    assert await cache.get_or_set("key 1", _load) == Ok("loaded")
    assert (await cache.health_check(timeout=1.0)).status is HealthStatus.UNHEALTHY

    redis_server.start()
    await wait_until(lambda: _answers(cache))
    assert await cache.get("key 1") == Ok(None)  # it keeps nothing on its disk
    assert await cache.get_or_set("key 1", _load) == Ok("loaded")
    assert await cache.get("key 1") == Ok("loaded")
    assert await locks.acquire("key", "me")
    assert await once.acquire("key") == Ok(True)
    assert (await cache.health_check()).status is HealthStatus.HEALTHY


async def test_a_restart_between_two_calls_is_not_even_noticed(redis_server, connection):
    cache = RedisCache(connection)
    await wait_until(lambda: _answers(cache))
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(cache.set, f"key {number}", number)
    await anyio.to_thread.run_sync(redis_server.kill)
    redis_server.start()
    other = RedisCache(RedisConnection(redis_server.url))
    await wait_until(lambda: _answers(other))
    await other._redis.aclose()
    # Every connection of the pool is dead; each shows it at its use and is made anew.
    for number in range(8):
        assert await cache.set(f"key {number}", number) == Ok(None)
        assert await cache.get(f"key {number}") == Ok(number)


async def test_more_callers_than_connections_wait_for_one(redis_server):
    connection = RedisConnection(redis_server.url, timeout=30, max_connections=4)
    cache = RedisCache(connection)
    await wait_until(lambda: _answers(cache))
    answers = []

    async def ask(number):
        answers.append(await cache.set(f"key {number}", number))

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(ask, number)
    assert answers == [Ok(None)] * 200
    info = await connection.client.info("clients")
    assert info["connected_clients"] <= 4
    await connection.aclose()


async def test_a_cancellation_is_never_lost_and_the_cache_goes_on(redis_server, connection):
    cache = RedisCache(connection)
    await wait_until(lambda: _answers(cache))
    cancelled = 0
    for turn in range(300):
        task = asyncio.create_task(cache.set("key", turn))
        for _ in range(turn % 12):
            await asyncio.sleep(0)
        if task.cancel():
            await asyncio.wait([task])
            assert task.cancelled()
            cancelled += 1
        assert await cache.set("other", turn) == Ok(None)
        assert await cache.get("other") == Ok(turn)
    assert cancelled > 50


async def test_a_server_that_hangs_costs_the_timeout_and_no_more(redis_server):
    connection = RedisConnection(redis_server.url, timeout=0.2)
    cache = RedisCache(connection)
    await wait_until(lambda: _answers(cache))
    redis_server.process.send_signal(signal.SIGSTOP)
    try:
        with anyio.fail_after(60):
            assert (await cache.get("key")).is_err()
            assert (await cache.health_check(0.1)).status is HealthStatus.UNHEALTHY
    finally:
        redis_server.process.send_signal(signal.SIGCONT)
    assert await wait_until(lambda: _answers(cache))
    await connection.aclose()


async def _answers(cache):
    return (await cache.health_check()).status is HealthStatus.HEALTHY


async def _load():
    return "loaded"

"""The locks, wake-ups and group commits, on both databases."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from lexigram.contracts.core import LockConflictError, LockError, LockLostError
from lexigram.contracts.data import ResourceLockKind, ResourceLockProtocol
from lexigram.leasing import Coalescer
from lexigram.sql import Database, SqlModule, TransactionScopeError
from lexigram.sql.leasing import WakeUp
from lexigram.sql.locks import SqlResourceLocks
from lexigram.testing import boot, wait_until

pytestmark = pytest.mark.anyio

LONG, SHORT = 300.0, 0.05


@pytest.fixture
async def database(migrated_url):
    async with Database(migrated_url) as opened:
        yield opened


@pytest.fixture
def locks(database):
    return SqlResourceLocks(database)


@pytest.mark.quick
async def test_a_lock_has_one_holder_until_it_is_given_back(locks):
    assert isinstance(locks, ResourceLockProtocol)
    first = await locks.acquire("k", "a", ttl=LONG, kind=ResourceLockKind.CLI, meta={"x": 1})
    assert (first.holder_id, first.holder_kind, first.holder_meta) == ("a", "cli", {"x": 1})
    assert await locks.get("k") == first
    assert await locks.acquire("k", "b", ttl=LONG) is None
    assert not await locks.release("k", "b")
    assert not await locks.refresh("k", "b")
    assert await locks.release("k", "a")
    assert not await locks.release("k", "a")
    assert await locks.get("k") is None
    second = await locks.acquire("k", "b", ttl=LONG)
    assert second.fence > first.fence


async def test_a_second_acquire_of_the_holder_extends_and_keeps_the_fence(locks):
    first = await locks.acquire("k", "a", ttl=10)
    again = await locks.acquire("k", "a", ttl=LONG)
    assert again.fence == first.fence
    assert again.expires_at > first.expires_at
    assert again.acquired_at == first.acquired_at
    assert await locks.refresh("k", "a", ttl=2 * LONG)
    assert (await locks.get("k")).expires_at > again.expires_at


@pytest.mark.quick
async def test_an_expired_lock_is_free_and_its_holder_shut_out(locks):
    first = await locks.acquire("k", "a", ttl=SHORT)
    second = await wait_until(lambda: locks.acquire("k", "b", ttl=LONG))
    assert second.fence > first.fence
    assert not await locks.refresh("k", "a")
    assert not await locks.release("k", "a")


async def test_an_expired_holder_cannot_refresh_even_if_nobody_took_it(locks):
    first = await locks.acquire("k", "a", ttl=SHORT)
    await wait_until(lambda: _gone(locks, "k"))
    assert not await locks.refresh("k", "a")
    again = await locks.acquire("k", "a", ttl=LONG)
    assert again.fence > first.fence


async def test_the_sweep_removes_expired_rows_and_fences_go_on(locks):
    first = await locks.acquire("old", "a", ttl=SHORT)
    await locks.acquire("new", "a", ttl=LONG)
    await wait_until(lambda: _gone(locks, "old"))
    assert await locks.sweep_expired() == 1
    assert await locks.sweep_expired() == 0
    assert (await locks.acquire("old", "b", ttl=LONG)).fence > first.fence + 1


async def test_a_forced_release_is_noted_in_the_log(locks, logs):
    lock = await locks.acquire("k", "a", ttl=LONG)
    assert await locks.force_release("k", reason="the machine burnt")
    assert not await locks.force_release("k", reason="again")
    assert not await locks.refresh("k", "a")
    (record,) = logs.find("lock released by force")
    facts = {"key": "k", "reason": "the machine burnt", "holder_id": "a", "fence": lock.fence}
    assert facts.items() <= dict(record.fields).items()


async def test_hold_keeps_a_lock_beyond_its_ttl_and_gives_it_back(locks):
    async with locks.hold("k", ttl=5.0) as lock:
        before = await locks.get("k")
        assert before.fence == lock.fence
        refreshed = await wait_until(lambda: _later(locks, before.expires_at))
        assert refreshed.fence == lock.fence
    assert await locks.get("k") is None


async def test_hold_waits_for_the_holder_and_gives_up_by_name(locks):
    await locks.acquire("k", "boss", ttl=LONG)
    for wait in (0, SHORT):
        with pytest.raises(LockConflictError, match="worker boss"):
            async with locks.hold("k", max_wait=wait):
                pytest.fail("held twice")

    async def hold():
        async with locks.hold("k") as lock:
            return lock

    waiting = asyncio.create_task(hold())
    await anyio.lowlevel.checkpoint()
    await locks.release("k", "boss")
    assert (await waiting).resource_key == "k"


async def test_a_lost_lock_cancels_the_block(locks):
    with pytest.raises(LockLostError, match="was lost"):
        async with locks.hold("k", ttl=0.2):
            await locks.force_release("k", reason="test")
            await anyio.sleep_forever()


async def test_the_blocks_own_error_comes_out_as_it_is(locks):
    with pytest.raises(KeyError):
        async with locks.hold("k"):
            raise KeyError
    assert await locks.get("k") is None


async def test_a_cancelled_hold_gives_the_lock_back(locks):
    with anyio.move_on_after(5) as scope:
        async with locks.hold("k"):
            scope.cancel()
            await anyio.sleep_forever()
    assert await locks.get("k") is None


async def test_only_one_of_many_is_granted(locks):
    granted = []

    async def fight(number):
        if lock := await locks.acquire("k", str(number), ttl=LONG):
            granted.append(lock)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(fight, number)
    assert len(granted) == 1


async def test_a_lock_is_not_held_inside_a_transaction(locks, database):
    async with database.transaction():
        with pytest.raises(TransactionScopeError):
            async with locks.hold("k"):
                pass


async def test_failures_of_the_database_are_lock_errors(empty_url):
    async with Database(empty_url) as database:
        with pytest.raises(LockError, match="cannot be used"):
            await SqlResourceLocks(database).acquire("k", "a")
        with pytest.raises(LockError, match="above 0"):
            await SqlResourceLocks(database).refresh("k", "a", ttl=0)


async def test_the_stub_module_has_locks():
    async with boot(SqlModule.stub()) as app:
        found = await app.container.resolve(ResourceLockProtocol)
        async with found.hold("k") as lock:
            assert lock.fence == 1


async def test_a_wake_up_comes_by_notification_or_by_time(database):
    wakeup = WakeUp(database, "jobs", poll=0.01)
    async with wakeup.waiting() as waiter:

        async def ends_by_time():  # a listener that has just begun may say "look again" first
            return not await waiter.wait(at_most=0.001)

        await wait_until(ends_by_time)
        await wakeup.wake()
        assert await wait_until(waiter.wait)


async def test_a_look_at_a_lock_does_not_wait_for_who_writes(migrated_url, locks):
    lock = await locks.acquire("k", "a", ttl=LONG)
    writing, seen = anyio.Event(), anyio.Event()

    async def write():
        async with Database(migrated_url) as other, other.transaction():
            await other.execute("UPDATE lexigram_lock_fence SET last = last + 1")
            writing.set()
            await seen.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await writing.wait()
        assert await locks.get("k") == lock  # who writes here fails after the busy time-out
        seen.set()


async def test_items_of_the_same_moment_share_a_transaction(database):
    await database.execute("CREATE TABLE items (id BIGINT PRIMARY KEY)")
    batches = []

    async def write(items):
        def steps():
            for item in items:
                yield "INSERT INTO items VALUES (?)", (item,)
            return [item * 10 for item in items]

        answers = await database.run_steps(steps)
        batches.append(len(items))
        return answers

    coalescer = Coalescer(write, limit=30)
    tasks = [asyncio.create_task(coalescer.add(number)) for number in range(50)]
    assert await asyncio.gather(*tasks) == [number * 10 for number in range(50)]
    assert sum(batches) == 50
    assert len(batches) < 10


async def _gone(locks, key):
    return await locks.get(key) is None


async def _later(locks, moment):
    lock = await locks.get("k")
    return lock if lock and lock.expires_at > moment else None

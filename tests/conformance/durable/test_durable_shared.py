"""Steps that share a resource: those of one claim hold it together, and nobody else does."""

import anyio
import pytest

from lexigram.contracts.core.lock import LockConflictError
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    ANYTHING,
    DurableEngine,
    End,
    EndKind,
    NewRun,
    RunPlan,
    State,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)

pytestmark = pytest.mark.anyio

GUARD = 30.0  # against a hang only


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def database(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def engine(database):
    return DurableEngine(database)


def step(name="store", *, shared=True, key="K"):
    return StepPlan(
        name=name,
        step_type=name,
        handler="store",
        retries=9,
        resource_key=key,
        resource_shared=shared,
    )


def plan(*steps):
    return RunPlan(workflow_id="w", steps=steps or [step()])


async def claimed(engine, lease, limit=10):
    return list((await engine.store.claim("W", lease, ANYTHING, limit)).claims)


def end(claim, kind=EndKind.COMPLETED, **more):
    return End(run_id=claim.run_id, step_no=claim.step_no, lease=claim.lease, kind=kind, **more)


async def locks(engine):
    return (await engine.database.execute_query("SELECT * FROM resourcelock")).rows


async def test_steps_of_one_claim_hold_a_resource_together_and_the_last_gives_it_back(engine):
    await engine.submit(plan(), [NewRun() for _ in range(5)])
    three = await claimed(engine, "L1", 3)
    assert len(three) == 3
    assert len({claim.lock_fence for claim in three}) == 1
    assert await claimed(engine, "L2") == []
    kinds = (EndKind.COMPLETED, EndKind.RELEASED, EndKind.ERROR)
    for left, (claim, kind) in enumerate(zip(three, kinds, strict=True)):
        assert [lock["holder_id"] for lock in await locks(engine)] == ["L1"], left
        assert await claimed(engine, f"L{left + 3}") == []
        assert (await engine.store.finish([end(claim, kind)]))[0] is not None
    assert await locks(engine) == []
    four = await claimed(engine, "L9")
    assert len(four) == 4
    assert four[0].lock_fence > three[0].lock_fence


async def test_the_ends_of_all_of_them_in_one_batch_give_it_back(engine):
    await engine.submit(plan(), [NewRun() for _ in range(4)])
    four = await claimed(engine, "L1")
    await engine.store.finish([end(claim) for claim in four[:2]])
    assert len(await locks(engine)) == 1
    await engine.store.finish([end(claim) for claim in four[2:]])
    assert await locks(engine) == []


async def test_the_last_two_that_end_at_the_same_time_leave_no_lock(engine):
    for number in range(5):
        await engine.submit(plan(), [NewRun() for _ in range(4)])
        four = await claimed(engine, f"L{number}")
        assert len(four) == 4
        async with anyio.create_task_group() as group:
            for claim in four:
                group.start_soon(engine.store.finish, [end(claim)])
        assert await locks(engine) == []


async def test_steps_that_do_not_share_still_have_it_alone(engine):
    await engine.submit(plan(step(shared=False)), [NewRun(priority=1) for _ in range(2)])
    await engine.submit(plan(), [NewRun() for _ in range(2)])
    for number in range(2):
        alone = await claimed(engine, f"A{number}")
        assert len(alone) == 1
        await engine.store.finish([end(alone[0])])
    assert len(await claimed(engine, "L")) == 2


async def test_those_behind_one_that_does_not_share_do_not_overtake_it(engine):
    await engine.submit(plan(), [NewRun(priority=3) for _ in range(2)])
    await engine.submit(plan(step(shared=False)), [NewRun(priority=2)])
    await engine.submit(plan(), [NewRun(priority=1) for _ in range(2)])
    sizes = []
    for number in range(3):
        got = await claimed(engine, f"L{number}")
        sizes.append(len(got))
        await engine.store.finish([end(claim) for claim in got])
    assert sizes == [2, 1, 2]


async def test_a_step_that_follows_does_not_join_the_claim_that_holds_the_resource(engine):
    await engine.submit(plan(step("a"), step("b", shared=False)), [NewRun(), NewRun()])
    first, second = await claimed(engine, "L1")
    [after] = await engine.store.finish([end(first, sticky=True)])
    assert after.state is State.READY
    assert await claimed(engine, "L2") == []
    await engine.store.finish([end(second, sticky=True)])
    assert len(await claimed(engine, "L3")) == 1


async def test_those_that_wait_are_put_aside_and_come_back_together(engine):
    await engine.submit(plan(), [NewRun() for _ in range(6)])
    two = await claimed(engine, "L1", 2)
    await engine.store.tend()
    await engine.store.finish([end(claim) for claim in two])
    assert len(await claimed(engine, "L2")) == 4
    await engine.database.execute("DELETE FROM lexigram_locks")


async def test_a_dead_claim_loses_all_of_its_steps_and_the_lock(engine):
    await engine.submit(plan(), [NewRun() for _ in range(3)])
    three = await claimed(engine, "L1")
    await engine.database.execute("UPDATE lexigram_durable_runs SET lease_until = 1")
    assert len((await engine.store.reap([])).steps) == 3
    await engine.sweep_expired_resource_locks()
    assert await locks(engine) == []
    again = await claimed(engine, "L2")
    assert len(again) == 3
    assert await engine.store.finish([end(claim) for claim in three]) == [None] * 3
    assert [lock["holder_id"] for lock in await locks(engine)] == ["L2"]


async def test_one_step_taken_back_leaves_the_lock_with_the_others(engine):
    group = await engine.submit(plan(), [NewRun() for _ in range(3)])
    three = await claimed(engine, "L1")
    await engine.retry(run_id=group.runs[0], hard=True)
    assert [lock["holder_id"] for lock in await locks(engine)] == ["L1"]
    assert await claimed(engine, "L2") == []
    beats = await engine.store.heartbeat("W", [(claim.run_id, "L1") for claim in three])
    assert sorted(beat.is_kept for beat in beats) == [False, True, True]
    mine = [claim for claim in three if claim.run_id != group.runs[0]]
    await engine.store.finish([end(claim) for claim in mine])
    assert await locks(engine) == []
    assert len(await claimed(engine, "L3")) == 1


async def test_who_waits_for_the_resource_gets_it_between_two_claims(engine):
    """Workers that claim again and again do not keep a vacuum waiting for ever."""
    await engine.submit(plan(), [NewRun() for _ in range(200)])
    held = anyio.Event()

    async def vacuum():
        async with engine.hold_lock("K"):
            held.set()

    async with anyio.create_task_group() as tasks:
        claims = await claimed(engine, "L", 2)
        tasks.start_soon(vacuum)

        async def waits():
            found = await engine.locks.get("waiting:K")
            return found is not None

        await wait_until(waits, timeout=GUARD)
        await engine.store.finish([end(claim) for claim in claims])
        assert await claimed(engine, "L2", 2) == []
        with anyio.fail_after(GUARD):
            await held.wait()
    assert await locks(engine) == []
    assert len(await claimed(engine, "L3", 2)) == 2


async def test_whoever_does_not_wait_is_told_who_has_it(engine):
    await engine.submit(plan(), [NewRun(), NewRun()])
    await claimed(engine, "L1")
    with pytest.raises(LockConflictError):
        async with engine.hold_lock("K", max_wait=0):
            pass


async def test_workers_side_by_side_share_within_a_claim_and_never_with_each_other(database):
    engine = DurableEngine(database, Terms(lease=20.0))
    inside: dict[str, int] = {}
    most = 0

    async def store(run_step):
        nonlocal most
        assert set(inside) <= {run_step.lease_token}
        inside[run_step.lease_token] = inside.get(run_step.lease_token, 0) + 1
        most = max(most, inside[run_step.lease_token])
        await anyio.sleep(0.002)
        inside[run_step.lease_token] -= 1
        if not inside[run_step.lease_token]:
            del inside[run_step.lease_token]

    config = WorkerConfig(consumers={"*": 4}, poll_interval=0.05)
    workers = [Worker(config, engine, {"store": store}) for _ in range(3)]
    group = await engine.submit(plan(), [NewRun() for _ in range(60)])
    for worker in workers:
        await worker.start()

    async def done():
        return (await engine.stats(group.group_id)).group_status is RunStatus.COMPLETED

    try:
        await wait_until(done, timeout=GUARD)
    finally:
        for worker in workers:
            await worker.stop(5.0)
    assert most > 1
    attempts = "SELECT count(*) AS n FROM lexigram_durable_history WHERE status = 'COMPLETED'"
    errors = "SELECT count(*) AS n FROM lexigram_durable_history WHERE status = 'ERROR'"
    assert (await database.execute_query(attempts)).rows[0]["n"] == 60
    assert (await database.execute_query(errors)).rows[0]["n"] == 0
    assert await locks(engine) == []

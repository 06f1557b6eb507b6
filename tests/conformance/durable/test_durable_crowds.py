"""The ten behaviours of a durable engine once more, with eight callers at every moment."""

from collections import Counter

import anyio
import pytest

from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.workflow.durable import DurableEngine, NewRun, RunPlan, Selection, StepPlan

pytestmark = pytest.mark.anyio

CROWD = 8


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def engine(request):
    return DurableEngine(request.getfixturevalue(request.param))


def plan(*types, retries=1, key=None):
    steps = [
        StepPlan(name=kind, step_type=kind, handler=kind, retries=retries, resource_key=key)
        for kind in types
    ]
    return RunPlan(workflow_id="w", steps=steps)


async def at_once(call, count=CROWD):
    """What so many callers got, who all began before one had ended."""
    answers = [None] * count
    begin = anyio.Event()

    async def one(number):
        await begin.wait()
        answers[number] = await call(number)

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(one, number)
        begin.set()
    return answers


async def claims(engine, turn="", **options):
    """The steps that a crowd got, by their leases."""

    async def claim(number):
        return await engine.claim_next_step(f"w{number}", f"L{turn}-{number}", **options)

    return [step for step in await at_once(claim) if step is not None]


async def overdue(engine):
    await engine.database.execute(
        "UPDATE lexigram_durable_runs SET lease_until = 1 WHERE status = 'running'"
    )
    await engine.database.execute("UPDATE lexigram_durable_checkins SET expires_at = 1")


async def test_1_the_first_step_goes_to_one_and_nothing_else_is_there(engine):
    assert await claims(engine, "none") == []
    await engine.submit(plan("a", "b"), [NewRun()])
    [step] = await claims(engine)
    assert (step.workflow_step_number, step.status) == (1, RunStatus.RUNNING)


async def test_2_every_step_is_claimed_by_one(engine):
    submitted = await engine.submit(plan("a"), [NewRun() for _ in range(5)])
    got = []
    for turn in range(3):
        got += await claims(engine, turn)
    assert Counter(step.workflow_run_id for step in got) == Counter(submitted.runs)


async def test_3_of_many_that_complete_one_is_right(engine):
    await engine.submit(plan("a", "b"), [NewRun()])
    step = await engine.claim_next_step("w", "L")
    wrong = await at_once(lambda n: engine.complete_step(step.id, f"L-{n}"))
    assert not any(wrong)
    right = await at_once(lambda _: engine.complete_step(step.id, "L"))
    assert right.count(True) == 1


async def test_4_attempts_are_counted_right_and_the_failure_cascades_once(engine):
    submitted = await engine.submit(plan("a", "b", "c", retries=3), [NewRun()])
    answers = []
    for turn in range(5):
        for step in await claims(engine, turn):
            lease = step.lease_token
            ended = await at_once(lambda _, s=step, t=lease: engine.error_step(s.id, t, "boom"))
            answers += [answer for answer in ended if answer is not None]
    assert answers == [RunStatus.ERROR, RunStatus.ERROR, RunStatus.FAILED]
    steps = await engine.steps(submitted.runs[0])
    assert [step.status.value for step in steps] == ["FAILED", "CANCELLED", "CANCELLED"]
    group = await engine.store.group(submitted.group_id)
    assert (group["status"], group["failed"], group["endings"]) == ("failed", 1, 1)


async def test_5_a_released_step_goes_to_one_and_costs_no_attempt(engine):
    await engine.submit(plan("a"), [NewRun()])
    [step] = await claims(engine, 1)
    released = await at_once(lambda _: engine.release_step(step.id, step.lease_token))
    assert released.count(True) == 1
    [again] = await claims(engine, 2)
    assert (again.id, again.retry) == (step.id, 0)


async def test_6_steps_of_the_dead_are_taken_back_once_and_never_by_themselves(engine):
    await engine.submit(plan("a"), [NewRun() for _ in range(4)])
    got = await claims(engine)
    await engine.store.heartbeat("w0")
    await overdue(engine)
    everyone = [f"w{number}" for number in range(CROWD)]
    assert {tuple(r.steps) for r in await at_once(lambda _: engine.store.reap(everyone))} == {()}
    reaped = await at_once(lambda _: engine.store.reap(["live"]))
    assert sorted(step for one in reaped for step in one.steps) == sorted(s.id for s in got)


async def test_7_after_the_reaper_only_the_fresh_lease_counts(engine):
    await engine.submit(plan("a"), [NewRun()])
    [stale] = await claims(engine, "stale")
    await overdue(engine)
    await engine.store.reap(["live"])
    [fresh] = await claims(engine, "fresh")
    leases = [stale.lease_token, fresh.lease_token]
    ended = await at_once(lambda n: engine.complete_step(stale.id, leases[n % 2]))
    assert (ended[0::2].count(True), ended[1::2].count(True)) == (0, 1)


async def test_8_a_resource_has_one_holder_at_a_time(engine):
    await engine.submit(plan("a", key="K"), [NewRun() for _ in range(6)])
    await engine.submit(plan("a"), [NewRun()])
    async with engine.hold_lock("K", ResourceLockKind.WEB, max_wait=0):
        [free] = await claims(engine, "held")
        assert free.resource_key is None
    done = 0
    while True:
        got = await claims(engine, done)
        if not got and not (await engine.store.tend()).promoted:
            break
        assert len(got) <= 1
        for step in got:
            assert await engine.complete_step(step.id, step.lease_token)
            done += 1
    assert done == 6


async def test_9_the_end_of_a_group_is_handed_to_one_and_again_after_a_retry(engine):
    submitted = await engine.submit(plan("a"), [NewRun() for _ in range(3)])
    complete = lambda _: engine.try_complete_run_group(submitted.group_id)  # noqa: E731
    assert set(await at_once(complete)) == {None}
    for number, step in enumerate(await claims(engine)):
        if number:
            await engine.complete_step(step.id, step.lease_token)
        else:
            await engine.error_step(step.id, step.lease_token, "boom")
    assert Counter(await at_once(complete)) == {RunStatus.FAILED: 1, None: CROWD - 1}
    assert await engine.retry(group_id=submitted.group_id) == 1
    [step] = await claims(engine, "again")
    await engine.complete_step(step.id, step.lease_token)
    assert Counter(await at_once(complete)) == {RunStatus.COMPLETED: 1, None: CROWD - 1}


async def test_10_pools_take_their_types_and_the_catch_all_the_rest(engine):
    kinds = ["parse", "chunk", "store", "embed"]
    for kind in kinds:
        await engine.submit(plan(kind), [NewRun() for _ in range(4)])
    pools = {
        "parse": Selection(types=("parse",)),
        "store": Selection(types=("store",)),
        "*": Selection(types=("parse", "store"), excluded=True),
    }
    names = [*pools, *pools, "*", "*"]

    async def drain(number):
        got = []
        for turn in range(20):
            selection = pools[names[number]]
            claimed = await engine.store.claim(f"w{number}", f"{number}-{turn}", selection, 2)
            got += [(names[number], claim.step_type) for claim in claimed.claims]
        return got

    got = Counter(one for answer in await at_once(drain, len(names)) for one in answer)
    assert got == {
        ("parse", "parse"): 4,
        ("store", "store"): 4,
        ("*", "chunk"): 4,
        ("*", "embed"): 4,
    }

"""The ten behaviours of a durable engine, and what an operator may do, on both databases."""

import anyio
import orjson
import pytest

from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.workflow.durable import (
    ANYTHING,
    DurableEngine,
    End,
    EndKind,
    LifeCycleEvent,
    NewRun,
    PlanInvalidError,
    RunNotFoundError,
    RunPlan,
    Selection,
    State,
    StepPlan,
    Terms,
)

pytestmark = pytest.mark.anyio

CLAIMERS = 8


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def database(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def engine(database):
    return DurableEngine(database)


def plan(*types, retries=1, backoff=0.0, key=None, name="batch"):
    steps = [
        StepPlan(
            name=f"{kind} it",
            step_type=kind,
            handler=kind,
            retries=retries,
            backoff=backoff,
            resource_key=key,
        )
        for kind in types or ("parse", "chunk")
    ]
    return RunPlan(workflow_id=name, steps=steps)


async def statuses(engine, run_id):
    return [step.status.value for step in await engine.steps(run_id)]


async def finished(engine, group_id, worker="w"):
    """Claim and complete until nothing is left."""
    number = 0
    while (step := await engine.claim_next_step(worker, f"{worker}-{number}")) is not None:
        assert await engine.complete_step(step.id, f"{worker}-{number}")
        number += 1
    return (await engine.stats(group_id)).group_status


async def overdue(engine, *runs):
    """As if the workers of these runs had not been heard of for long."""
    await engine.database.execute(
        "UPDATE lexigram_durable_runs SET lease_until = 1 WHERE status = 'running'"
    )
    await engine.database.execute("UPDATE lexigram_durable_checkins SET expires_at = 1")


async def steady(engine, worker):
    """As if it had checked in for long without a gap."""
    await engine.database.execute(
        "UPDATE lexigram_durable_checkins SET first_checkin = 1 WHERE worker_id = ?", (worker,)
    )


async def locks_left(engine):
    return (await engine.database.execute_query("SELECT * FROM resourcelock")).rows


# --- 1 to 10 --------------------------------------------------------------------------------------


async def test_the_first_step_is_claimed_first_and_an_empty_database_has_none(engine):
    assert await engine.claim_next_step("A", "L0") is None
    submitted = await engine.submit(plan(), [NewRun()])
    step = await engine.claim_next_step("A", "L1")
    assert (step.workflow_run_id, step.workflow_step_number) == (submitted.runs[0], 1)
    assert (step.status, step.worker_id, step.lease_token) == (RunStatus.RUNNING, "A", "L1")
    assert await statuses(engine, submitted.runs[0]) == ["RUNNING", "PENDING"]


async def test_of_many_claimers_of_one_step_one_gets_it(engine):
    await engine.submit(plan(), [NewRun()])
    got = []

    async def claim(number):
        if (step := await engine.claim_next_step(f"w{number}", f"L{number}")) is not None:
            got.append(step)

    async with anyio.create_task_group() as group:
        for number in range(CLAIMERS):
            group.start_soon(claim, number)
    assert len(got) == 1


async def test_claimers_side_by_side_never_get_one_row_twice(engine):
    await engine.submit(plan("parse"), [NewRun() for _ in range(60)])
    got = []

    async def claim(number):
        for turn in range(20):
            claimed = await engine.store.claim(f"w{number}", f"L{number}-{turn}", ANYTHING, 3)
            got.extend(claim.run_id for claim in claimed.claims)

    async with anyio.create_task_group() as group:
        for number in range(CLAIMERS):
            group.start_soon(claim, number)
    assert len(got) == len(set(got)) == 60


async def test_what_a_stale_lease_says_changes_nothing(engine):
    submitted = await engine.submit(plan(), [NewRun()])
    step = await engine.claim_next_step("A", "L-A")
    assert await engine.complete_step(step.id, "L-WRONG") is False
    assert await engine.error_step(step.id, "L-WRONG", "no") is None
    assert await engine.release_step(step.id, "L-WRONG") is False
    assert await statuses(engine, submitted.runs[0]) == ["RUNNING", "PENDING"]
    assert await engine.complete_step(step.id, "L-A", meta={"pages": 3}) is True
    assert await engine.complete_step(step.id, "L-A") is False
    first, _ = await engine.steps(submitted.runs[0])
    assert (first.status, first.lease_token) == (RunStatus.COMPLETED, None)
    assert first.status_meta == {"pages": 3}
    assert first.worker_id == "A"


async def test_without_attempts_left_a_failure_cancels_what_follows_and_fails_run_and_group(engine):
    submitted = await engine.submit(plan("parse", "chunk", "store"), [NewRun()])
    step = await engine.claim_next_step("A", "L1")
    assert await engine.error_step(step.id, "L1", "boom") is RunStatus.FAILED
    (run,) = submitted.runs
    assert await statuses(engine, run) == ["FAILED", "CANCELLED", "CANCELLED"]
    assert (await engine.run(run)).status is RunStatus.FAILED
    assert (await engine.run(run)).status_message == "boom"
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.FAILED
    assert await engine.claim_next_step("A", "L2") is None


async def test_with_attempts_left_an_error_is_tried_again_until_none_is_left(engine):
    submitted = await engine.submit(plan(retries=3), [NewRun()])
    seen = []
    for number in range(3):
        step = await engine.claim_next_step("A", f"L{number}")
        assert step.retry == number
        seen.append(await engine.error_step(step.id, f"L{number}", f"boom {number}"))
    assert seen == [RunStatus.ERROR, RunStatus.ERROR, RunStatus.FAILED]
    attempts = await engine.attempts(submitted.runs[0])
    assert [row["status"] for row in attempts] == ["ERROR", "ERROR", "FAILED"]
    assert [row["message"] for row in attempts] == ["boom 0", "boom 1", "boom 2"]


async def test_between_attempts_the_backoff_passes(engine):
    submitted = await engine.submit(plan(retries=3, backoff=200.0), [NewRun()])
    step = await engine.claim_next_step("A", "L1")
    assert await engine.error_step(step.id, "L1", "boom") is RunStatus.ERROR
    assert await statuses(engine, submitted.runs[0]) == ["ERROR", "PENDING"]
    assert await engine.claim_next_step("A", "L2") is None
    due = (await engine.store.tend()).next_due
    assert 90 < due <= 200
    await engine.database.execute("UPDATE lexigram_durable_runs SET available_at = 1")
    assert (await engine.claim_next_step("A", "L3")).id == step.id


async def test_an_error_that_no_attempt_can_mend_fails_at_once(engine):
    await engine.submit(plan(retries=5), [NewRun()])
    step = await engine.claim_next_step("A", "L1")
    assert await engine.error_step(step.id, "L1", "bad", fatal=True) is RunStatus.FAILED


async def test_a_released_step_is_there_for_others_at_once_and_costs_no_attempt(engine):
    submitted = await engine.submit(plan(), [NewRun()])
    step = await engine.claim_next_step("A", "L-A")
    assert await engine.release_step(step.id, "L-A") is True
    first, _ = await engine.steps(submitted.runs[0])
    assert (first.status, first.worker_id, first.lease_token) == (RunStatus.PENDING, None, None)
    again = await engine.claim_next_step("B", "L-B")
    assert (again.id, again.retry) == (step.id, 0)


async def test_a_worker_is_never_reaped_by_itself(engine):
    await engine.submit(plan(), [NewRun()])
    await engine.store.heartbeat("A")
    step = await engine.claim_next_step("A", "L1")
    await overdue(engine)
    await engine.store.heartbeat("A")
    await steady(engine, "A")
    reaped = await engine.store.reap(["A"])
    assert (reaped.workers, reaped.steps) == ([], [])
    assert (await engine.store.reap(["B"])).steps == [step.id]


async def test_after_a_time_without_heartbeats_nobody_is_taken_for_dead_at_once(engine):
    await engine.submit(plan(), [NewRun(), NewRun()])
    held = {}
    for worker in ("A", "B", "dead"):
        await engine.store.heartbeat(worker)
        if worker != "A":
            held[worker] = await engine.claim_next_step(worker, f"L{worker}")
    await steady(engine, "A")
    await overdue(engine)  # the database hung, or the machine slept
    assert (await engine.store.reap(["A"])).steps == []
    await engine.store.heartbeat("A")
    assert (await engine.store.reap(["A"])).steps == []
    [beat] = await engine.store.heartbeat("B", [(held["B"].workflow_run_id, "LB")])
    assert beat.is_kept
    await steady(engine, "A")
    assert (await engine.store.reap(["A"])).steps == [held["dead"].id]
    assert await engine.complete_step(held["B"].id, "LB")


async def test_after_a_time_without_heartbeats_no_event_is_taken_from_its_worker_at_once(engine):
    await engine.submit(plan(), [NewRun()])
    await engine.claim_next_step("A", "L1")
    terms = {"seconds": 60, "kinds": [LifeCycleEvent.GROUP_START]}
    await engine.store.heartbeat("A")
    [event] = await engine.store.take_events("L2", worker_id="A", **terms)
    await engine.database.execute("UPDATE lexigram_durable_events SET lease_until = 1")
    assert await engine.store.take_events("L3", worker_id="A", **terms) == []
    assert await engine.store.take_events("L3", worker_id="never checked in", **terms) == []
    await steady(engine, "A")
    [again] = await engine.store.take_events("L4", worker_id="A", **terms)
    assert again.idempotency_key == event.idempotency_key


async def test_a_live_worker_loses_a_step_whose_lease_it_does_not_know(engine):
    await engine.submit(plan(), [NewRun()])
    step = await engine.claim_next_step("A", "L1")
    await overdue(engine)
    assert (await engine.store.reap(["A"], ["L0", "L1"])).steps == []
    assert (await engine.store.reap(["A"], ["L0"])).steps == [step.id]


async def test_a_dead_worker_loses_its_steps_its_locks_and_its_check_in(engine):
    submitted = await engine.submit(plan(key="K"), [NewRun()])
    await engine.store.heartbeat("dead")
    step = await engine.claim_next_step("dead", "L1")
    await overdue(engine)
    reaped = await engine.store.reap(["live"])
    assert (reaped.workers, reaped.steps) == (["dead"], [step.id])
    first, _ = await engine.steps(submitted.runs[0])
    assert (first.status, first.worker_id, first.retry) == (RunStatus.PENDING, None, 0)
    assert first.status_message == "reset by dead-worker reaper"
    assert await locks_left(engine) == []
    found = await engine.database.execute_query("SELECT * FROM workercheckin")
    assert found.rows == []


async def test_a_worker_without_a_check_in_is_reaped_by_its_lease(engine):
    await engine.submit(plan(), [NewRun()])
    step = await engine.claim_next_step("never checked in", "L1")
    await overdue(engine)
    assert (await engine.store.reap(["live"])).steps == [step.id]


async def test_a_step_that_kills_its_workers_again_and_again_fails_and_ends_its_group(database):
    engine = DurableEngine(database, Terms(max_lost=2))
    submitted = await engine.submit(plan(), [NewRun()])
    for number in range(2):
        await engine.claim_next_step(f"w{number}", f"L{number}")
        await overdue(engine)
        await engine.store.reap([])
    run = await engine.run(submitted.runs[0])
    assert run.status is RunStatus.FAILED
    assert run.status_message == "poison: its worker ended 2 times while the handler ran"
    step = (await engine.steps(run.id))[0]
    assert (step.status, step.status_message) == (RunStatus.FAILED, run.status_message)
    assert step.status_meta == {
        "error": "WorkerLost",
        "reason": "poison",
        "text": run.status_message,
    }
    assert await engine.try_complete_run_group(submitted.group_id) is RunStatus.FAILED


async def lose(engine, number, *, begun):
    """Claim the one run, begin its step or not, and end with the lease in hand."""
    [claim] = (await engine.store.claim(f"w{number}", f"L{number}", ANYTHING, 1)).claims
    if begun:
        assert await engine.begin_step(claim.run_id, claim.lease) is True
    await overdue(engine)
    reaped = await engine.store.reap([])
    assert reaped.steps == [claim.step_id]
    assert await engine.begin_step(claim.run_id, claim.lease) is False
    return claim, reaped


async def test_a_step_that_was_claimed_and_not_begun_is_never_poison(database):
    engine = DurableEngine(database, Terms(max_lost=2))
    submitted = await engine.submit(plan(), [NewRun()])
    for number in range(6):
        claim, reaped = await lose(engine, number, begun=number == 3)
        assert (claim.lost, claim.begun) == (number, 1 if number > 3 else 0)
        assert reaped.poison == []
    _, reaped = await lose(engine, 6, begun=True)
    assert reaped.poison == reaped.steps
    assert (await engine.run(submitted.runs[0])).status is RunStatus.FAILED


@pytest.mark.parametrize("kind", list(EndKind))
async def test_an_end_of_a_step_clears_its_begins(database, kind):
    engine = DurableEngine(database, Terms(max_lost=3))
    submitted = await engine.submit(plan("parse", "chunk", retries=9), [NewRun()])
    await lose(engine, 1, begun=True)
    [claim] = (await engine.store.claim("w", "L", ANYTHING, 1)).claims
    await engine.begin_step(claim.run_id, "L")
    end = End(run_id=claim.run_id, step_no=1, lease="L", kind=kind, message="why?")
    await engine.store.finish([end])
    row = await engine.store.run(submitted.runs[0])
    # Given back undone, its losses are still unexplained.
    assert (row["lost"], row["begun"]) == (1 if kind is EndKind.RELEASED else 0, 0)


async def test_a_lease_lost_to_a_reaper_cannot_complete_but_the_fresh_one_can(engine):
    await engine.submit(plan(), [NewRun()])
    step = await engine.claim_next_step("stale", "lease-stale")
    await overdue(engine)
    await engine.store.reap(["other"])
    again = await engine.claim_next_step("fresh", "lease-fresh")
    assert again.id == step.id
    assert await engine.complete_step(step.id, "lease-stale") is False
    assert await engine.complete_step(step.id, "lease-fresh") is True


async def test_a_resource_that_somebody_holds_is_not_waited_for_by_others(engine):
    held = await engine.submit(plan(key="K"), [NewRun(priority=9)])
    free = await engine.submit(plan(name="other"), [NewRun()])
    async with engine.hold_lock("K", ResourceLockKind.WEB):
        step = await engine.claim_next_step("A", "L1")
        assert step.workflow_run_id == free.runs[0]
        await engine.store.tend()  # what waits is put aside, and found again
        assert await engine.claim_next_step("A", "L2") is None
    assert (await engine.claim_next_step("A", "L3")).workflow_run_id == held.runs[0]


async def test_of_claimers_of_steps_with_one_resource_one_wins(engine):
    await engine.submit(plan("store", key="K"), [NewRun() for _ in range(6)])
    got = []

    async def claim(number):
        if (step := await engine.claim_next_step(f"w{number}", f"L{number}")) is not None:
            got.append(step)

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(claim, number)
    assert len(got) == 1
    fences = [got[0].lock_fence]
    for number in range(10, 15):
        await engine.complete_step(got[-1].id, got[-1].lease_token)
        got.append(await engine.claim_next_step("w", f"L{number}"))
        fences.append(got[-1].lock_fence)
    assert fences == sorted(set(fences))
    await engine.complete_step(got[-1].id, got[-1].lease_token)
    assert await locks_left(engine) == []


async def test_a_resource_whose_lock_was_taken_away_stays_with_the_step_that_runs(engine):
    await engine.submit(plan(key="K"), [NewRun(), NewRun()])
    step = await engine.claim_next_step("A", "L1")
    assert await engine.force_release_resource_lock("K", reason="test") is True
    assert await engine.claim_next_step("B", "L2") is None
    [beat] = await engine.store.heartbeat("A", [(step.workflow_run_id, "L1")])
    assert beat.is_kept is False


async def test_different_resources_are_used_side_by_side(engine):
    await engine.submit(plan(key="K1"), [NewRun()])
    await engine.submit(plan(key="K2"), [NewRun()])
    assert await engine.claim_next_step("A", "L1") is not None
    assert await engine.claim_next_step("B", "L2") is not None


async def test_expired_locks_are_swept(engine):
    await engine.submit(plan(key="K"), [NewRun()])
    await engine.claim_next_step("A", "L1")
    assert await engine.sweep_expired_resource_locks() == 0
    await engine.database.execute("UPDATE lexigram_locks SET expires_at = 1")
    assert await engine.sweep_expired_resource_locks() == 1


async def test_the_end_of_a_group_is_handed_out_once_for_each_end(engine):
    submitted = await engine.submit(plan("parse"), [NewRun(), NewRun()])
    group = submitted.group_id
    assert await engine.try_complete_run_group(group) is None
    step = await engine.claim_next_step("A", "L1")
    assert (await engine.stats(group)).group_status is RunStatus.RUNNING
    await engine.error_step(step.id, "L1", "boom")
    assert await engine.try_complete_run_group(group) is None
    await finished(engine, group)
    won = []

    async def end():
        if (status := await engine.try_complete_run_group(group)) is not None:
            won.append(status)

    async with anyio.create_task_group() as tasks:
        for _ in range(CLAIMERS):
            tasks.start_soon(end)
    assert won == [RunStatus.FAILED]
    assert await engine.retry(group_id=group) == 1
    assert (await engine.stats(group)).group_status is RunStatus.RUNNING
    assert await finished(engine, group, "again") is RunStatus.COMPLETED
    assert await engine.try_complete_run_group(group) is RunStatus.COMPLETED
    assert await engine.try_complete_run_group(group) is None


async def test_a_pool_claims_its_types_only_and_the_catch_all_what_is_left(engine):
    for kind in ("parse", "store", "chunk"):
        await engine.submit(plan(kind), [NewRun()])

    async def types(selection, lease):
        claimed = await engine.store.claim("w", lease, selection, 10)
        return [claim.step_type for claim in claimed.claims]

    others = Selection(types=("parse", "store"), excluded=True)
    assert await types(others, "L1") == ["chunk"]
    assert await types(others, "L2") == []
    assert await types(Selection(types=("parse",)), "L3") == ["parse"]
    assert await types(Selection(types=("parse", "store")), "L4") == ["store"]


# --- order ----------------------------------------------------------------------------------------


async def test_priority_goes_first_and_waiting_makes_up_for_it(engine):
    old = (await engine.submit(plan("parse"), [NewRun()])).runs[0]
    low, high = (await engine.submit(plan("parse"), [NewRun(), NewRun(priority=5)])).runs
    claimed = await engine.store.claim("w", "L1", ANYTHING, 3)
    assert [claim.run_id for claim in claimed.claims] == [high, old, low]
    await engine.retry(group_id=1, hard=True)
    await engine.retry(group_id=2, hard=True)
    # A point is worth ten minutes: after an hour the old one has waited longer than five points.
    await engine.database.execute(
        "UPDATE lexigram_durable_runs SET rank = rank - 3600 WHERE id = ?", (old,)
    )
    claimed = await engine.store.claim("w", "L2", ANYTHING, 3)
    assert [claim.run_id for claim in claimed.claims] == [old, high, low]


async def test_a_tenant_with_many_runs_does_not_keep_others_waiting(engine):
    many = (await engine.submit(plan("parse"), [NewRun(tenant="many") for _ in range(50)])).runs
    few = (await engine.submit(plan("parse"), [NewRun(tenant="few") for _ in range(5)])).runs
    claimed = await engine.store.claim("w", "L1", ANYTHING, 20)
    order = [claim.run_id for claim in claimed.claims]
    assert set(few) < set(order)
    assert [run for run in order if run in many] == many[: len(order) - 5]


# --- submitting -----------------------------------------------------------------------------------


async def test_a_group_and_a_run_are_made_once_per_key(engine):
    first = await engine.submit(plan(), [NewRun(), NewRun()], idempotency_key="nightly")
    again = await engine.submit(plan(), [NewRun(), NewRun()], idempotency_key="nightly")
    assert (again.group_id, again.runs, again.is_new) == (first.group_id, first.runs, False)
    one = await engine.submit(plan(), [NewRun(idempotency_key="doc"), NewRun()])
    two = await engine.submit(plan(), [NewRun(), NewRun(idempotency_key="doc")])
    assert two.runs[1] == one.runs[0]
    assert (await engine.stats(two.group_id)).total_runs == 1
    three = await engine.submit(plan(), [NewRun(idempotency_key="doc")])
    assert (three.group_id, three.is_new) == (one.group_id, False)


async def test_many_submitters_of_one_key_make_one_group(engine):
    groups = []

    async def submit():
        groups.append(await engine.submit(plan(), [NewRun()], idempotency_key="k"))

    async with anyio.create_task_group() as tasks:
        for _ in range(CLAIMERS):
            tasks.start_soon(submit)
    assert len({item.group_id for item in groups}) == 1
    assert sum(item.is_new for item in groups) == 1


async def test_a_delayed_run_starts_when_its_time_has_come(engine):
    await engine.submit(plan(), [NewRun(delay=3600.0)])
    assert await engine.claim_next_step("A", "L1") is None
    await engine.database.execute("UPDATE lexigram_durable_runs SET available_at = 1")
    assert await engine.claim_next_step("A", "L2") is not None


async def test_bad_plans_are_refused_with_every_problem(engine):
    with pytest.raises(PlanInvalidError, match="it has no steps"):
        RunPlan(workflow_id="w", steps=[])
    with pytest.raises(PlanInvalidError) as refused:
        RunPlan(
            workflow_id="w",
            steps=[
                StepPlan(name="a", step_type="parse", handler="h", when="a or b"),
                StepPlan(name="b", step_type="parse", handler="h", params={"a": object()}),
            ],
        )
    assert len(refused.value.details["problems"]) == 2
    with pytest.raises(PlanInvalidError):
        await engine.submit(plan(), [])
    with pytest.raises(PlanInvalidError):
        await engine.cancel()
    with pytest.raises(RunNotFoundError):
        await engine.run(404)
    with pytest.raises(RunNotFoundError):
        await engine.stats(404)


async def test_runs_keep_the_plan_they_were_submitted_with(engine):
    old = await engine.submit(plan("parse"), [NewRun()])
    await engine.submit(plan("parse", "chunk"), [NewRun()])
    assert len(await engine.steps(old.runs[0])) == 1


# --- operators ------------------------------------------------------------------------------------


async def test_a_cancelled_group_ends_and_running_steps_are_told(engine):
    submitted = await engine.submit(plan(), [NewRun() for _ in range(3)])
    step = await engine.claim_next_step("A", "L1")
    assert await engine.cancel(group_id=submitted.group_id) == 3
    assert await engine.cancel(group_id=submitted.group_id) == 0
    [beat] = await engine.store.heartbeat("A", [(step.workflow_run_id, "L1")])
    assert (beat.is_kept, beat.wanted) == (True, "cancel")
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.RUNNING
    assert await engine.release_step(step.id, "L1") is True
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.CANCELLED
    assert await statuses(engine, submitted.runs[1]) == ["CANCELLED", "CANCELLED"]


async def test_a_step_that_completes_after_the_cancel_is_the_last_of_its_run(engine):
    submitted = await engine.submit(plan(), [NewRun()])
    step = await engine.claim_next_step("A", "L1")
    await engine.cancel(run_id=submitted.runs[0])
    assert await engine.complete_step(step.id, "L1") is True
    assert (await engine.run(submitted.runs[0])).status is RunStatus.CANCELLED
    assert await engine.claim_next_step("A", "L2") is None


async def test_paused_runs_wait_until_they_are_resumed(engine):
    submitted = await engine.submit(plan(), [NewRun(), NewRun()])
    group = submitted.group_id
    step = await engine.claim_next_step("A", "L1")
    assert await engine.pause(group_id=group) == 2
    assert await engine.pause(group_id=group) == 0
    assert await engine.complete_step(step.id, "L1") is True
    assert await engine.claim_next_step("A", "L2") is None
    assert await engine.resume(group_id=group) == 2
    assert await finished(engine, group) is RunStatus.COMPLETED


async def test_a_retry_goes_on_at_the_failed_step_and_keeps_what_is_done(engine):
    submitted = await engine.submit(plan("parse", "chunk"), [NewRun()])
    step = await engine.claim_next_step("A", "L1")
    await engine.complete_step(step.id, "L1")
    step = await engine.claim_next_step("A", "L2")
    await engine.error_step(step.id, "L2", "boom")
    assert await engine.retry(run_id=submitted.runs[0]) == 1
    assert await engine.retry(run_id=submitted.runs[0]) == 0
    again = await engine.claim_next_step("A", "L3")
    assert (again.workflow_step_number, again.retry) == (2, 0)


async def test_a_retried_step_shows_no_old_worker_or_error_until_it_is_tried_again(engine):
    submitted = await engine.submit(plan(retries=2), [NewRun()])
    run = submitted.runs[0]
    for lease in ("L1", "L2"):
        step = await engine.claim_next_step("A", lease)
        await engine.error_step(step.id, lease, "boom", {"text": "boom"})
        shown = (await engine.steps(run))[0]
        assert (shown.worker_id, shown.status_message) == ("A", "boom")
    await engine.retry(run_id=run)
    shown = (await engine.steps(run))[0]
    assert (shown.status, shown.retry, shown.worker_id) == (RunStatus.PENDING, 0, None)
    assert (shown.status_message, dict(shown.status_meta)) == (None, {})
    [row] = (
        await engine.database.execute_query(
            "SELECT start_date, status_date, completed_date FROM runstep"
            " WHERE workflow_run_id = ? AND workflow_step_number = 1",
            (run,),
        )
    ).rows
    assert (row["start_date"], row["completed_date"]) == (None, None)
    assert row["status_date"] is not None, "the retry itself is a change"
    assert [(a["status"], a["worker_id"], a["message"]) for a in await engine.attempts(run)] == [
        ("ERROR", "A", "boom"),
        ("FAILED", "A", "boom"),
    ]
    step = await engine.claim_next_step("B", "L3")
    await engine.release_step(step.id, "L3")
    assert (await engine.steps(run))[0].status_message == "released"


async def test_a_group_with_completed_and_cancelled_runs_is_completed(engine):
    """By the seed: FAILED when a run failed, else COMPLETED; CANCELLED is for nothing but those."""
    submitted = await engine.submit(plan("parse"), [NewRun() for _ in range(3)])
    await engine.cancel(run_id=submitted.runs[0])
    assert await finished(engine, submitted.group_id) is RunStatus.COMPLETED
    stats = await engine.stats(submitted.group_id)
    assert (stats.total_runs, stats.completed, stats.failed) == (3, 2, 1)
    assert await engine.try_complete_run_group(submitted.group_id) is RunStatus.COMPLETED
    # counted anew it is the same
    await engine.database.execute("UPDATE lexigram_durable_groups SET status = 'running'")
    await engine.store.reconcile(submitted.group_id)
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.COMPLETED
    # one that failed outweighs both
    await engine.retry(group_id=submitted.group_id)
    step = await engine.claim_next_step("A", "L1")
    await engine.error_step(step.id, "L1", "boom")
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.FAILED


async def test_a_hard_retry_takes_running_steps_from_their_workers(engine):
    submitted = await engine.submit(plan(key="K"), [NewRun()])
    step = await engine.claim_next_step("A", "L1")
    assert await engine.retry(group_id=submitted.group_id) == 0
    assert await engine.retry(group_id=submitted.group_id, hard=True) == 1
    assert await engine.complete_step(step.id, "L1") is False
    assert await locks_left(engine) == []
    assert await finished(engine, submitted.group_id) is RunStatus.COMPLETED


async def test_a_lease_is_kept_for_the_next_step_when_asked_and_only_then(engine):
    submitted = await engine.submit(plan("a", "b", "c"), [NewRun()])
    (claim,) = (await engine.store.claim("A", "L1", ANYTHING, 1)).claims
    end = End(run_id=claim.run_id, step_no=1, lease="L1", kind=EndKind.COMPLETED, sticky=True)
    (ended,) = await engine.store.finish([end])
    assert (ended.state, ended.step_no) == (State.RUNNING, 2)
    assert await engine.claim_next_step("B", "L2") is None
    assert await engine.complete_step(claim.step_id, "L1") is False  # step 1 is over
    assert await engine.complete_step(claim.step_id + 1, "L1") is True
    assert (await engine.claim_next_step("B", "L3")).workflow_step_number == 3
    fences = [row["fence"] for row in await engine.attempts(submitted.runs[0])]
    assert fences == [1, 2]


async def test_a_lease_is_not_kept_when_the_next_step_needs_another_resource(engine):
    steps = [
        StepPlan(name="a", step_type="x", handler="h"),
        StepPlan(name="b", step_type="x", handler="h", resource_key="K"),
        StepPlan(name="c", step_type="x", handler="h", resource_key="K"),
    ]
    await engine.submit(RunPlan(workflow_id="w", steps=steps), [NewRun()])
    (claim,) = (await engine.store.claim("A", "L1", ANYTHING, 1)).claims
    end = {"run_id": claim.run_id, "kind": EndKind.COMPLETED, "sticky": True}
    (ended,) = await engine.store.finish([End(step_no=1, lease="L1", **end)])
    assert ended.state is State.READY
    await engine.store.claim("A", "L2", ANYTHING, 1)
    (ended,) = await engine.store.finish([End(step_no=2, lease="L2", **end)])
    assert ended.state is State.RUNNING  # the lock is held already
    assert len(await locks_left(engine)) == 1
    (ended,) = await engine.store.finish([End(step_no=3, lease="L2", **end)])
    assert ended.state is State.COMPLETED
    assert await locks_left(engine) == []


async def test_a_miscounted_group_is_repaired_and_ends(engine):
    submitted = await engine.submit(plan("parse"), [NewRun(), NewRun()])
    await engine.database.execute("UPDATE lexigram_durable_groups SET remaining = 7, failed = 3")
    assert await engine.store.reconcile() == 1
    assert await engine.store.reconcile() == 0
    await engine.database.execute("UPDATE lexigram_durable_groups SET remaining = 5")
    await finished(engine, submitted.group_id)
    assert await engine.store.reconcile() == 1
    assert await engine.try_complete_run_group(submitted.group_id) is RunStatus.COMPLETED


async def test_old_groups_are_removed_whole_and_others_stay(engine):
    gone = await engine.submit(plan("parse"), [NewRun() for _ in range(3)])
    await finished(engine, gone.group_id)
    kept = await engine.submit(plan("parse"), [NewRun()])
    assert await engine.prune(3600.0) == 0
    assert await engine.prune(-1.0) == 3
    with pytest.raises(RunNotFoundError):
        await engine.stats(gone.group_id)
    assert await engine.attempts(gone.runs[0]) == []
    assert (await engine.stats(kept.group_id)).total_runs == 1


async def test_retention_leaves_a_group_that_somebody_begins_again(engine):
    submitted = await engine.submit(plan("parse"), [NewRun(), NewRun()])
    for number in range(2):
        step = await engine.claim_next_step("A", f"L{number}")
        await engine.error_step(step.id, f"L{number}", "boom")
    await engine.retry(group_id=submitted.group_id)
    assert await engine.prune(-1.0) == 0
    assert (await engine.stats(submitted.group_id)).total_runs == 2
    assert await finished(engine, submitted.group_id) is RunStatus.COMPLETED


async def test_claims_go_on_while_old_runs_are_removed(engine):
    old = await engine.submit(plan("parse"), [NewRun() for _ in range(1_200)])
    await engine.cancel(group_id=old.group_id)
    await engine.submit(plan("parse"), [NewRun() for _ in range(40)])
    claimed = []

    async def claim():
        while claims := (await engine.store.claim("A", f"L{len(claimed)}", ANYTHING, 2)).claims:
            claimed.extend(claims)

    async with anyio.create_task_group() as group:
        group.start_soon(claim)
        assert await engine.prune(-1.0) == 1_200
    assert len(claimed) == 40


async def test_an_event_comes_again_until_it_is_settled(engine):
    submitted = await engine.submit(plan("parse"), [NewRun()])
    await finished(engine, submitted.group_id)
    start, end = await engine.store.take_events("D1", seconds=600.0)
    assert [start.kind, end.kind] == ["group_start", "group_end"]
    assert await engine.store.take_events("D2", seconds=600.0) == []
    assert await engine.store.settle_event(start) is True
    assert await engine.store.settle_event(start) is False
    await engine.database.execute("UPDATE lexigram_durable_events SET lease_until = 1")
    (again,) = await engine.store.take_events("D3", seconds=600.0)
    assert (again.id, again.tries) == (end.id, 2)
    assert await engine.store.settle_event(end) is False  # it is D3's now
    assert await engine.store.settle_event(again, retry_in=0.0) is True
    (third,) = await engine.store.take_events("D4", seconds=600.0)
    assert await engine.store.settle_event(third) is True
    assert await engine.store.take_events("D5", seconds=600.0) == []


async def test_the_statistics_are_the_seven_figures(engine):
    submitted = await engine.submit(plan("parse"), [NewRun() for _ in range(4)])
    first = await engine.claim_next_step("A", "L1")
    second = await engine.claim_next_step("A", "L2")
    third = await engine.claim_next_step("A", "L3")
    await engine.complete_step(first.id, "L1")
    await engine.error_step(second.id, "L2", "boom")
    stats = (await engine.stats(submitted.group_id)).to_dict()
    assert stats.pop("average_duration") >= 0
    assert stats == {
        "total_runs": 4,
        "completed": 1,
        "running": 1,
        "pending": 1,
        "failed": 1,
        "group_status": "RUNNING",
    }
    assert await engine.recompute_run_status(third.workflow_run_id) is RunStatus.RUNNING
    assert await engine.recompute_run_status(404) is None


# --- the views ------------------------------------------------------------------------------------


async def test_the_troubleshooting_queries_of_the_seed_work(engine):
    submitted = await engine.submit(plan(key="rag:/path/to/db"), [NewRun(priority=4)])
    await engine.store.heartbeat("A")
    step = await engine.claim_next_step("A", "L1")
    await engine.database.execute("UPDATE lexigram_durable_runs SET step_started_at = 1")
    old = (
        "start_date < NOW() - INTERVAL '1 hour'"
        if engine.database.dialect == "postgresql"
        else "start_date < datetime('now', '-1 hour')"
    )
    query = engine.database.execute_query
    (stuck,) = (await query(f"SELECT * FROM runstep WHERE status='RUNNING' AND {old}")).rows
    assert (stuck["id"], stuck["worker_id"], stuck["lease_token"]) == (step.id, "A", "L1")
    assert set(stuck) == {
        *("id", "workflow_run_id", "workflow_step_number", "workflow_step_name"),
        *("step_config_id", "step_type", "is_last_step", "created_date", "priority"),
        *("start_date", "status_date", "completed_date", "retry", "retries", "status"),
        *("status_message", "status_meta", "worker_id", "lease_token", "resource_key"),
    }
    (worker,) = (await query("SELECT * FROM workercheckin")).rows
    assert worker["id"] == "A"
    assert worker["first_checkin"] == worker["last_checkin"]
    (lock,) = (await query("SELECT * FROM resourcelock WHERE resource_key='rag:/path/to/db'")).rows
    assert (lock["holder_id"], lock["holder_kind"], lock["step_id"]) == ("L1", "worker", step.id)
    assert orjson.loads(lock["holder_meta"]) == {}
    await engine.complete_step(step.id, "L1")
    (done, _) = (await query("SELECT * FROM runstep ORDER BY id")).rows
    assert done["completed_date"] is not None
    assert done["workflow_run_id"] == submitted.runs[0]


async def test_a_plan_that_is_known_already_is_submitted_the_same(engine):
    runs = [NewRun(doc_id=f"d{n}", batch_id=7, priority=n, tenant="t") for n in range(3)]
    first = await engine.submit(plan(), runs, name="first")
    second = await engine.submit(plan(), runs, name="second")
    assert len(set(first.runs) | set(second.runs)) == 6
    rows = [await engine.store.group(one.group_id) for one in (first, second)]
    assert [row["name"] for row in rows] == ["first", "second"]
    told = ("workflow_id", "batch_id", "status", "total", "remaining", "plan_id", "events")
    assert len({tuple(row[name] for name in told) for row in rows}) == 1
    for n, run in enumerate(second.runs):
        row = await engine.store.run(run)
        assert (row["doc_id"], row["priority"], row["step_type"]) == (f"d{n}", n, "parse")
        assert row["turn"] > (await engine.store.run(first.runs[-1]))["turn"]
    await engine.database.execute("DELETE FROM lexigram_durable_plan_steps")
    await engine.database.execute("DELETE FROM lexigram_durable_plans")
    third = await engine.submit(plan(), runs)
    assert len(third.runs) == 3, "a plan that is gone is written again"

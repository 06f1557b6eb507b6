"""Clocks that are wrong or jump: leases go by the clock of the database."""

from datetime import timedelta

import pytest

from lexigram import clock
from lexigram.testing.fakes import FakeClock
from lexigram.workflow.durable import DurableEngine, NewRun, RunPlan, StepPlan, Terms

pytestmark = pytest.mark.anyio

PLAN = RunPlan(
    workflow_id="w", steps=[StepPlan(name="a", step_type="a", handler="a", resource_key="K")]
)


@pytest.mark.service("postgresql")
async def test_a_worker_whose_clock_is_wrong_keeps_and_takes_nothing_by_it(postgres):
    engine = DurableEngine(postgres, Terms(lease=60.0))
    await engine.submit(PLAN, [NewRun(), NewRun(delay=3600)])
    step = await engine.claim_next_step("right", "L1")
    with clock.use(FakeClock()) as wrong:
        for jump in (timedelta(days=-400), timedelta(days=9000)):
            wrong.set(wrong.now() + jump)
            assert (await engine.store.reap(["wrong"])).steps == []
            assert (await engine.store.tend()).promoted == 0
            assert await engine.claim_next_step("wrong", "L2") is None
            [beat] = await engine.store.heartbeat("right", [(step.workflow_run_id, "L1")])
            assert beat.is_kept
        assert await engine.complete_step(step.id, "L1")


async def test_a_clock_that_jumps_ahead_ends_leases_and_no_stale_write_is_accepted(sqlite):
    engine = DurableEngine(sqlite, Terms(lease=60.0))
    with clock.use(FakeClock()) as time:
        submitted = await engine.submit(PLAN, [NewRun()])
        stale = await engine.claim_next_step("stale", "L1")
        time.set(time.now() + timedelta(hours=1))
        assert (await engine.store.reap(["stale"])).steps == []
        assert (await engine.store.reap(["fresh"])).steps == [stale.id]
        fresh = await engine.claim_next_step("fresh", "L2")
        assert fresh.lock_fence > stale.lock_fence
        assert not await engine.complete_step(stale.id, "L1")
        assert await engine.complete_step(fresh.id, "L2")
        assert (await engine.stats(submitted.group_id)).completed == 1


async def test_a_clock_that_is_set_back_does_not_leave_a_dead_worker_its_steps(sqlite):
    engine = DurableEngine(sqlite, Terms(lease=60.0))
    with clock.use(FakeClock()) as time:
        await engine.submit(PLAN, [NewRun()])
        step = await engine.claim_next_step("dead", "L1")
        assert await engine.store.take_duty("sweep", 60.0)
        time.set(time.now() - timedelta(days=1))
        assert await engine.store.take_duty("sweep", 60.0)
        await engine.store.reconcile()
        assert (await engine.store.reap(["live"])).steps == []
        time.advance(61)
        assert (await engine.store.reap(["live"])).steps == [step.id]
        await engine.store.tend()

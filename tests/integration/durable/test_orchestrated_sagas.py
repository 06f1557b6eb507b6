"""Sagas as durable runs: steps and compensations are claims, and no compensation is lost."""

import anyio
import pytest
from tests.integration.durable.orchestrated_kit import GUARD, engine, over, runs, work
from tests.retries import HOPELESS

from lexigram.contracts.core.result import Err
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.types import SagaStep
from lexigram.testing import wait_until
from lexigram.workflow.durable import PlanInvalidError, StepTerms
from lexigram.workflow.saga import AbstractSaga, saga_step

pytestmark = pytest.mark.anyio

__all__ = ["engine", "runs", "work"]  # fixtures

calls = []
broken = {}  # what fails, and how often still
gates = {}  # what waits, and for what


@pytest.fixture(autouse=True)
def afresh():
    calls.clear()
    broken.clear()
    gates.clear()


async def call(name):
    calls.append(name)
    if name in gates:
        await gates[name].wait()
    if broken.get(name, 0) > 0:
        broken[name] -= 1
        raise OSError(f"{name} is broken")


class Trip(AbstractSaga):
    """Three steps; what the first learns, the others and its compensation need."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.ticket = None

    def get_id(self):
        return f"trip-{self.number}"

    def snapshot(self):
        return {"ticket": self.ticket}

    def restore(self, snapshot):
        self.ticket = snapshot["ticket"]

    @saga_step(compensation="give_back", max_retries=1, retry_delay=0.0)
    async def fly(self):
        await call("fly")
        self.ticket = f"ticket-{self.number}"

    async def give_back(self):
        await call(f"give back {self.ticket}")

    @saga_step(compensation="check_out", max_retries=0, idempotent=False)
    async def sleep(self):
        await call(f"sleep {self.ticket}")

    async def check_out(self):
        await call("check out")

    @saga_step(max_retries=1, retry_delay=0.0)
    async def eat(self):
        await call("eat")


async def test_a_saga_does_its_steps_as_claims_by_their_names(runs, work, engine):
    runs.register("trip", Trip)
    await work()
    run_id = await runs.submit("trip", {"number": 7})
    run = await over(runs, run_id)
    assert calls == ["fly", "sleep ticket-7", "eat"]
    assert run.state == {"ticket": "ticket-7"}
    assert run.done == ["fly", "sleep", "eat"]
    done = [row["step_no"] for row in await engine.attempts(run_id)]
    assert done == [1, 2, 3, 8]


async def test_a_failed_step_undoes_those_before_and_fails_the_run_by_its_name(runs, work, engine):
    broken["eat"] = 2
    runs.register("trip", Trip)
    await work()
    run_id = await runs.submit("trip", {"number": 7})
    run = await over(runs, run_id, RunStatus.FAILED)
    assert calls == ["fly", "sleep ticket-7", "eat", "eat", "check out", "give back ticket-7"]
    assert "saga 'trip-7' failed at step 'eat': OSError: eat is broken" in run.error
    # It stays failed, and nothing is undone twice.
    await engine.retry(run_id=run_id)
    await over(runs, run_id, RunStatus.FAILED)
    assert len(calls) == 6


@pytest.mark.parametrize("way", ["raises", "returns Err"])
async def test_steps_that_failed_are_shown_as_failed_with_their_error(runs, work, engine, way):
    class Failing(Trip):
        @saga_step(max_retries=1, retry_delay=0.0)
        async def pay(self):
            if way == "raises":
                raise OSError("no money")
            return Err("no money")

    broken["check out"] = 2
    runs.register("failing", Failing)
    await work()
    run_id = await runs.submit("failing", {"number": 7})
    await over(runs, run_id, RunStatus.FAILED)
    steps = {step.workflow_step_name: step for step in await engine.steps(run_id)}
    expected = {
        "fly": "COMPLETED",
        "eat": "COMPLETED",
        "pay": "FAILED",
        "undo sleep": "FAILED",
        "undo fly": "COMPLETED",
        "undo sleep again": "FAILED",
        "(end)": "CANCELLED",
    }
    assert {name: steps[name].status.value for name in expected} == expected
    error = "OSError: no money" if way == "raises" else "no money"
    assert steps["pay"].status_message == f"step 'pay' failed: {error}"
    assert steps["pay"].retry == 2
    assert "check out is broken" in steps["undo sleep"].status_message
    attempts = [
        (row["status"], row["message"])
        for row in await engine.attempts(run_id)
        if row["step_no"] == steps["pay"].workflow_step_number
    ]
    assert [status for status, _ in attempts] == ["ERROR", "FAILED"]


async def test_an_attempt_that_is_left_is_made(runs, work):
    broken["eat"] = 1
    runs.register("trip", Trip)
    await work()
    await over(runs, await runs.submit("trip", {"number": 7}))
    assert calls == ["fly", "sleep ticket-7", "eat", "eat"]


async def test_what_could_not_be_undone_is_tried_again_by_a_retry_after_the_others(
    runs, work, engine
):
    broken.update({"eat": 2, "check out": 1})
    runs.register("trip", Trip)
    await work()
    run_id = await runs.submit("trip", {"number": 7})
    run = await over(runs, run_id, RunStatus.FAILED)
    assert "not undone: 'sleep' (OSError: check out is broken)" in run.error
    assert calls[-2:] == ["check out", "give back ticket-7"]
    await engine.retry(run_id=run_id)
    run = await over(runs, run_id, RunStatus.FAILED)
    assert calls[-1] == "check out"
    assert "not undone" not in run.error
    assert calls.count("give back ticket-7") == 1


async def test_a_step_that_takes_too_long_undoes_the_others(runs, work):
    class Slow(Trip):
        @saga_step(max_retries=0)
        async def wait(self):
            await anyio.sleep_forever()

    runs.register("slow", Slow, steps={"wait": StepTerms(timeout=0.05)})
    await work()
    run = await over(runs, await runs.submit("slow", {"number": 7}), RunStatus.FAILED)
    assert "'wait' took more than 0.05 s" in run.error
    assert calls[-2:] == ["check out", "give back ticket-7"]


async def cut_off(engine, run_id, step, pool="saga"):
    """Claim as a worker that dies in the middle of a step."""
    found = await engine.claim_next_step("dead", f"lease-{step}", [pool])
    assert found is not None
    assert found.workflow_step_name == step
    await engine.database.execute(
        "UPDATE lexigram_durable_runs SET lease_until = 0 WHERE id = ?", (run_id,)
    )
    await engine.store.reap([])


async def test_a_step_that_was_cut_off_and_then_fails_is_undone_too(runs, work, engine):
    broken["fly"] = 99
    runs.register("trip", Trip)
    run_id = await runs.submit("trip", {"number": 7})
    await cut_off(engine, run_id, "fly")
    await work()
    await over(runs, run_id, RunStatus.FAILED)
    assert calls == ["fly", "fly", "give back None"]


async def test_a_compensation_that_must_not_be_called_twice_is_not_after_a_crash(
    runs, work, engine
):
    broken["eat"] = 2
    gates["eat"] = anyio.Event()
    runs.register("trip", Trip, steps={"sleep": StepTerms(pool="hotel")})
    await work({"saga": 1})
    hotel = await work({"hotel": 1})
    run_id = await runs.submit("trip", {"number": 7})
    await wait_until(lambda: "eat" in calls, timeout=GUARD)
    await hotel.stop(5.0)
    gates["eat"].set()

    async def to_undo():
        row = await engine.store.run(run_id)
        return (row["status"], row["step_type"]) == ("ready", "hotel")

    await wait_until(to_undo, timeout=GUARD)
    await cut_off(engine, run_id, "undo sleep", "hotel")
    await work({"hotel": 1})
    run = await over(runs, run_id, RunStatus.FAILED)
    assert "check out" not in calls
    assert "cut off by a crash" in run.error
    assert calls[-1] == "give back ticket-7"


async def test_a_saga_with_other_steps_is_refused(runs, work, engine):
    runs.register("trip", Trip)
    run_id = await runs.submit("trip", {"number": 7})

    class Longer(Trip):
        VERSION = 2

        def is_compatible_with(self, version):
            return True

        @saga_step()
        async def swim(self):
            await call("swim")

    runs.register("trip", Longer)
    await work()
    run = await over(runs, run_id, RunStatus.FAILED)
    assert "version 1 of saga 'trip', which is version 2 here, with other steps" in run.error
    runs.register("trip", Trip)
    await engine.retry(run_id=run_id)
    await over(runs, run_id)


async def test_a_function_that_returns_a_saga_makes_one_for_each_claim(runs, work):
    made = []

    def trip(number: int) -> Trip:
        made.append(number)
        return Trip(number)

    runs.register("trip", trip)
    await work()
    await over(runs, await runs.submit("trip", {"number": 7}))
    assert made == [7] * 5  # the submission, three steps, the end


async def test_names_that_the_undoing_needs_are_refused(runs):
    async def nothing():
        """Do nothing."""

    class Confusing(Trip):
        def __init__(self):
            super().__init__(1)
            self.add_step(SagaStep("undo fly", nothing))

    runs.register("confusing", Confusing)
    with pytest.raises(PlanInvalidError, match="share names"):
        await runs.submit("confusing")
    with pytest.raises(PlanInvalidError, match="its input is its arguments"):
        await runs.submit("confusing", 7)


@pytest.mark.parametrize("make", HOPELESS)
async def test_an_error_that_is_not_retryable_fails_a_step_and_a_compensation_at_once(
    runs, work, make
):
    class Bad(AbstractSaga):
        def __init__(self):
            super().__init__()

        def get_id(self):
            return "bad"

        @saga_step(compensation="undo", max_retries=3, retry_delay=0.0)
        async def first(self):
            calls.append("first")

        async def undo(self):
            calls.append("undo")
            raise make()

        @saga_step(max_retries=3, retry_delay=0.0)
        async def second(self):
            calls.append("second")
            raise make()

    runs.register("bad", Bad)
    await work()
    run = await over(runs, await runs.submit("bad", {}), RunStatus.FAILED)
    assert calls == ["first", "second", "undo"]
    assert type(make()).__name__ in run.error

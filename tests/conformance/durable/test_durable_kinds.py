"""Workers claim only what they have handlers for; the rest waits, and is shown; on both databases."""

import anyio
import pytest
from attrs import evolve

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    LifeCycleEvent,
    LifecycleHandler,
    NewRun,
    OrchestratedRuns,
    RunPlan,
    Selection,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)
from lexigram.workflow.durable.worker import events as events_module
from lexigram.workflow.pipeline import FunctionStep, Pipeline

pytestmark = pytest.mark.anyio

GUARD = 60.0  # against a hang only


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def engine(request):
    return DurableEngine(request.getfixturevalue(request.param), Terms(lease=5.0))


@pytest.fixture
async def running(engine):
    """Start workers that are stopped at the end."""
    workers = []

    async def start(handlers, consumers=None):
        config = WorkerConfig(consumers=consumers or {"*": 4}, poll_interval=0.1)
        worker = Worker(config, engine, handlers)
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    for worker in workers:
        await worker.stop(0.0)


def plan(*handlers, kind=None):
    steps = [StepPlan(name=name, step_type=kind or name, handler=name) for name in handlers]
    return RunPlan(workflow_id="w", steps=steps)


async def work():
    """Nothing."""


async def end_of(engine, submitted):
    async def is_final():
        status = (await engine.stats(submitted.group_id)).group_status
        return status in (RunStatus.COMPLETED, RunStatus.FAILED)

    await wait_until(is_final, timeout=GUARD)
    return (await engine.stats(submitted.group_id)).group_status


async def a_few_beats(worker):
    """Long enough for it to claim what it would claim."""
    before = worker._heartbeat.beats
    worker._heartbeat.wake()
    await wait_until(lambda: worker._heartbeat.beats > before, timeout=GUARD)


async def test_a_step_without_a_handler_here_is_never_claimed_and_waits_for_who_has_it(
    engine, running
):
    first = await running({"known": work})
    waiting = await engine.submit(plan("unknown"), [NewRun()])
    done = await engine.submit(plan("known"), [NewRun()])
    assert await end_of(engine, done) is RunStatus.COMPLETED
    await a_few_beats(first)
    row = await engine.store.run(waiting.runs[0])
    assert (row["status"], row["fence"], row["retry"], row["started_at"]) == ("ready", 0, 0, None)
    await running({"unknown": work})
    assert await end_of(engine, waiting) is RunStatus.COMPLETED


async def test_a_run_goes_from_worker_to_worker_when_each_has_some_of_its_handlers(engine, running):
    workers = [await running({name: work}) for name in ("a", "b", "c")]
    submitted = await engine.submit(plan("a", "b", "c", "a", kind="one"), [NewRun()])
    assert await end_of(engine, submitted) is RunStatus.COMPLETED
    attempts = await engine.attempts(submitted.runs[0])
    assert [row["status"] for row in attempts] == ["COMPLETED"] * 4
    did = [row["worker_id"] for row in attempts]
    assert did == [workers[n].id for n in (0, 1, 2, 0)]


async def test_what_no_live_worker_has_is_in_the_stats_until_one_has_it(engine, running):
    submitted = await engine.submit(plan("unknown", kind="parse"), [NewRun()])
    problem = "no worker for handler unknown (pool parse)"
    assert [str(one) for one in await engine.unserved()] == [problem]
    assert len((await engine.stats(submitted.group_id)).to_dict()) == 7, "nobody works at all"
    # One that has it and no pool for its type is none; both say so when they have looked.
    workers = [await running({"unknown": work}, {"store": 1}), await running({"known": work})]

    async def is_shown():
        lacking = all(worker._heartbeat.lacks for worker in workers)
        return lacking and [str(one) for one in await engine.unserved()] == [problem]

    await wait_until(is_shown, timeout=GUARD)
    stats = await engine.stats(submitted.group_id)
    assert stats.problems == (problem,)
    assert stats.to_dict()["problems"] == [problem]
    await running({"unknown": work})
    assert await end_of(engine, submitted) is RunStatus.COMPLETED
    assert await engine.unserved() == []
    assert "problems" not in (await engine.stats(submitted.group_id)).to_dict()


async def test_a_live_worker_with_the_handler_is_enough_and_a_dead_one_is_not(engine):
    submitted = await engine.submit(plan("work"), [NewRun()])
    [kind] = await engine.store.kinds()
    await engine.store.heartbeat("others", (), [99, kind.id])
    assert len(await engine.unserved(submitted.group_id)) == 1
    await engine.store.heartbeat("live", (), [kind.id + 10, kind.id * 100 + 7])
    assert await engine.unserved() == []
    await engine.database.execute("UPDATE lexigram_durable_checkins SET expires_at = 1")
    assert len(await engine.unserved()) == 1


async def test_runs_that_wait_for_runs_without_a_worker_are_in_the_stats(engine, running):
    async def split(ctx):
        ctx.spawn(plan("page"), [NewRun()])

    await running({"split": split, "gather": work})
    submitted = await engine.submit(plan("split", "gather"), [NewRun()])

    async def problems():
        return (await engine.stats(submitted.group_id)).problems

    await wait_until(problems, timeout=GUARD)
    assert await problems() == ("no worker for handler page (pool page)",)
    assert await problems() == ("no worker for handler page (pool page)",), "and so it stays"
    await running({"page": work})
    assert await end_of(engine, submitted) is RunStatus.COMPLETED


async def test_a_handler_that_is_registered_later_is_found(engine, running):
    handlers = {}
    worker = await running(handlers)
    submitted = await engine.submit(plan("late"), [NewRun()])
    await a_few_beats(worker)
    handlers["late"] = work
    assert await end_of(engine, submitted) is RunStatus.COMPLETED


async def test_a_handler_that_went_away_uses_up_no_attempt(engine, running):
    handlers = {"work": work}
    await running(handlers)
    first = await engine.submit(plan("work"), [NewRun()])
    assert await end_of(engine, first) is RunStatus.COMPLETED
    handlers.clear()
    entered = anyio.Event()

    async def other():
        entered.set()

    second = await running({"work": other})
    await second.stop()
    third = await engine.submit(plan("work", "other"), [NewRun()])
    handlers["work"] = work
    await running({"other": other})
    assert await end_of(engine, third) is RunStatus.COMPLETED
    rows = await engine.attempts(third.runs[0])
    assert [row["retry"] for row in rows if row["status"] != "PENDING"] == [0, 0]


async def test_a_pipeline_that_is_not_registered_here_waits_for_who_has_it(engine, running):
    here, elsewhere = OrchestratedRuns(engine), OrchestratedRuns(engine)
    elsewhere.register("shop", Pipeline("shop", [FunctionStep("a", lambda context: 1)]))
    here.register("other", Pipeline("other", [FunctionStep("a", lambda context: 1)]))
    worker = await running(here.handlers)
    run_id = await elsewhere.submit("shop")
    other = await here.submit("other")
    assert (await here.ended(other)).status is RunStatus.COMPLETED
    await a_few_beats(worker)
    row = await engine.store.run(run_id)
    assert (row["status"], row["fence"]) == ("ready", 0)
    [unserved] = await engine.unserved()
    assert unserved.handler == "orchestrated.turn:shop"
    await running(elsewhere.handlers)
    with anyio.fail_after(GUARD):
        assert (await elsewhere.ended(run_id)).status is RunStatus.COMPLETED


async def test_ten_thousand_runs_of_an_unknown_handler_do_not_hold_up_the_one_behind_them(
    engine, running
):
    await engine.submit(plan("unknown", kind="one"), [NewRun(priority=9) for _ in range(10_000)])
    submitted = await engine.submit(plan("known", kind="one"), [NewRun()])
    await running({"known": work}, {"one": 2, "*": 2})
    assert await end_of(engine, submitted) is RunStatus.COMPLETED


async def test_kinds_are_handed_out_in_turn_and_priority_goes_first(engine):
    """Of several kinds a claim takes those first that are first in line, within a second."""
    for name, priority in (("a", 0), ("b", 2), ("c", 1), ("a", 3)):
        await engine.submit(plan(name), [NewRun(priority=priority) for _ in range(2)])
    kinds = {kind.id: kind.handler for kind in await engine.store.kinds()}
    selection = Selection(types=(), excluded=True, kinds=list(kinds))
    claimed = []
    for lease in ("L1", "L2", "L3"):
        claims = (await engine.store.claim("w", lease, selection, 3)).claims
        claimed += [(kinds[one.kind], one.priority) for one in claims]
    wanted = [("a", 3), ("a", 3), ("b", 2), ("b", 2), ("c", 1), ("c", 1), ("a", 0), ("a", 0)]
    assert claimed == wanted


async def test_claims_at_once_over_many_kinds_get_every_run_once(engine):
    names = ("a", "b", "c", "d")
    for _ in range(5):
        for name in names:
            await engine.submit(plan(name), [NewRun()])
    kinds = [kind.id for kind in await engine.store.kinds()]
    claimed = []

    async def claim(number):
        selection = Selection(types=(), excluded=True, kinds=kinds)
        turn = 0
        while got := (await engine.store.claim("w", f"L{number}-{turn}", selection, 3)).claims:
            claimed.extend(one.run_id for one in got)
            turn += 1

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(claim, number)
    assert len(claimed) == len(set(claimed)) == 20


async def test_a_heartbeat_of_a_step_leaves_what_its_worker_lacks_as_it_is(engine, running):
    is_shown = anyio.Event()

    async def known(ctx):
        await is_shown.wait()
        assert await ctx.heartbeat()
        problems.extend(str(one) for one in await engine.unserved())

    problems = []
    await running({"known": known})
    waiting = await engine.submit(plan("unknown"), [NewRun()])
    submitted = await engine.submit(plan("known"), [NewRun()])

    async def is_lacking():
        return (await engine.stats(waiting.group_id)).problems

    await wait_until(is_lacking, timeout=GUARD)
    is_shown.set()
    assert await end_of(engine, submitted) is RunStatus.COMPLETED
    assert problems == ["no worker for handler unknown (pool unknown)"]


# --- handlers of lifecycle events -----------------------------------------------------------------


def plan_with_handlers(*names, event=LifeCycleEvent.GROUP_END, step="known"):
    handlers = [LifecycleHandler(name=f"on {name}", handler=name) for name in names]
    return evolve(plan(step), lifecycle={event: handlers})


async def submit_ended(engine, given):
    """A group whose events wait: nobody who could handle them is there."""
    submitted = await engine.submit(given, [NewRun()])
    step = await engine.claim_next_step("w", "L")
    assert await engine.complete_step(step.id, "L")
    return submitted


@pytest.mark.parametrize("event", [LifeCycleEvent.GROUP_END, LifeCycleEvent.ITEM_END])
async def test_a_lifecycle_handler_that_no_live_worker_has_is_in_the_stats_until_one_has_it(
    engine, running, event
):
    heard = []

    async def notify(event):
        heard.append(event.kind)

    await running({"known": work})
    await running({"other": work})
    submitted = await engine.submit(plan_with_handlers("notify", event=event), [NewRun()])
    problem = f"no worker for handler notify (event {event})"

    async def is_shown():
        return (await engine.stats(submitted.group_id)).problems == (problem,)

    await wait_until(is_shown, timeout=GUARD)
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.COMPLETED
    [unserved] = await engine.unserved()
    assert (str(unserved), unserved.queue, unserved.event) == (problem, None, event)
    assert unserved.waits_since > 0
    await running({"notify": notify})
    assert await engine.unserved() == []
    await wait_until(lambda: heard == [event], timeout=GUARD)
    assert (await engine.stats(submitted.group_id)).problems == ()


async def test_a_worker_that_has_not_met_a_lifecycle_handler_may_have_it_and_a_dead_one_has_not(
    engine,
):
    submitted = await submit_ended(engine, plan_with_handlers("notify"))
    problem = "no worker for handler notify (event group_end)"

    async def shown():
        stats = await engine.stats(submitted.group_id)
        return [str(one) for one in await engine.unserved()], stats.problems

    assert await shown() == ([problem], ()), "nobody works at all"
    await engine.store.heartbeat("lacks it", lacks_handlers=["aaa", "notify"])
    assert await shown() == ([problem], (problem,))
    await engine.store.heartbeat("lacks another", (), [1], ["notify2", "otify"])
    assert await shown() == ([], ())
    # A worker of the version before lists kinds of steps only.
    await engine.store.heartbeat("lacks another", (), [1])
    assert await shown() == ([], ())
    await engine.database.execute(
        "UPDATE lexigram_durable_checkins SET expires_at = 1 WHERE worker_id = 'lacks another'"
    )
    assert await shown() == ([problem], (problem,))


async def test_of_the_handlers_of_an_event_those_that_wait_are_shown_and_not_those_that_are_done(
    engine, running
):
    await running({"known": work, "done": work})
    submitted = await engine.submit(plan_with_handlers("done", "absent"), [NewRun()])

    async def problems():
        return (await engine.stats(submitted.group_id)).problems

    problem = "no worker for handler absent (event group_end)"
    await wait_until(problems, timeout=GUARD)
    assert await problems() == (problem,)
    await engine.database.execute("UPDATE lexigram_durable_checkins SET lacks = ',@absent,@done,'")
    assert [str(one) for one in await engine.unserved()] == [problem]


async def test_steps_and_lifecycle_handlers_without_a_worker_are_shown_together(engine):
    ended = await submit_ended(engine, plan_with_handlers("a,1,@b%", "späť", "fine"))
    waiting = await engine.submit(plan("unknown"), [NewRun()])
    kinds = [kind.id for kind in await engine.store.kinds() if kind.handler == "unknown"]
    await engine.store.heartbeat("w", (), kinds, ["a,1,@b%", "späť"])
    of_events = [f"no worker for handler {name} (event group_end)" for name in ("a,1,@b%", "späť")]
    of_steps = ["no worker for handler unknown (pool unknown)"]
    assert [str(one) for one in await engine.unserved()] == of_events + of_steps
    assert (await engine.stats(ended.group_id)).problems == tuple(of_events)
    assert (await engine.stats(waiting.group_id)).problems == tuple(of_steps)


async def test_lifecycle_handlers_of_runs_that_a_run_made_are_shown(engine, running):
    async def split(ctx):
        ctx.spawn(plan_with_handlers("notify", event=LifeCycleEvent.ITEM_END), [NewRun()])

    await running({"split": split, "gather": work, "known": work})
    submitted = await engine.submit(plan("split", "gather"), [NewRun()])

    async def problems():
        return (await engine.stats(submitted.group_id)).problems

    await wait_until(problems, timeout=GUARD)
    assert await problems() == ("no worker for handler notify (event item_end)",)


async def test_a_lifecycle_handler_in_a_plan_of_a_later_version_is_shown(engine):
    await submit_ended(engine, plan_with_handlers("notify"))
    await engine.database.execute(
        "UPDATE lexigram_durable_plans"
        """ SET body = replace(body, '"handler":', '"later": 1, "handler":')"""
    )
    problem = "no worker for handler notify (event group_end)"
    assert [str(one) for one in await engine.unserved()] == [problem]


async def test_a_lifecycle_handler_that_is_registered_later_is_found(engine, running, monkeypatch):
    monkeypatch.setattr(events_module, "_ELSEWHERE_SECONDS", 0.05)
    handlers, heard = {"known": work}, []

    async def notify():
        heard.append(1)

    worker = await running(handlers)
    await engine.submit(plan_with_handlers("notify"), [NewRun()])
    await wait_until(engine.unserved, timeout=GUARD)
    handlers["notify"] = notify
    await wait_until(lambda: heard, timeout=GUARD)
    await a_few_beats(worker)
    found = await engine.database.execute_query("SELECT lacks FROM lexigram_durable_checkins")
    assert "notify" not in found.rows[0]["lacks"]

"""Runs that runs make, routes, conditions, pools and parked runs; on both databases."""

import anyio
import pytest
from attrs import evolve

from lexigram.contracts.workflow.durable import ArtifactType, RunStatus
from lexigram.contracts.workflow.errors import StepRefusedError
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    End,
    EndKind,
    NewRun,
    PlanInvalidError,
    RunNotParkedError,
    RunPlan,
    Spawn,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)
from lexigram.workflow.durable.store.overview import Overview

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

    async def start(handlers, consumers=None, **options):
        config = WorkerConfig(consumers=consumers or {"*": 4}, poll_interval=0.2)
        worker = Worker(config, engine, handlers, **options)
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    for worker in workers:
        await worker.stop(0.0)


def step(name, **options):
    return StepPlan(**{"name": name, "step_type": name, "handler": name, **options})


def plan(*names, **options):
    return RunPlan(workflow_id="w", steps=[step(name, **options) for name in names])


async def ended(engine, submitted):
    async def done():
        status = (await engine.stats(submitted.group_id)).group_status
        return status in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)

    await wait_until(done, timeout=GUARD)
    return (await engine.stats(submitted.group_id)).group_status


async def state(engine, run_id):
    return (await engine.store.run(run_id))["status"]


async def reached(engine, run_id, status):
    async def there():
        return await state(engine, run_id) == status

    await wait_until(there, timeout=GUARD)


async def runs_of(engine, run_id):
    return [child.run_id for child in await engine.children(run_id)]


PAGES = plan("ocr", "page")


def fan(count, seen, *, broken=()):
    """Handlers of a run that makes ``count`` runs and adds up what they return."""

    async def split(ctx):
        ctx.spawn(PAGES, [NewRun(params={"page": number}) for number in range(count)])

    async def ocr(page):
        if page in broken:
            raise StepRefusedError(f"page {page} is empty")
        return {"chars": page}

    async def page(run_step, page):
        return {"value": page * 10}

    async def merge(ctx):
        children = await ctx.children()
        seen.append([child.status_meta.get("value") for child in children])
        return {"sum": sum(seen[-1])}

    return {"split": split, "ocr": ocr, "page": page, "merge": merge}


# --- runs that runs make --------------------------------------------------------------------------


async def test_a_step_that_makes_no_run_lets_the_next_one_gather_none(engine, running):
    counts, seen = iter([2, 0, 1]), []

    async def split(ctx):
        ctx.spawn(PAGES, [NewRun(params={"page": number}) for number in range(next(counts))])

    await running(fan(0, seen) | {"split": split})
    names = ["split", "merge", "split again", "merge again", "split more", "merge more"]
    steps = [step(name, handler=name.split(maxsplit=1)[0]) for name in names]
    submitted = await engine.submit(RunPlan(workflow_id="w", steps=steps), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert seen == [[0, 10], [], [0]]


async def test_a_step_makes_runs_and_the_next_one_gathers_what_they_returned(engine, running):
    seen = []
    await running(fan(5, seen))
    submitted = await engine.submit(plan("split", "merge"), [NewRun(doc_id="d", priority=3)])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert seen == [[0, 10, 20, 30, 40]]
    [run] = submitted.runs
    assert (await engine.steps(run))[1].status_meta == {"sum": 100}
    children = await runs_of(engine, run)
    child = await engine.run(children[0])
    assert (child.parent_id, child.doc_id, child.priority) == (run, "d", 3)
    stats = await engine.stats(submitted.group_id)
    assert (stats.total_runs, stats.completed) == (1, 1)
    assert (await engine.store.group(submitted.group_id))["endings"] == 1


async def test_runs_that_runs_make_may_make_runs(engine, running):
    inner = plan("leaf")
    middle = plan("half", "join")

    async def top(ctx):
        ctx.spawn(middle, [NewRun(params={"n": n}) for n in (1, 2)])
        ctx.spawn(inner, [NewRun(params={"n": 100})])

    async def half(ctx, n):
        ctx.spawn(inner, [NewRun(params={"n": n * 10 + m}) for m in (1, 2)])

    async def leaf(n):
        return {"n": n}

    async def join(ctx):
        return {"n": sum(child.status_meta["n"] for child in await ctx.children())}

    await running({"top": top, "half": half, "leaf": leaf, "join": join})
    submitted = await engine.submit(plan("top", "join"), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert (await engine.steps(submitted.runs[0]))[1].status_meta == {"n": 11 + 12 + 21 + 22 + 100}


async def test_steps_of_the_same_plan_can_be_the_runs_that_are_made(engine, running):
    async def split(ctx):
        ctx.spawn(["page"], [NewRun(params={"page": n}) for n in range(3)])
        return {"next_step": "merge"}

    seen = []
    await running({**fan(0, seen), "split": split})
    submitted = await engine.submit(plan("split", "page", "merge"), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert seen == [[0, 10, 20]]


async def test_making_no_runs_goes_on_at_once(engine, running):
    seen = []
    await running(fan(0, seen))
    submitted = await engine.submit(plan("split", "merge"), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert seen == [[]]


async def test_a_last_step_that_makes_runs_fails_clearly(engine, running):
    await running(fan(2, []))
    submitted = await engine.submit(plan("split"), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.FAILED
    [first] = await engine.steps(submitted.runs[0])
    assert "is the last one" in first.status_message
    assert await engine.children(submitted.runs[0]) == []


async def test_a_run_fails_when_all_are_final_and_one_failed_and_a_retry_repeats_that_one(
    engine, running
):
    seen, broken = [], {2}
    await running(fan(4, seen, broken=broken))
    submitted = await engine.submit(plan("split", "merge"), [NewRun()])
    [run] = submitted.runs
    assert await ended(engine, submitted) is RunStatus.FAILED
    first, second = await engine.steps(run)
    assert (first.status, second.status) == (RunStatus.COMPLETED, RunStatus.FAILED)
    assert "1 of the 4 runs" in second.status_message
    assert "page 2 is empty" in second.status_message
    children = await engine.children(run)
    assert [child.status.value for child in children].count("COMPLETED") == 3
    assert seen == []
    broken.clear()
    assert await engine.retry(group_id=submitted.group_id) == 2
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert seen == [[0, 10, 20, 30]]
    attempts = [len(await engine.attempts(child.run_id)) for child in children]
    assert attempts == [2, 2, 3, 2]
    assert (await engine.store.group(submitted.group_id))["endings"] == 2


async def spawned(engine, count=3):
    """A run that waits for others, without a worker."""
    submitted = await engine.submit(plan("split", "merge"), [NewRun()])
    claimed = await engine.claim_next_step("w", "L")
    [run] = submitted.runs
    end = End(run_id=run, step_no=1, lease="L", kind=EndKind.COMPLETED, message="success")
    spawn = Spawn(plan=plan("page"), runs=[NewRun() for _ in range(count)])
    [done] = await engine.store.finish([evolve(end, spawns=[spawn])])
    assert claimed is not None
    return submitted, run, done


async def test_runs_are_made_once_and_only_by_who_has_the_lease(engine):
    submitted, run, done = await spawned(engine)
    assert done is not None
    assert await state(engine, run) == "waiting"
    assert len(await engine.children(run)) == 3
    end = End(run_id=run, step_no=1, lease="L", kind=EndKind.COMPLETED)
    again = evolve(end, spawns=[Spawn(plan=plan("page"), runs=[NewRun()])])
    assert await engine.store.finish([again]) == [None]
    assert len(await engine.children(run)) == 3
    assert (await engine.stats(submitted.group_id)).total_runs == 1


async def test_a_cancelled_run_cancels_those_it_made_and_a_retry_brings_all_back(engine):
    submitted, run, _ = await spawned(engine)
    one = await engine.claim_next_step("w", "L1")
    await engine.complete_step(one.id, "L1")
    two = await engine.claim_next_step("w", "L2")
    assert await engine.cancel(run_id=run) == 3  # it, one that waits, one that runs
    assert await engine.error_step(two.id, "L2", "told to stop", fatal=True) is RunStatus.FAILED
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.CANCELLED
    assert await engine.claim_next_step("w", "L3") is None
    assert await engine.retry(run_id=run) == 3
    assert await state(engine, run) == "waiting"
    for number in range(2):
        step = await engine.claim_next_step("w", f"M{number}")
        assert step.workflow_step_name == "page"
        assert await engine.complete_step(step.id, f"M{number}")
    last = await engine.claim_next_step("w", "M3")
    assert (last.workflow_run_id, last.workflow_step_name) == (run, "merge")
    await engine.complete_step(last.id, "M3")
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.COMPLETED
    assert await engine.store.reconcile() == 0


async def test_a_paused_run_pauses_those_it_made_and_all_go_on(engine):
    submitted, run, _ = await spawned(engine, 2)
    one = await engine.claim_next_step("w", "L1")
    assert await engine.pause(group_id=submitted.group_id) == 3
    await engine.complete_step(one.id, "L1")
    assert await engine.claim_next_step("w", "L2") is None
    assert await engine.resume(run_id=run) == 2
    assert await state(engine, run) == "waiting"
    two = await engine.claim_next_step("w", "L3")
    await engine.complete_step(two.id, "L3")
    last = await engine.claim_next_step("w", "L4")
    assert last.workflow_step_name == "merge"


async def test_a_cancel_while_a_step_makes_runs_reaches_them(engine):
    submitted = await engine.submit(plan("split", "merge"), [NewRun()])
    [run] = submitted.runs
    await engine.claim_next_step("w", "L")
    await engine.cancel(run_id=run)
    end = End(run_id=run, step_no=1, lease="L", kind=EndKind.COMPLETED)
    spawn = Spawn(plan=plan("page"), runs=[NewRun(), NewRun()])
    await engine.store.finish([evolve(end, spawns=[spawn])])
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.CANCELLED
    assert {child.status for child in await engine.children(run)} == {RunStatus.CANCELLED}
    assert await engine.retry(run_id=run) == 3
    assert await state(engine, run) == "waiting"


async def test_of_many_that_end_at_once_the_last_makes_the_run_ready_once(engine):
    submitted, run, _ = await spawned(engine, 24)

    async def work(number):
        turn = 0
        while (step := await engine.claim_next_step(f"w{number}", f"{number}-{turn}")) is not None:
            assert await engine.complete_step(step.id, f"{number}-{turn}")
            turn += 1

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(work, number)
    attempts = [row["step_no"] for row in await engine.attempts(run)]
    assert attempts == [1, 2]
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.COMPLETED
    assert await engine.store.reconcile() == 0


async def test_a_run_that_waits_for_nothing_is_found_and_goes_on(engine):
    _, run, _ = await spawned(engine, 1)
    await engine.database.execute(
        "UPDATE lexigram_durable_runs SET status = 'completed', completed_at = 1 WHERE id <> ?",
        (run,),
    )
    assert await engine.store.reconcile() == 1
    assert await state(engine, run) == "ready"


# --- routes, conditions, pools --------------------------------------------------------------------


async def test_a_route_goes_on_with_a_later_step_and_the_rest_is_skipped(engine, running):
    done = []

    async def route():
        return {"next_step": "c", "kind": "scan"}

    async def work(run_step):
        done.append(run_step.workflow_step_name)

    await running({"route": route, "a": work, "b": work, "c": work})
    submitted = await engine.submit(plan("route", "a", "b", "c"), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert done == ["c"]
    steps = await engine.steps(submitted.runs[0])
    assert {step.status for step in steps} == {RunStatus.COMPLETED}
    assert [step.status_meta.get("skipped", False) for step in steps] == [False, True, True, False]


@pytest.mark.parametrize(
    ("target", "text"),
    [("nowhere", "is not a step of the plan"), ("a", "is not a later step"), (7, "is not a step")],
)
async def test_a_route_that_leads_nowhere_fails_the_step(engine, running, target, text):
    async def route():
        return {"next_step": target}

    async def work():
        return None

    await running({"a": work, "route": route, "b": work})
    submitted = await engine.submit(plan("a", "route", "b", retries=3), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.FAILED
    _, second, third = await engine.steps(submitted.runs[0])
    assert text in second.status_message
    assert third.status is RunStatus.CANCELLED


async def test_a_step_whose_condition_is_false_is_skipped(engine, running):
    done = []

    async def look():
        return {"has_tables": True, "pages": 0}

    async def work(run_step):
        done.append(run_step.workflow_step_name)

    conditions = {
        "a": "has_tables",
        "b": "not has_tables",
        "c": "pages",
        "d": "unheard_of",
        "e": "not unheard_of",
        "f": "fast",
    }
    steps = [step("look")]
    steps += [step(name, handler="work", when=when) for name, when in conditions.items()]
    await running({"look": look, "work": work})
    submitted = await engine.submit(
        RunPlan(workflow_id="w", steps=steps), [NewRun(params={"fast": True})]
    )
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert done == ["a", "e", "f"]
    skipped = (await engine.steps(submitted.runs[0]))[2]
    assert skipped.status_meta == {"skipped": True, "when": "not has_tables"}


async def test_conditions_that_are_none_are_refused():
    with pytest.raises(PlanInvalidError, match="neither `name` nor `not name`"):
        plan("a", when="x and y")


async def test_a_pool_takes_the_steps_that_name_it(engine, running):
    seen = []

    async def work(run_step):
        seen.append((run_step.workflow_step_name, run_step.step_type))

    parts = [step("a", handler="work"), step("b", handler="work", pool="gpu")]
    await running({"work": work}, consumers={"a": 1, "b": 1})
    submitted = await engine.submit(RunPlan(workflow_id="w", steps=parts), [NewRun()])
    [run] = submitted.runs

    async def first_done():
        return (await engine.store.run(run))["step_no"] == 2

    await wait_until(first_done, timeout=GUARD)
    assert (await engine.store.run(run))["step_type"] == "gpu"
    await running({"work": work}, consumers={"gpu": 1})
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert seen == [("a", "a"), ("b", "b")]


async def test_a_claim_can_be_for_one_batch(engine):
    await engine.submit(plan("a"), [NewRun(batch_id=1)])
    await engine.submit(plan("a"), [NewRun(batch_id=2)])
    assert await engine.claim_next_step("w", "L0", batch_id=3) is None
    found = await engine.claim_next_step("w", "L1", batch_id=2)
    assert (await engine.run(found.workflow_run_id)).batch_id == 2
    assert await engine.claim_next_step("w", "L2", ["b"], batch_id=1) is None
    assert await engine.claim_next_step("w", "L3", ["a"], batch_id=1) is not None


async def test_a_refused_input_is_not_tried_again(engine, running):
    calls = []

    async def parse():
        calls.append(1)
        raise StepRefusedError("encrypted")

    await running({"parse": parse})
    submitted = await engine.submit(plan("parse", retries=5), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.FAILED
    assert calls == [1]


# --- parked ---------------------------------------------------------------------------------------


async def test_a_parked_run_holds_no_slot_and_goes_on_with_the_answer(engine, running):
    seen = []

    async def ask(ctx):
        if not ctx.answered:
            return ctx.park("pay?")
        return {"answer": ctx.answer}

    async def other():
        seen.append("other")

    worker = await running({"ask": ask, "other": other}, {"*": 1})
    submitted = await engine.submit(plan("ask", "other"), [NewRun()])
    [run] = submitted.runs
    await reached(engine, run, "parked")
    await wait_until(lambda: worker.busy == 0, timeout=GUARD)
    assert (await engine.run(run)).parked == "pay?"
    another = await engine.submit(plan("other"), [NewRun()])
    assert await ended(engine, another) is RunStatus.COMPLETED
    await engine.answer(run, {"yes": True})
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert (await engine.steps(run))[0].status_meta == {"answer": {"yes": True}}
    with pytest.raises(RunNotParkedError):
        await engine.answer(run, 1)


async def test_a_parked_run_can_be_paused_and_cancelled(engine):
    submitted = await engine.submit(plan("ask"), [NewRun()])
    [run] = submitted.runs
    await engine.claim_next_step("w", "L")
    park = End(run_id=run, step_no=1, lease="L", kind=EndKind.PARKED, message="pay?")
    await engine.store.finish([park])
    assert await engine.claim_next_step("w", "L2") is None
    await engine.pause(run_id=run)
    await engine.resume(run_id=run)
    assert await state(engine, run) == "parked"
    await engine.pause(run_id=run)
    await engine.answer(run, None)
    assert await engine.claim_next_step("w", "L3") is None
    await engine.resume(run_id=run)
    assert (await engine.claim_next_step("w", "L4")).workflow_run_id == run
    await engine.store.finish([End(run_id=run, step_no=1, lease="L4", kind=EndKind.PARKED)])
    await engine.cancel(run_id=run)
    assert (await engine.stats(submitted.group_id)).group_status is RunStatus.CANCELLED


async def test_the_worker_shows_how_far_its_steps_are(engine, running):
    go_on = anyio.Event()

    async def parse(ctx):
        await ctx.progress(3, 10, "pages")
        await go_on.wait()

    worker = await running({"parse": parse})
    submitted = await engine.submit(plan("parse"), [NewRun()])
    await wait_until(lambda: worker.progress, timeout=GUARD)
    [progress] = worker.progress.values()
    assert (progress.current, progress.total, progress.message) == (3, 10, "pages")
    go_on.set()
    assert await ended(engine, submitted) is RunStatus.COMPLETED


# --- artifacts ------------------------------------------------------------------------------------


class Shelf:
    """Binds what a step makes, in memory; a step whose artifact is there need not run."""

    def __init__(self):
        self.made = {}

    def of(self, run_step, workflow_run, plan):
        return None if workflow_run.doc_id is None else _Place(self.made, run_step, workflow_run)


class _Place:
    def __init__(self, made, run_step, workflow_run):
        self._made = made
        self._key = (workflow_run.doc_id, run_step.workflow_step_name)

    def artifact(self, kind, name=None):
        return self._made.setdefault(self._key, [])

    async def complete(self):
        return bool(self._made.get(self._key))


async def test_a_step_whose_artifacts_are_there_is_skipped(engine, running):
    calls = []

    async def parse(ctx, workflow_run):
        calls.append(workflow_run.doc_id)
        ctx.artifact(ArtifactType.PARSED_MD).append("text")

    await running({"parse": parse}, artifacts=Shelf())
    first = await engine.submit(plan("parse"), [NewRun(doc_id="d")])
    assert await ended(engine, first) is RunStatus.COMPLETED
    second = await engine.submit(plan("parse"), [NewRun(doc_id="d")])
    assert await ended(engine, second) is RunStatus.COMPLETED
    assert calls == ["d"]
    [step] = await engine.steps(second.runs[0])
    assert (step.status_meta, step.status_message) == ({"skipped": True}, "skipped")


async def test_runs_that_share_a_document_with_the_one_that_made_them_are_not_skipped(
    engine, running
):
    pages = []

    async def split(ctx):
        ctx.spawn(plan("parse"), [NewRun(params={"page": number}) for number in (1, 2)])

    async def parse(ctx, page, workflow_run):
        pages.append((page, workflow_run.doc_id))
        ctx.artifact(ArtifactType.PARSED_MD).append(page)

    async def join():
        return None

    await running({"split": split, "parse": parse, "join": join}, artifacts=Shelf())
    submitted = await engine.submit(plan("split", "join"), [NewRun(doc_id="d")])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert sorted(pages) == [(1, "d"), (2, "d")]


async def test_a_step_without_artifacts_that_asks_for_one_fails_clearly(engine, running):
    async def parse(ctx):
        ctx.artifact(ArtifactType.PARSED_MD)

    await running({"parse": parse}, artifacts=Shelf())
    submitted = await engine.submit(plan("parse", retries=3), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.FAILED
    [step] = await engine.steps(submitted.runs[0])
    assert "has no artifacts here" in step.status_message


async def test_lists_of_runs_leave_out_those_that_runs_made(engine, running):
    await running(fan(3, []))
    submitted = await engine.submit(plan("split", "merge"), [NewRun(doc_id="d"), NewRun()])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    overview = Overview(engine.database)
    page = await overview.runs(group_id=submitted.group_id)
    assert page.total == 2
    assert sorted(row["id"] for row in page.items) == sorted(submitted.runs)
    durations = await overview.durations(submitted.group_id)
    assert {row["workflow_run_id"] for row in durations} == set(submitted.runs)

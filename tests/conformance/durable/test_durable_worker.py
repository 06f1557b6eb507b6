"""Workers: pools, handlers, stops, cancels, events; on both databases."""

import time
from collections import Counter

import anyio
import pytest

from lexigram.contracts.workflow import InvalidRunError
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    LifeCycleEvent,
    NewRun,
    PlanInvalidError,
    RunPlan,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)

pytestmark = pytest.mark.anyio

GUARD = 60.0  # against a hang only


class Figures:
    """Keeps what a worker counts."""

    def __init__(self):
        self.counters = Counter()
        self.histograms = Counter()

    def incr(self, name, value=1, **labels):
        self.counters[name] += value

    def observe(self, name, value, **labels):
        self.histograms[name] += 1


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


def plan(*types, **options):
    steps = [
        StepPlan(name=kind, step_type=kind, handler=kind, **options) for kind in types or ("parse",)
    ]
    return RunPlan(workflow_id="w", steps=steps)


async def ended(engine, submitted):
    async def done():
        return (await engine.stats(submitted.group_id)).group_status in (
            RunStatus.COMPLETED,
            RunStatus.FAILED,
            RunStatus.CANCELLED,
        )

    await wait_until(done, timeout=GUARD)
    return (await engine.stats(submitted.group_id)).group_status


async def test_a_handler_gets_what_it_names_and_its_dict_is_kept(engine, running):
    seen = []

    async def load(workflow_run):
        return f"document {workflow_run.doc_id}"

    async def parse(run_step, workflow_run, doc, step_params, ctx, size, lang="en"):
        seen.append((run_step.step_type, workflow_run.run_params, doc, step_params, size, lang))
        assert await ctx.heartbeat() is True
        return {"pages": ctx.attempt}

    def chunk():
        return 3  # a plain function, in a thread

    parts = [
        StepPlan(name="parse", step_type="parse", handler="parse", params={"size": 512}),
        StepPlan(name="chunk", step_type="chunk", handler="chunk"),
    ]
    await running({"parse": parse, "chunk": chunk}, documents=load)
    submitted = await engine.submit(
        RunPlan(workflow_id="w", steps=parts), [NewRun(doc_id="sha256-1", params={"lang": "de"})]
    )
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert seen == [
        ("parse", {"lang": "de"}, "document sha256-1", {"size": 512}, 512, "de"),
    ]
    first, second = await engine.steps(submitted.runs[0])
    assert (first.status_meta, second.status_meta) == ({"pages": 1}, {"result": 3})


async def test_a_step_that_fails_twice_and_then_works_completes(engine, running):
    async def parse(ctx):
        if ctx.attempt < 3:
            raise OSError(f"attempt {ctx.attempt}")

    figures = Figures()
    await running({"parse": parse}, metrics=figures)
    submitted = await engine.submit(plan(retries=3, backoff=0.01), [NewRun(doc_id="d")])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    attempts = await engine.attempts(submitted.runs[0])
    assert [row["status"] for row in attempts] == ["ERROR", "ERROR", "COMPLETED"]
    assert attempts[0]["message"] == "OSError: attempt 1"
    assert figures.counters["step_error"] == 2
    assert figures.counters["step_completed"] == 1
    assert figures.histograms["step_duration"] == 3
    assert figures.histograms["claim_duration"] > 0


async def test_an_error_keeps_type_text_worker_document_and_attempt(engine, running, caplog):
    async def parse():
        raise OSError("the file is gone")

    worker = await running({"parse": parse})
    submitted = await engine.submit(plan(), [NewRun(doc_id="sha256-1")])
    assert await ended(engine, submitted) is RunStatus.FAILED
    await wait_until(lambda: "failed permanently" in caplog.text)
    raised, failed = (one for one in caplog.records if one.message.startswith("a step "))
    assert isinstance(raised.exc_info[1], OSError)
    assert failed.fields["error"] == "OSError: the file is gone"
    (step,) = await engine.steps(submitted.runs[0])
    assert step.status_meta == {
        "error": "OSError",
        "text": "the file is gone",
        "worker_id": worker.id,
        "doc_id": "sha256-1",
        "attempt": 1,
    }


async def test_a_missing_parameter_fails_the_step_at_once_and_clearly(engine, running):
    async def needs(size):
        return size

    await running({"needs": needs})
    wrong = await engine.submit(plan("needs", retries=9), [NewRun()])
    assert await ended(engine, wrong) is RunStatus.FAILED
    (step,) = await engine.steps(wrong.runs[0])
    assert step.retry == 1
    assert "'size'" in step.status_message


async def test_a_step_may_fail_for_good_while_its_run_goes_on(engine, running):
    async def check(ctx):
        ctx.fail("no signature")
        return {"next_step": "reject", "pages": 3}

    steps = [
        StepPlan(name=name, step_type="x", handler=handler, retries=3)
        for name, handler in {"check": "check", "sign": "nothing", "reject": "nothing"}.items()
    ]
    await running({"check": check, "nothing": lambda: None})
    submitted = await engine.submit(RunPlan(workflow_id="w", steps=steps), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    first, skipped, last = await engine.steps(submitted.runs[0])
    assert (first.status, first.status_message) == (RunStatus.FAILED, "no signature")
    assert (first.status_meta["pages"], first.retry) == (3, 1)
    assert (skipped.status_message, last.status) == ("skipped", RunStatus.COMPLETED)


async def test_a_last_step_that_fails_for_good_fails_its_run(engine, running):
    async def parse(ctx):
        ctx.fail("no signature")

    await running({"parse": parse})
    submitted = await engine.submit(plan("parse", retries=3), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.FAILED
    [step] = await engine.steps(submitted.runs[0])
    assert (step.status, step.status_message) == (RunStatus.FAILED, "no signature")


async def test_a_step_without_a_resource_has_no_fence_of_the_step_before(engine, running):
    fences = []

    async def note(run_step):
        fences.append(run_step.lock_fence)

    keys = ["K", "K", None]
    steps = [
        StepPlan(name=f"s{number}", step_type="x", handler="note", resource_key=key)
        for number, key in enumerate(keys)
    ]
    await running({"note": note})
    submitted = await engine.submit(RunPlan(workflow_id="w", steps=steps), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    first, second, without = fences
    assert first == second is not None
    assert without is None


async def test_a_step_that_takes_too_long_is_an_error(engine, running):
    async def parse():
        await anyio.sleep_forever()

    await running({"parse": parse})
    submitted = await engine.submit(plan(timeout=0.05), [NewRun()])
    assert await ended(engine, submitted) is RunStatus.FAILED
    (step,) = await engine.steps(submitted.runs[0])
    assert step.status_message.startswith("CallTimeoutError: ")
    assert "step 'parse' took more than 0.05 s" in step.status_message


async def test_pools_bound_how_many_steps_of_a_type_run_at_once(engine, running):
    now, most = Counter(), Counter()

    def handler(kind):
        async def handle():
            now[kind] += 1
            most[kind] = max(most[kind], now[kind])
            await anyio.sleep(0.002)
            now[kind] -= 1

        return handle

    kinds = ("parse", "chunk", "store")
    await running({kind: handler(kind) for kind in kinds}, {"parse": 2, "store": 1, "*": 3})
    submitted = await engine.submit(plan(*kinds), [NewRun() for _ in range(30)])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert most["parse"] <= 2
    assert most["store"] <= 1
    assert most["chunk"] <= 3


async def test_a_resource_is_used_by_one_step_at_a_time(engine, running):
    now, most = 0, 0

    async def store():
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.sleep(0.001)
        now -= 1

    for _ in range(2):
        await running({"store": store}, {"*": 8})
    submitted = await engine.submit(
        plan("store", resource_key="rag:x"), [NewRun() for _ in range(20)]
    )
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert most == 1
    assert (await engine.database.execute_query("SELECT * FROM resourcelock")).rows == []


async def test_a_second_start_does_nothing_and_stop_removes_the_check_in(engine, running):
    worker = await running({})
    await worker.start()
    (row,) = (await engine.database.execute_query("SELECT * FROM workercheckin")).rows
    assert row["id"] == worker.id
    await worker.stop()
    await worker.stop()
    assert worker.is_alive is False
    assert (await engine.database.execute_query("SELECT * FROM workercheckin")).rows == []


async def test_stop_waits_for_running_steps(engine, running):
    entered, go_on = anyio.Event(), anyio.Event()

    async def parse():
        entered.set()
        await go_on.wait()

    worker = await running({"parse": parse})
    submitted = await engine.submit(plan(), [NewRun()])
    await entered.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.stop, GUARD)
        await wait_until(lambda: worker._pools.stopping.is_set(), timeout=GUARD)
        go_on.set()
    assert await ended(engine, submitted) is RunStatus.COMPLETED


async def test_what_does_not_end_in_time_goes_back_undone(engine, running):
    entered = anyio.Event()

    async def parse():
        entered.set()
        await anyio.sleep_forever()

    figures = Figures()
    worker = await running({"parse": parse}, {"*": 1}, metrics=figures)
    submitted = await engine.submit(plan(), [NewRun(), NewRun()])
    await entered.wait()
    await worker.stop(0.01)
    for run in submitted.runs:
        (step,) = await engine.steps(run)
        assert (step.status, step.retry, step.lease_token) == (RunStatus.PENDING, 0, None)
    assert figures.counters["step_released"] >= 1


async def test_a_stop_in_the_middle_of_claims_leaves_no_lease_behind(engine, running):
    async def parse():
        await anyio.sleep(0.001)

    submitted = await engine.submit(plan(), [NewRun() for _ in range(60)])
    for pause in (0.0, 0.002, 0.005, 0.01, 0.02):
        worker = await running({"parse": parse}, {"*": 3})
        await anyio.sleep(pause)
        await worker.stop()
        left = await engine.database.execute_query(
            "SELECT id FROM lexigram_durable_runs WHERE status = 'running'"
        )
        assert left.rows == []
    await running({"parse": parse})
    assert await ended(engine, submitted) is RunStatus.COMPLETED


async def test_a_cancelled_run_interrupts_its_handler(engine, running):
    entered, interrupted = anyio.Event(), anyio.Event()

    async def parse():
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            interrupted.set()

    await running({"parse": parse})
    submitted = await engine.submit(plan(), [NewRun()])
    await entered.wait()
    assert await engine.cancel(group_id=submitted.group_id) == 1
    with anyio.fail_after(GUARD):
        await interrupted.wait()
    assert await ended(engine, submitted) is RunStatus.CANCELLED


async def test_a_lost_lease_stops_the_handler_and_is_counted(engine, running):
    entered = Counter()

    async def parse(run_step):
        entered["times"] += 1
        if entered["times"] == 1:
            await anyio.sleep_forever()

    figures = Figures()
    await running({"parse": parse}, metrics=figures)
    submitted = await engine.submit(plan(), [NewRun()])
    await wait_until(lambda: entered["times"] == 1, timeout=GUARD)
    assert await engine.retry(group_id=submitted.group_id, hard=True) == 1
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    await wait_until(lambda: figures.counters["lease_lost"] == 1, timeout=GUARD)


async def test_leases_are_renewed_while_a_handler_blocks_the_loop(engine):
    engine = DurableEngine(engine.database, Terms(lease=0.5))

    async def parse():
        enough, limit = worker._heartbeat.beats + 3, time.monotonic() + GUARD
        while worker._heartbeat.beats < enough:  # nothing else runs in this loop meanwhile
            assert time.monotonic() < limit

    worker = Worker(WorkerConfig(poll_interval=0.1), engine, {"parse": parse})
    await worker.start()
    try:
        submitted = await engine.submit(plan(retries=1), [NewRun()])
        assert await ended(engine, submitted) is RunStatus.COMPLETED
        assert len(await engine.attempts(submitted.runs[0])) == 1
    finally:
        await worker.stop()


async def test_the_lock_of_a_step_is_renewed_while_its_handler_blocks_the_loop(engine):
    grew = []

    async def parse():
        before = (await engine.locks.get("K")).expires_at
        enough, limit = worker._heartbeat.beats + 2, time.monotonic() + GUARD
        while worker._heartbeat.beats < enough:  # nothing else runs in this loop meanwhile
            assert time.monotonic() < limit
        grew.append((await engine.locks.get("K")).expires_at > before)

    config = WorkerConfig(poll_interval=0.1, checkin_interval=0.1)
    worker = Worker(config, engine, {"parse": parse})
    await worker.start()
    try:
        submitted = await engine.submit(plan(resource_key="K"), [NewRun()])
        assert await ended(engine, submitted) is RunStatus.COMPLETED
        assert grew == [True]
    finally:
        await worker.stop()


async def test_steps_of_a_dead_worker_are_done_by_a_live_one(engine, running):
    submitted = await engine.submit(plan(), [NewRun()])
    await engine.claim_next_step("dead", "L1")
    await engine.database.execute("UPDATE lexigram_durable_runs SET lease_until = 1")
    figures = Figures()

    async def parse():
        pass

    await running({"parse": parse}, metrics=figures)
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert figures.counters["worker_reaped"] == figures.counters["step_reset_by_reaper"] == 1


async def test_the_end_of_a_group_reaches_one_listener_once_also_when_it_failed_first(
    engine, running
):
    heard = []

    async def listen(event):
        heard.append(event)
        if len(heard) == 1:
            raise OSError("the mail server is away")

    async def parse():
        pass

    for _ in range(3):
        await running({"parse": parse}, listeners={LifeCycleEvent.GROUP_END: listen})
    submitted = await engine.submit(plan(), [NewRun() for _ in range(10)])
    assert await ended(engine, submitted) is RunStatus.COMPLETED

    async def delivered():
        found = await engine.database.execute_query(
            "SELECT * FROM lexigram_durable_events"
            " WHERE kind = 'group_end' AND delivered_at IS NOT NULL"
        )
        return len(found.rows) == 1

    await wait_until(delivered, timeout=GUARD)
    assert [event.tries for event in heard] == [1, 2]
    assert {event.group_id for event in heard} == {submitted.group_id}


async def test_workers_with_settings_that_cannot_work_are_refused(engine):
    with pytest.raises(InvalidRunError, match="consumers 0"):
        WorkerConfig(consumers={"parse": 0})
    with pytest.raises(PlanInvalidError):
        WorkerConfig(consumers={})
    with pytest.raises(PlanInvalidError, match="cannot keep leases"):
        Worker(WorkerConfig(checkin_interval=4.0), engine, {})


async def test_services_of_the_container_live_in_a_scope_of_the_step(engine, running):
    from lexigram.di import Container

    class Session:
        made = 0

        def __init__(self):
            Session.made += 1

    seen = []

    async def parse(session: Session, step_params):
        seen.append(session)

    container = Container()
    container.scoped(Session)
    container.freeze()
    await running({"parse": parse}, services=container)
    submitted = await engine.submit(plan(), [NewRun(), NewRun()])
    assert await ended(engine, submitted) is RunStatus.COMPLETED
    assert len(set(map(id, seen))) == Session.made == 2


async def test_a_handler_that_goes_on_after_a_cancel_is_reported_all_the_same(engine, running):
    begun = anyio.Event()

    async def parse():
        begun.set()
        try:
            await anyio.sleep(GUARD)
        except anyio.get_cancelled_exc_class():
            return {"late": True}

    async def chunk():
        raise AssertionError("it was cancelled")

    worker = await running({"parse": parse, "chunk": chunk})
    submitted = await engine.submit(plan("parse", "chunk"), [NewRun()])
    await begun.wait()
    await engine.cancel(group_id=submitted.group_id)
    assert await ended(engine, submitted) is RunStatus.CANCELLED
    assert (await engine.steps(submitted.runs[0]))[0].status_meta == {"late": True}
    await wait_until(lambda: worker.busy == 0)


async def test_a_worker_that_stops_gives_back_the_step_after_the_one_it_reports(engine, running):
    """Also when it is told in the moment between two steps of one lease."""
    reported = engine.store.finish
    slow, go = anyio.Event(), anyio.Event()

    async def finish_steps(ends):
        answer = await reported(ends)
        if not slow.is_set():
            slow.set()
            await go.wait()
        return answer

    engine.store.finish = finish_steps
    seen = []

    async def parse():
        seen.append("parse")

    async def chunk():
        seen.append("chunk")

    worker = await running({"parse": parse, "chunk": chunk})
    submitted = await engine.submit(plan("parse", "chunk"), [NewRun()])
    await slow.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.stop, 0.0)
        await wait_until(lambda: next(iter(worker._pools.runs.values())).why is not None)
        go.set()
    assert seen == ["parse"]
    row = await engine.store.run(submitted.runs[0])
    assert (row["status"], row["step_no"], row["lease"]) == ("ready", 2, None)

"""Events of groups, runs and steps: handlers of plans, listeners and what is told in the process."""

from collections import Counter

import anyio
import pytest

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.sql import Database
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    Audience,
    DurableEngine,
    LifeCycleEvent,
    LifecycleHandler,
    NewRun,
    RunPlan,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)
from lexigram.workflow.durable.worker import events as events_module

pytestmark = pytest.mark.anyio

GUARD = 60.0  # against a hang only


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def database(request) -> Database:
    return request.getfixturevalue(request.param)


@pytest.fixture
def engine(database):
    return DurableEngine(database, Terms(lease=5.0))


@pytest.fixture
async def running():
    """Start workers that are stopped at the end."""
    workers = []

    async def start(engine, handlers, **options):
        config = WorkerConfig(consumers={"*": 4}, poll_interval=0.05)
        worker = Worker(config, engine, handlers, **options)
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    for worker in workers:
        await worker.stop(0.0)


def plan(*names, lifecycle=None, retries=1):
    steps = [
        StepPlan(name=name, step_type=name, handler=name, retries=retries)
        for name in names or ("a",)
    ]
    handlers = {
        event: [LifecycleHandler(name=f"on {event}", handler="note", **options)]
        for event, options in (lifecycle or {}).items()
    }
    return RunPlan(workflow_id="w", steps=steps, lifecycle=handlers)


ALL = {event: {} for event in LifeCycleEvent}


async def works():
    return None


async def settled(engine, submitted, count):
    """When so many handlers of the group are final: their rows."""

    async def done():
        rows = await engine.lifecycle_history(submitted.group_id)
        final = [row for row in rows if row.status in (RunStatus.COMPLETED, RunStatus.FAILED)]
        return len(final) >= count and len(final) == len(rows)

    await wait_until(done, timeout=GUARD)
    return await engine.lifecycle_history(submitted.group_id)


async def open_events(engine):
    found = await engine.database.execute_query(
        "SELECT * FROM lexigram_durable_events WHERE delivered_at IS NULL AND audience = 'handler'"
    )
    return found.rows


# --- which and when -------------------------------------------------------------------------------


async def test_every_event_fires_when_it_should(engine, running):
    heard, failures = [], iter([OSError("once")])

    async def note(event, workflow_run, run_step, run_group, step_params, ctx):
        run = workflow_run and workflow_run.doc_id
        heard.append((event.kind.value, run, run_step and run_step.workflow_step_name))
        assert run_group.id == event.group_id
        assert ctx.attempt == 1

    async def a(workflow_run):
        if workflow_run.doc_id == "good":
            for error in failures:
                raise error

    async def b(workflow_run):
        if workflow_run.doc_id == "bad":
            raise ValueError("never")

    await running(engine, {"a": a, "b": b, "note": note})
    submitted = await engine.submit(
        plan("a", "b", lifecycle=ALL, retries=2), [NewRun(doc_id="good"), NewRun(doc_id="bad")]
    )
    # good: a, a, b; bad: a, b, b
    await settled(engine, submitted, 2 + 4 + 6 + 4)
    assert Counter(heard) == Counter(
        {
            ("group_start", None, None): 1,
            ("group_end", None, None): 1,
            ("item_start", "good", "a"): 1,
            ("item_start", "bad", "a"): 1,
            ("step_start", "good", "a"): 2,
            ("step_start", "good", "b"): 1,
            ("step_start", "bad", "a"): 1,
            ("step_start", "bad", "b"): 2,
            ("step_end", "good", "a"): 1,
            ("step_end", "good", "b"): 1,
            ("step_end", "bad", "a"): 1,
            ("step_failed", "bad", "b"): 1,
            ("item_end", "good", "b"): 1,
            ("item_failed", "bad", "b"): 1,
        }
    )

    async def all_delivered():
        return await open_events(engine) == []

    await wait_until(all_delivered, timeout=GUARD)


async def test_a_step_that_failed_while_its_run_went_on_has_its_event(engine, running):
    heard = []

    async def note(event, run_step):
        heard.append((event.kind.value, run_step.workflow_step_name, run_step.status.value))

    async def a(ctx):
        ctx.fail("no")

    kinds = ["step_end", "step_failed", "item_end", "item_failed"]
    given = plan("a", "b", lifecycle={LifeCycleEvent(kind): {} for kind in kinds})
    await running(engine, {"a": a, "b": works, "note": note})
    submitted = await engine.submit(given, [NewRun()])
    await settled(engine, submitted, 3)
    assert sorted(heard) == [
        ("item_end", "b", "COMPLETED"),
        ("step_end", "b", "COMPLETED"),
        ("step_failed", "a", "FAILED"),
    ]


async def test_a_plan_without_handlers_writes_only_starts_and_ends_of_groups(engine, running):
    await running(engine, {"a": works})
    submitted = await engine.submit(plan("a"), [NewRun(), NewRun()])

    async def ended():
        return (await engine.stats(submitted.group_id)).group_status is RunStatus.COMPLETED

    await wait_until(ended, timeout=GUARD)
    rows = (await engine.database.execute_query("SELECT * FROM lexigram_durable_events")).rows
    assert sorted((row["kind"], row["audience"]) for row in rows) == [
        ("group_end", "listener"),
        ("group_start", "listener"),
    ]


async def test_a_run_that_kills_its_workers_is_an_item_that_failed(database):
    engine = DurableEngine(database, Terms(max_lost=1))
    kinds = {LifeCycleEvent.ITEM_FAILED: {}, LifeCycleEvent.STEP_FAILED: {}}
    submitted = await engine.submit(plan(lifecycle=kinds), [NewRun()])
    await engine.claim_next_step("dead", "L")
    await database.execute("UPDATE lexigram_durable_runs SET lease_until = 1")
    await engine.store.reap(["live"])
    rows = await open_events(engine)
    assert sorted(row["kind"] for row in rows) == ["item_failed", "step_failed"]
    assert {row["run_id"] for row in rows} == set(submitted.runs)


async def test_the_group_ends_again_after_a_retry(engine, running):
    ends, broken = [], [True]

    async def note(event):
        ends.append((event.ending, event.status))

    async def a():
        if broken:
            raise ValueError(broken.pop())

    await running(engine, {"a": a, "note": note})
    submitted = await engine.submit(plan(lifecycle={LifeCycleEvent.GROUP_END: {}}), [NewRun()])
    await settled(engine, submitted, 1)
    await engine.retry(group_id=submitted.group_id)
    await settled(engine, submitted, 2)
    assert ends == [(1, RunStatus.FAILED), (2, RunStatus.COMPLETED)]


# --- handlers, their attempts and their history ---------------------------------------------------


async def test_a_handler_is_tried_again_and_another_one_does_not_wait_for_it(engine, running):
    calls = Counter()

    async def flaky(ctx):
        calls["flaky"] += 1
        if ctx.attempt < 2:
            raise OSError("not yet")
        return {"attempt": ctx.attempt}

    async def never(channel):
        calls[channel] += 1
        raise OSError("no")

    async def fine(step_params):
        calls["fine"] += 1
        return step_params

    def handler(name, **options):
        return LifecycleHandler(name=name, handler=name, **options)

    handlers = [
        handler("flaky", retries=3),
        handler("never", params={"channel": "#alerts"}),
        handler("fine", params={"x": 1}),
    ]
    steps = [StepPlan(name="a", step_type="a", handler="a")]
    given = RunPlan(workflow_id="w", steps=steps, lifecycle={LifeCycleEvent.ITEM_END: handlers})
    await running(engine, {"a": works, "flaky": flaky, "never": never, "fine": fine})
    submitted = await engine.submit(given, [NewRun()])
    rows = await settled(engine, submitted, 3)
    assert [(row.handler_name, row.status.value, row.attempts) for row in rows] == [
        ("flaky", "COMPLETED", 2),
        ("never", "FAILED", 1),
        ("fine", "COMPLETED", 1),
    ]
    assert rows[0].meta == {"attempt": 2}
    assert rows[1].message == "OSError: no"
    assert rows[2].meta == {"x": 1}
    assert calls == {"flaky": 2, "#alerts": 1, "fine": 1}
    seen = (await engine.database.execute_query("SELECT * FROM lifecyclehistory ORDER BY id")).rows
    assert [row["handler_name"] for row in seen] == ["flaky", "never", "fine"]
    assert {row["event"] for row in seen} == {"item_end"}


async def test_a_handler_that_this_worker_has_not_is_left_to_others(engine, running):
    heard = []

    async def note(event):
        heard.append(event.kind)

    await running(engine, {"a": works})
    submitted = await engine.submit(plan(lifecycle={LifeCycleEvent.ITEM_END: {}}), [NewRun()])

    async def put_off():
        return [row for row in await open_events(engine) if row["tries"] and not row["lease"]]

    await wait_until(put_off, timeout=GUARD)
    await running(engine, {"note": note})
    await wait_until(lambda: heard == [LifeCycleEvent.ITEM_END], timeout=GUARD)
    [row] = await settled(engine, submitted, 1)
    assert (row.status, row.attempts) == (RunStatus.COMPLETED, 1)


async def test_an_event_whose_handler_a_worker_has_not_is_free_at_once_for_the_others(
    engine, running, monkeypatch
):
    monkeypatch.setattr(events_module, "_ELSEWHERE_SECONDS", 3600.0)
    await running(engine, {"a": works})
    await engine.submit(plan(lifecycle={LifeCycleEvent.ITEM_END: {}}), [NewRun()])

    async def taken_once():
        return [row for row in await open_events(engine) if row["tries"] and not row["lease"]]

    await wait_until(taken_once, timeout=GUARD)
    await engine.submit(plan(), [NewRun()])  # news: the worker looks again
    [event] = await engine.store.take_events("other", seconds=600, audience=Audience.HANDLER)
    assert event.tries == 2


async def finished_group(engine, given):
    submitted = await engine.submit(given, [NewRun()])
    step = await engine.claim_next_step("w", "L")
    await engine.complete_step(step.id, "L")
    return submitted


async def test_after_a_crash_the_handler_under_way_is_called_again_and_no_other(engine, running):
    def handler(name):
        return LifecycleHandler(name=name, handler=name)

    steps = [StepPlan(name="a", step_type="a", handler="a")]
    ends = {LifeCycleEvent.GROUP_END: [handler("first"), handler("second")]}
    submitted = await finished_group(engine, RunPlan(workflow_id="w", steps=steps, lifecycle=ends))
    # A worker that did the first one and died within the second.
    [event] = await engine.store.take_events("dead", seconds=600, audience=Audience.HANDLER)
    store = engine.store
    assert await store.begin_handler(event, 1, "first", "dead")
    assert await store.end_handler(event, 1, RunStatus.COMPLETED, "success", None)
    assert await store.begin_handler(event, 2, "second", "dead")
    await engine.database.execute("UPDATE lexigram_durable_events SET lease_until = 1")
    calls = Counter()

    async def first():
        calls["first"] += 1

    async def second(ctx):
        calls["second", ctx.attempt] += 1

    await running(engine, {"first": first, "second": second})
    rows = await settled(engine, submitted, 2)
    assert calls == {("second", 1): 1}
    assert [(row.status.value, row.attempts) for row in rows] == [("COMPLETED", 1)] * 2
    # What the dead one says when it wakes up changes nothing.
    assert not await store.end_handler(event, 2, RunStatus.FAILED, "zombie", None)
    assert not await engine.store.settle_event(event)


async def test_of_many_workers_one_handles_the_end_of_a_group(engine, running):
    calls = []

    async def note(event):
        calls.append(event.group_id)
        await anyio.sleep(0.01)

    for _ in range(5):
        await running(engine, {"a": works, "note": note})
    given = plan(lifecycle={LifeCycleEvent.GROUP_END: {}})
    groups = [await engine.submit(given, [NewRun() for _ in range(4)]) for _ in range(6)]
    for submitted in groups:
        await settled(engine, submitted, 1)
    assert sorted(calls) == sorted(submitted.group_id for submitted in groups)


@pytest.mark.parametrize("audience", list(Audience))
async def test_the_lease_of_an_event_is_renewed_while_it_is_handled(engine, running, audience):
    calls, go_on = [], anyio.Event()

    async def slow(event):
        calls.append(event)
        await go_on.wait()

    listeners = {LifeCycleEvent.GROUP_END: slow} if audience is Audience.LISTENER else {}
    wanted = {} if listeners else {LifeCycleEvent.GROUP_END: {}}
    worker = await running(engine, {"a": works, "note": slow}, listeners=listeners)
    await engine.submit(plan(lifecycle=wanted), [NewRun()])
    await wait_until(lambda: calls, timeout=GUARD)

    async def row():
        found = await engine.database.execute_query(
            "SELECT * FROM lexigram_durable_events WHERE id = ?", (calls[0].id,)
        )
        return found.rows[0]

    until = (await row())["lease_until"]

    async def renewed():
        worker._heartbeat.wake()
        return (await row())["lease_until"] > until

    await wait_until(renewed, timeout=GUARD)
    go_on.set()

    async def delivered():
        return (await row())["delivered_at"] is not None

    await wait_until(delivered, timeout=GUARD)
    assert (len(calls), (await row())["tries"]) == (1, 1)


async def test_a_handler_whose_event_was_taken_away_is_stopped(engine, running):
    begun, stopped = anyio.Event(), anyio.Event()

    async def note():
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    worker = await running(engine, {"note": note, "a": works})
    await engine.submit(plan(lifecycle={LifeCycleEvent.ITEM_START: {}}), [NewRun()])
    with anyio.fail_after(GUARD):
        await begun.wait()
        await engine.database.execute("UPDATE lexigram_durable_events SET lease = 'another'")
        worker._heartbeat.wake()
        await stopped.wait()


async def test_a_stop_gives_events_back_at_once(engine, running):
    begun, calls = anyio.Event(), []

    async def hangs():
        begun.set()
        await anyio.sleep_forever()

    async def note():
        calls.append(1)

    worker = await running(engine, {"note": hangs, "a": works})
    submitted = await engine.submit(plan(lifecycle={LifeCycleEvent.ITEM_END: {}}), [NewRun()])
    with anyio.fail_after(GUARD):
        await begun.wait()
        await worker.stop(0.0)
    await running(engine, {"note": note})
    [row] = await settled(engine, submitted, 1)
    assert (row.status, row.attempts, calls) == (RunStatus.COMPLETED, 1, [1])


async def test_the_end_of_a_group_that_a_dead_worker_took_is_handed_out(engine):
    submitted = await finished_group(engine, plan())
    [event] = await engine.store.take_events("dead", seconds=600, kinds=[LifeCycleEvent.GROUP_END])
    assert await engine.try_complete_run_group(submitted.group_id) is None
    await engine.database.execute("UPDATE lexigram_durable_events SET lease_until = 1")
    won = []

    async def complete():
        won.append(await engine.try_complete_run_group(submitted.group_id))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(complete)
    assert sorted(won, key=str) == sorted([None] * 7 + [RunStatus.COMPLETED], key=str)
    assert not await engine.store.settle_event(event)


# --- effects that happen once ---------------------------------------------------------------------


@pytest.fixture
async def effects(database):
    """The keys that handlers wrote, by one row each."""
    await database.execute("DROP TABLE IF EXISTS effects")
    await database.execute("CREATE TABLE effects (name TEXT)")

    async def written():
        found = await database.execute_query("SELECT name FROM effects ORDER BY name")
        return [row["name"] for row in found.rows]

    yield written
    await database.execute("DROP TABLE effects")


async def write(database, name):
    await database.execute("INSERT INTO effects (name) VALUES (?)", (name,))


ITEM_END = {LifeCycleEvent.ITEM_END: {"retries": 3}}


@pytest.mark.promise
async def test_a_handler_that_fails_after_its_transaction_is_done(
    engine, database, effects, running
):
    async def note(ctx):
        async with ctx.transaction():
            await write(database, ctx.idempotency_key)
        raise OSError("after it")

    await running(engine, {"a": works, "note": note})
    submitted = await engine.submit(plan(lifecycle=ITEM_END), [NewRun()])
    [row] = await settled(engine, submitted, 1)
    assert (row.status, row.attempts) == (RunStatus.COMPLETED, 1)

    async def delivered():
        return await open_events(engine) == []

    await database.execute("UPDATE lexigram_durable_events SET lease_until = 1")
    await wait_until(delivered, timeout=GUARD)
    assert len(await effects()) == 1


async def test_what_a_handler_wrote_before_it_failed_in_its_transaction_is_undone(
    engine, database, effects, running
):
    async def note(ctx):
        async with ctx.transaction() as transaction:
            await transaction.execute("INSERT INTO effects (name) VALUES ('yielded')")
            await write(database, f"attempt {ctx.attempt}")
            if ctx.attempt == 1:
                raise OSError("within it")

    await running(engine, {"a": works, "note": note})
    submitted = await engine.submit(plan(lifecycle=ITEM_END), [NewRun()])
    [row] = await settled(engine, submitted, 1)
    assert (row.status, row.attempts) == (RunStatus.COMPLETED, 2)
    assert await effects() == ["attempt 2", "yielded"]


async def test_a_handler_that_lost_its_event_writes_nothing_and_one_that_was_cut_off_nothing_again(
    engine, database, effects, running
):
    calls, hang = [], anyio.Event()

    async def note(ctx):
        calls.append(ctx.idempotency_key)
        if len(calls) == 1:
            await database.execute("UPDATE lexigram_durable_events SET lease = 'another'")
        async with ctx.transaction():
            await write(database, ctx.idempotency_key)
        hang.set()
        await anyio.sleep_forever()

    worker = await running(engine, {"a": works, "note": note})
    submitted = await engine.submit(plan(lifecycle=ITEM_END), [NewRun()])
    await wait_until(lambda: not worker._deliveries._held and calls, timeout=GUARD)
    assert await effects() == []
    await database.execute("UPDATE lexigram_durable_events SET lease_until = 1")
    with anyio.fail_after(GUARD):
        await hang.wait()
    await worker.stop(0.0)
    await running(engine, {"note": note})

    async def delivered():
        return await open_events(engine) == []

    await wait_until(delivered, timeout=GUARD)
    [row] = await engine.lifecycle_history(submitted.group_id)
    assert row.status is RunStatus.COMPLETED
    assert await effects() == [
        f"durable-item_end-{submitted.group_id}-run-{submitted.runs[0]}-1-handler-1"
    ]
    assert calls == await effects() * 2


async def test_a_handler_has_one_transaction_and_none_inside_its_own(engine, database, running):
    refused = []

    async def twice(ctx):
        async with ctx.transaction():
            pass
        async with ctx.transaction():
            refused.append("not refused")

    async def inside(ctx):
        async with database.transaction(), ctx.transaction():
            refused.append("not refused")

    def handler(name):
        return LifecycleHandler(name=name, handler=name)

    steps = [StepPlan(name="a", step_type="a", handler="a")]
    ends = {LifeCycleEvent.GROUP_END: [handler("twice"), handler("inside")]}
    given = RunPlan(workflow_id="w", steps=steps, lifecycle=ends)
    await running(engine, {"a": works, "twice": twice, "inside": inside})
    rows = await settled(engine, await engine.submit(given, [NewRun()]), 2)
    assert [row.status for row in rows] == [RunStatus.COMPLETED, RunStatus.FAILED]
    assert "TransactionScopeError" in rows[1].message
    assert refused == []


async def test_a_key_is_the_same_in_every_attempt_and_different_for_every_handler_event_and_step(
    engine, running
):
    keys = []

    async def note(ctx):
        keys.append(ctx.idempotency_key)
        if ctx.attempt == 1:
            raise OSError("again")

    async def a(ctx):
        await note(ctx)

    handlers = [LifecycleHandler(name=name, handler="note", retries=2) for name in "xy"]
    steps = [StepPlan(name=name, step_type="a", handler="a", retries=2) for name in "pq"]
    kinds = (LifeCycleEvent.GROUP_END, LifeCycleEvent.ITEM_END, LifeCycleEvent.STEP_END)
    given = RunPlan(workflow_id="w", steps=steps, lifecycle=dict.fromkeys(kinds, handlers))
    await running(engine, {"a": a, "note": note})
    submitted = await engine.submit(given, [NewRun(), NewRun()])
    await settled(engine, submitted, 2 * (1 + 2 + 4))
    assert set(Counter(keys).values()) == {2}
    assert len(set(keys)) == 2 * 2 + 2 * (1 + 2 + 4)


# --- in the process -------------------------------------------------------------------------------


async def test_what_happens_is_published_and_made_only_when_somebody_wants_it(engine, running):
    heard = []

    async def publish(kind, make):
        if kind is LifeCycleEvent.STEP_START:
            raise OSError("nobody suffers from this")
        if kind is not LifeCycleEvent.STEP_END:
            notice = make()
            heard.append((notice.kind.value, notice.status.value, notice.workflow_run.doc_id))

    async def b():
        raise ValueError("never")

    await running(engine, {"a": works, "b": b}, publish=publish)
    await engine.submit(plan("a"), [NewRun(doc_id="good")])
    await engine.submit(plan("b"), [NewRun(doc_id="bad")])
    await wait_until(lambda: len(heard) >= 5, timeout=GUARD)
    assert Counter(heard) == Counter(
        [
            ("item_start", "RUNNING", "good"),
            ("item_end", "COMPLETED", "good"),
            ("item_start", "RUNNING", "bad"),
            ("step_failed", "FAILED", "bad"),
            ("item_failed", "FAILED", "bad"),
        ]
    )


# --- duties ---------------------------------------------------------------------------------------


async def test_of_many_workers_one_has_a_duty_until_it_is_due_again(engine):
    got = []

    async def take():
        got.append(await engine.store.take_duty("sweep", 60.0))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(take)
    assert got.count(True) == 1
    assert not await engine.store.take_duty("sweep", 60.0)
    await engine.database.execute("UPDATE lexigram_durable_duties SET due_at = 1")
    assert await engine.store.take_duty("sweep", 60.0)

"""What a run may hold, at the engine and for workers; on both databases."""

import datetime as dt
import math

import pytest

from lexigram.contracts.workflow import InvalidRunError, StepRefusedError
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.limits import (
    MAX_ID,
    MAX_PRIORITY,
    MAX_RETRIES,
    MAX_SECONDS,
    MAX_TEXT_LENGTH,
    MAX_VALUE_DEPTH,
    MIN_PRIORITY,
)
from lexigram.testing import wait_until
from lexigram.workflow.durable import (
    DurableEngine,
    NewRun,
    PlanInvalidError,
    RunPlan,
    StepPlan,
    Terms,
    Worker,
    WorkerConfig,
)
from lexigram.workflow.durable.store.overview import Overview

pytestmark = pytest.mark.anyio

GUARD = 60.0  # against a hang only
FINAL = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)
DEEP = [None]
for _ in range(MAX_VALUE_DEPTH):
    DEEP = [DEEP]
CIRCLE = []
CIRCLE.append(CIRCLE)
# What JSON cannot hold, and what the error calls it behind the name of the value.
UNSTORABLE = {
    "nan": (math.nan, "nan is no number"),
    "inf": ({"a": [1, math.inf]}, "['a'][1] inf is no number"),
    "object": ({"a": {"b": object()}}, "['a']['b'] <object object"),
    "set": ({"ids": {1}}, "['ids'] {1} is a set"),
    "bytes": ([b"ab"], "[0] b'ab' is a bytes"),
    "key": ({"a": {1: 2}}, "['a'] 1 is a key of the type int"),
    "number": ({"n": 2**70}, "['n'] 1180591620717411303424 is beyond 64 bits"),
    "digits": ({"n": 10**5000}, "['n'] (16610 bits) is beyond 64 bits"),
    "surrogate": (["\ud800"], "[0] '\\ud800' contains the character U+D800"),
    "surrogate key": ({"\ud800": 1}, "is a key with the character U+D800"),
    "depth": (DEEP, "is nested more than 254 levels deep"),
    "circle": (CIRCLE, "is nested more than 254 levels deep"),
}
TEXTS = {"NUL": "a\0b", "surrogate": "a\ud800", "long": "x" * 256, "empty": "", "number": 7}


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def engine(request):
    return DurableEngine(request.getfixturevalue(request.param), Terms(lease=5.0))


@pytest.fixture
async def running(engine):
    """Start workers that are stopped at the end."""
    workers = []

    async def start(handlers, **options):
        config = WorkerConfig(consumers={"*": 4}, poll_interval=0.2)
        worker = Worker(config, engine, handlers, **options)
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    for worker in workers:
        await worker.stop(0.0)


def plan(**options):
    step = StepPlan(name="parse", step_type="parse", handler="parse", **options)
    return RunPlan(workflow_id="w", steps=[step])


async def ended(engine, submitted):
    async def done():
        return (await engine.stats(submitted.group_id)).group_status in FINAL

    await wait_until(done, timeout=GUARD)
    return (await engine.steps(submitted.runs[0]))[0]


def names(error, field):
    assert isinstance(error, InvalidRunError)
    assert error.details["field"].startswith(field), error.details
    assert error.hint
    return True


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", UNSTORABLE)
async def test_a_result_that_json_cannot_hold_fails_the_step_at_once_with_its_path(
    engine, running, kind
):
    value, told = UNSTORABLE[kind]
    calls = []

    async def parse():
        calls.append(1)
        return {"rows": value}

    await running({"parse": parse})
    submitted = await engine.submit(plan(retries=5), [NewRun()])
    step = await ended(engine, submitted)
    assert step.status is RunStatus.FAILED
    assert "result['rows']" in step.status_message
    assert told in step.status_message
    assert step.status_meta["error"] == "InvalidRunError"
    assert len(calls) == 1


@pytest.mark.parametrize("kind", UNSTORABLE)
async def test_params_metas_and_answers_that_json_cannot_hold_are_refused_with_their_path(
    engine, kind
):
    value, told = UNSTORABLE[kind]
    with pytest.raises(InvalidRunError) as refused:
        await engine.submit(plan(), [NewRun(), NewRun(params={"rows": value})])
    assert names(refused.value, "runs[1].params['rows']")
    assert told in refused.value.message
    assert (await Overview(engine.database).groups()).total == 0
    with pytest.raises(PlanInvalidError) as invalid:
        plan(params={"rows": value})
    assert "params['rows']" in invalid.value.message
    submitted = await engine.submit(plan(), [NewRun()])
    step = await engine.claim_next_step("A", "L")
    for end in (engine.complete_step, engine.error_step):
        with pytest.raises(InvalidRunError) as refused:
            await end(step.id, "L", "message", {"rows": value})
        assert names(refused.value, "meta['rows']")
    with pytest.raises(InvalidRunError) as refused:
        await engine.answer(submitted.runs[0], {"rows": value})
    assert names(refused.value, "answer['rows']")


@pytest.mark.parametrize("kind", UNSTORABLE)
async def test_a_step_whose_child_has_input_that_json_cannot_hold_fails_at_once(
    engine, running, kind
):
    calls = []

    async def parse(ctx):
        calls.append(1)
        ctx.spawn(["child"], [NewRun(params={"rows": UNSTORABLE[kind][0]})])

    async def child(): ...

    steps = [
        StepPlan(name=name, step_type=name, handler=handler, retries=5)
        for name, handler in {"parse": "parse", "child": "child"}.items()
    ]
    await running({"parse": parse, "child": child})
    submitted = await engine.submit(RunPlan(workflow_id="w", steps=steps), [NewRun()])
    step = await ended(engine, submitted)
    assert (step.status, len(calls)) == (RunStatus.FAILED, 1)
    assert "params['rows']" in step.status_message


async def test_what_json_holds_comes_back_as_it_was(engine, running):
    value = {
        "text": "é✓ \x00 \U0001f600",
        "list": [1, 2.5, None, True, -(2**63), 2**64 - 1],
        "": {"null": "null"},
    }

    async def parse(given):
        return {"given": given, "at": dt.date(2030, 1, 2)}

    await running({"parse": parse})
    submitted = await engine.submit(plan(), [NewRun(params={"given": value})])
    step = await ended(engine, submitted)
    assert step.status_meta == {"given": value, "at": "2030-01-02"}
    assert (await engine.run(submitted.runs[0])).run_params == {"given": value}


async def test_errors_with_characters_that_no_database_stores_are_stored_without_them(
    engine, running
):
    async def parse():
        raise StepRefusedError("bad \0 page \ud800")

    await running({"parse": parse})
    step = await ended(engine, await engine.submit(plan(), [NewRun()]))
    assert step.status_message.endswith("bad \ufffd page \ufffd")
    assert step.status_meta["text"].endswith("bad \ufffd page \ufffd")


async def test_a_question_with_such_characters_is_asked_without_them(engine, running):
    async def parse(ctx):
        return ctx.park("who \0 pays\ud800?")

    await running({"parse": parse})
    submitted = await engine.submit(plan(), [NewRun()])

    async def parked():
        return (await engine.run(submitted.runs[0])).parked

    await wait_until(parked, timeout=GUARD)
    assert await parked() == "who \ufffd pays\ufffd?"


# --- numbers and texts --------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [-1.0, math.inf, -math.inf, math.nan, 1e300, "1", True])
async def test_a_delay_that_is_no_time_is_refused_by_name(delay):
    with pytest.raises(InvalidRunError) as refused:
        NewRun(delay=delay)
    assert names(refused.value, "delay")


@pytest.mark.parametrize("priority", [MIN_PRIORITY - 1, MAX_PRIORITY + 1, 2**63, 2**200, 1.0, True])
async def test_a_priority_beyond_32_bits_is_refused_by_name(priority):
    with pytest.raises(InvalidRunError) as refused:
        NewRun(priority=priority)
    assert names(refused.value, "priority")


@pytest.mark.parametrize("field", ["doc_id", "tenant", "idempotency_key"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_that_no_database_stores_is_refused_by_name(engine, field, text):
    with pytest.raises(InvalidRunError) as refused:
        NewRun(**{field: text})
    assert names(refused.value, field)
    for group_field in ("name", "idempotency_key"):
        with pytest.raises(InvalidRunError) as refused:
            await engine.submit(plan(), [NewRun()], **{group_field: text})
        assert names(refused.value, group_field)


async def test_the_largest_values_are_taken_and_every_list_can_be_read(engine):
    largest = NewRun(
        batch_id=MAX_ID,
        priority=MAX_PRIORITY,
        tenant="t" * 255,
        delay=MAX_SECONDS,
        doc_id="d" * 255,
    )
    submitted = await engine.submit(
        plan(retries=MAX_RETRIES, timeout=MAX_SECONDS, backoff=MAX_SECONDS),
        [largest, NewRun(priority=MIN_PRIORITY)],
        name="n" * 255,
        idempotency_key="k" * 255,
    )
    overview = Overview(engine.database)
    assert (await overview.runs(offset=0)).total == 2
    assert (await overview.runs(limit=10_000, offset=MAX_ID)).items == []
    found = await overview.runs(batch_id=MAX_ID)
    assert [item["priority"] for item in found.items] == [MAX_PRIORITY]
    assert (await overview.groups()).total == 1
    assert await overview.steps(group_id=submitted.group_id)


@pytest.mark.parametrize("number", [-1, MAX_ID + 1, 2**200, 1.5, "1", True])
async def test_an_id_beyond_64_bits_is_refused_by_name(engine, number):
    overview = Overview(engine.database)
    calls = {
        "run_id": [
            lambda: engine.run(number),
            lambda: engine.cancel(run_id=number),
            lambda: engine.answer(number, 1),
            lambda: engine.steps(number),
            lambda: engine.children(number),
            lambda: engine.attempts(number),
            lambda: overview.run(number),
            lambda: overview.steps_of(number),
            lambda: overview.lifecycle(run_id=number),
        ],
        "group_id": [
            lambda: engine.stats(number),
            lambda: engine.retry(group_id=number),
            lambda: engine.pause(group_id=number),
            lambda: engine.resume(group_id=number),
            lambda: engine.lifecycle_history(number),
            lambda: overview.group(number),
            lambda: overview.runs(group_id=number),
            lambda: overview.steps(group_id=number),
            lambda: overview.step_stats(number),
            lambda: overview.durations(number),
            lambda: overview.remove_group(number),
        ],
        "batch_id": [
            lambda: overview.groups(batch_id=number),
            lambda: overview.runs(batch_id=number),
            lambda: overview.counts(number),
        ],
        "offset": [
            lambda: overview.runs(offset=number),
            lambda: overview.groups(offset=number),
            lambda: overview.steps(offset=number),
        ],
    }
    for field, some in calls.items():
        for call in some:
            with pytest.raises(InvalidRunError) as refused:
                await call()
            assert names(refused.value, field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("retries", n) for n in (0, MAX_RETRIES + 1, 2**70)],
        *[("timeout", n) for n in (math.inf, math.nan, 1e300)],
        *[("backoff", n) for n in (math.inf, math.nan, 1e300, -1)],
        *[("backoff_cap", n) for n in (math.inf, 1e300)],
        *[("resource_key", text) for text in ("a\0b", "\ud800", "x" * 256)],
        *[("pool", text) for text in ("a\0b", "\ud800", "x" * 256)],
    ],
)
async def test_a_step_out_of_bounds_is_refused_by_name(field, value):
    with pytest.raises((InvalidRunError, PlanInvalidError), match=field):
        plan(**{field: value})


async def test_a_child_of_an_urgent_run_is_as_urgent_as_any_run_can_be(engine, running):
    async def parse(ctx):
        ctx.spawn(["child"], [NewRun(priority=MAX_PRIORITY)])

    async def child(): ...

    steps = [StepPlan(name=name, step_type=name, handler=name) for name in ("parse", "child")]
    await running({"parse": parse, "child": child})
    whole = RunPlan(workflow_id="w", steps=steps)
    submitted = await engine.submit(whole, [NewRun(priority=MAX_PRIORITY)])
    assert (await ended(engine, submitted)).status is RunStatus.COMPLETED


# --- what workers say of themselves ---------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_name_or_lease_that_no_database_stores_is_refused_by_name(engine, text):
    calls = {
        "worker_id": [lambda: engine.claim_next_step(text, "L")],
        "lease_token": [
            lambda: engine.claim_next_step("A", text),
            lambda: engine.begin_step(1, text),
            lambda: engine.complete_step(10_001, text),
            lambda: engine.error_step(10_001, text, "message"),
            lambda: engine.release_step(10_001, text),
        ],
        "allowed_types": [lambda: engine.claim_next_step("A", "L", [text])],
    }
    for field, some in calls.items():
        for call in some:
            with pytest.raises(InvalidRunError) as refused:
                await call()
            assert names(refused.value, field)
    with pytest.raises(InvalidRunError) as refused:
        engine.hold_lock(text)
    assert names(refused.value, "key")
    with pytest.raises(InvalidRunError) as refused:
        Worker(WorkerConfig(), engine, {}, name=text)
    assert names(refused.value, "name")
    with pytest.raises((InvalidRunError, PlanInvalidError), match="consumers"):
        WorkerConfig(consumers={text: 1})


@pytest.mark.parametrize("number", [-1, MAX_ID + 1, 2**200, 1.5, math.nan, math.inf, "1", True])
async def test_a_number_that_a_worker_cannot_mean_is_refused_by_name(engine, number):
    calls = {
        "run_id": [lambda: engine.begin_step(number, "L")],
        "group_id": [lambda: engine.unserved(number)],
        "plan_id": [lambda: engine.plan(number)],
        "step_no": [lambda: engine.children(1, number)],
        "batch_id": [lambda: engine.claim_next_step("A", "L", None, number)],
    }
    for field, some in calls.items():
        for call in some:
            with pytest.raises(InvalidRunError) as refused:
                await call()
            assert names(refused.value, field)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan, 1e300, "1"])
async def test_a_time_that_is_none_is_refused_by_name(engine, seconds):
    for field in ("ttl", "max_wait"):
        with pytest.raises(InvalidRunError) as refused:
            engine.hold_lock("k", **{field: seconds})
        assert names(refused.value, field)
    for field in ("lease", "ageing", "tenant_gap"):
        with pytest.raises(InvalidRunError) as refused:
            Terms(**{field: seconds})
        assert names(refused.value, field)
    for field in ("poll_interval", "checkin_interval", "retention", "listener_timeout"):
        with pytest.raises(InvalidRunError) as refused:
            WorkerConfig(**{field: seconds})
        assert names(refused.value, field)


@pytest.mark.parametrize("number", [0, 2**31, 2**63, 1.5, math.nan])
async def test_counts_of_a_worker_have_bounds(number):
    with pytest.raises(InvalidRunError) as refused:
        Terms(max_lost=number)
    assert names(refused.value, "max_lost")
    with pytest.raises((InvalidRunError, PlanInvalidError), match="consumers"):
        WorkerConfig(consumers={"*": number})


async def test_a_message_that_is_no_text_is_refused_and_a_long_one_is_cut(engine):
    submitted = await engine.submit(plan(), [NewRun()])
    step = await engine.claim_next_step("A", "L")
    for end in (engine.complete_step, engine.error_step):
        with pytest.raises(InvalidRunError) as refused:
            await end(step.id, "L", 7)
        assert names(refused.value, "message")
    assert await engine.complete_step(step.id, "L", "x\0" * MAX_TEXT_LENGTH)
    [attempt] = await engine.attempts(submitted.runs[0])
    assert attempt["message"] == "x\ufffd" * (MAX_TEXT_LENGTH // 2)


@pytest.mark.parametrize("text", [*TEXTS.values(), None], ids=[*TEXTS, "none"])
@pytest.mark.parametrize("field", ["workflow_id", "param_id"])
async def test_an_id_of_a_plan_that_no_database_stores_is_refused_by_name(field, text):
    if field == "param_id" and text is None:
        return
    with pytest.raises(InvalidRunError) as refused:
        RunPlan(**{"workflow_id": "w", "steps": plan().steps, field: text})
    assert names(refused.value, field)


@pytest.mark.parametrize("field", ["name", "step_type", "handler", "pool", "resource_key"])
@pytest.mark.parametrize("text", ["", 7, "a\0b", "\ud800", "x" * 10_001])
async def test_a_text_of_a_step_that_no_database_stores_is_refused_by_name(field, text):
    with pytest.raises((InvalidRunError, PlanInvalidError), match=field):
        plan_of({"name": "a", "step_type": "a", "handler": "a", field: text})


def plan_of(step):
    return RunPlan(workflow_id="w", steps=[StepPlan(**step)])

"""Runs of pipelines that go on: after a failure, a crash, a pause, in caches and stores."""

import anyio
import anyio.lowlevel
import pytest
from tests.crashes import Crash

from lexigram.cache.memory import MemoryCache
from lexigram.contracts.infra.cache.errors import CacheWriteError
from lexigram.result import Err
from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.errors import (
    CheckpointConflictError,
    HumanInputRequiredError,
    StateNotStorableError,
    WorkflowNotFoundError,
    WorkflowStateError,
    WorkflowVersionMismatchError,
)
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import (
    ConditionalStep,
    FunctionStep,
    GraphStep,
    ParallelStep,
    Pipeline,
    PipelineContext,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[MemoryCache, InMemoryCheckpointStore])
def store(request):
    return request.param()


def flaky(log, fails):
    """Three steps; the second fails as long as ``fails`` holds something."""

    def work(name):
        def run(context):
            log.append(name)
            context.add_metadata("last", name)
            if name == "b" and fails:
                raise fails.pop()
            return f"{name}!"

        return run

    return [FunctionStep(name, work(name)) for name in "abc"]


async def test_a_failed_run_is_resumed_behind_its_last_finished_step(store):
    log, fails = [], [ValueError("no")]
    pipeline = Pipeline("p", flaky(log, fails), checkpoint_store=store)
    assert (await pipeline.execute({"for": "ada"}, run_id="r")).is_err()
    again = Pipeline("p", flaky(log, fails), checkpoint_store=store)  # another process
    context = (await again.resume("r")).unwrap()
    assert log == ["a", "b", "b", "c"]
    assert context.step_results == {"a": "a!", "b": "b!", "c": "c!"}
    assert context.metadata["for"] == "ada"
    assert context.executions["a"].skipped_reason == "Resumed from checkpoint"
    assert context.successful_steps == ["a", "b", "c"]


async def test_a_run_that_was_cut_off_is_resumed(store):
    log, fails = [], [Crash()]
    with pytest.raises(Crash):
        await Pipeline("p", flaky(log, fails), store).execute(run_id="r")
    (await Pipeline("p", flaky(log, fails), store).resume("r")).unwrap()
    assert log == ["a", "b", "b", "c"]


async def test_two_runs_at_once_never_see_each_others_checkpoints(store):
    ran = []
    both = anyio.Event()

    def work(name):
        async def run(context):
            ran.append((context.metadata["who"], name))
            if len(ran) == 2:
                both.set()
            await both.wait()
            return f"{context.metadata['who']}-{name}"

        return run

    pipeline = Pipeline("p", [FunctionStep(n, work(n)) for n in "abc"], checkpoint_store=store)
    contexts = {}

    async def one(who):
        contexts[who] = (await pipeline.execute({"who": who})).unwrap()

    async with anyio.create_task_group() as group:
        group.start_soon(one, "x")
        group.start_soon(one, "y")
    assert len(ran) == 6
    for who, context in contexts.items():
        assert context.step_results == {n: f"{who}-{n}" for n in "abc"}


async def test_a_run_id_is_used_once(store):
    fails = [ValueError("no")]
    pipeline = Pipeline("p", flaky([], fails), store)
    assert (await pipeline.execute(run_id="r")).is_err()
    error = (await pipeline.execute(run_id="r")).unwrap_err()
    assert isinstance(error.cause, CheckpointConflictError)
    (await pipeline.resume("r")).unwrap()  # and it lost nothing


async def test_an_unknown_run_and_one_of_another_version_are_refused(store):
    fails = [ValueError("no")]
    with pytest.raises(WorkflowNotFoundError):
        await Pipeline("p", flaky([], []), store).resume("nobody")
    await Pipeline("p", flaky([], fails), store).execute(run_id="r")
    with pytest.raises(WorkflowVersionMismatchError):
        await Pipeline("p", flaky([], []), store, version=2).resume("r")
    with pytest.raises(WorkflowStateError, match="'a', which this pipeline lacks"):
        await Pipeline("p", flaky([], [])[1:], store).resume("r")
    with pytest.raises(WorkflowStateError, match="waits for no answer"):
        await Pipeline("p", flaky([], []), store).resume("r", "yes")


async def test_a_completed_run_is_kept_by_a_store_and_forgotten_by_a_cache():
    cache, kept = MemoryCache(), InMemoryCheckpointStore()
    for store in (cache, kept):
        await Pipeline("p", flaky([], []), store).execute(run_id="r")
    log = []
    context = (await Pipeline("p", flaky(log, []), kept).resume("r")).unwrap()
    assert context.step_results == {"a": "a!", "b": "b!", "c": "c!"}
    assert log == []
    with pytest.raises(WorkflowNotFoundError):
        await Pipeline("p", flaky([], []), cache).resume("r")


async def test_a_choice_is_made_once_whenever_the_crash_comes(store):
    log, fails, answers = [], [Crash()], [False, True]

    def yes(context):
        log.append("yes")
        if fails:
            raise fails.pop()

    def pipeline():
        no = FunctionStep("no", lambda c: log.append("no"))
        choose = ConditionalStep("if", lambda c: answers.pop(), FunctionStep("yes", yes), no)
        return Pipeline("p", [choose], store)

    with pytest.raises(Crash):
        await pipeline().execute(run_id="r")
    (await pipeline().resume("r")).unwrap()
    assert log == ["yes", "yes"]
    assert answers == [False]  # nobody was asked again


async def test_steps_inside_a_parallel_step_that_ended_are_not_repeated(store):
    log, fails = [], [Crash()]

    async def quick(context):
        log.append("quick")

    async def slow(context):
        log.append("slow")
        while "quick" not in context.progress.finished:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        if fails:
            raise fails.pop()

    def pipeline():
        both = ParallelStep("both", [FunctionStep("slow", slow), FunctionStep("quick", quick)])
        return Pipeline("p", [both], store)

    with pytest.raises(BaseExceptionGroup):
        await pipeline().execute(run_id="r")
    (await pipeline().resume("r")).unwrap()
    assert sorted(log) == ["quick", "slow", "slow"]


async def test_a_result_that_cannot_be_kept_fails_the_run_and_names_the_step(store):
    pipeline = Pipeline("p", [FunctionStep("a", lambda c: object())], store)
    error = (await pipeline.execute()).unwrap_err()
    assert isinstance(error.cause, StateNotStorableError)
    assert error.cause.node == "a"


async def test_a_cache_that_fails_is_told_and_not_ignored():
    class Full(MemoryCache):
        async def set(self, key, value, ttl=None):
            return Err(CacheWriteError(key, "full"))

    error = (await Pipeline("p", flaky([], []), Full()).execute()).unwrap_err()
    assert isinstance(error.cause, CacheWriteError)


def question(store=None):
    engine = (
        WorkflowBuilder("ask")
        .add_node("prepare", lambda s: {"asked": s.get("asked", 0) + 1})
        .add_node("person", human_prompt="Send it?", output_key="answer")
        .add_node("end", lambda s: f"{s['answer']} after {s['asked']}")
        .add_edge("prepare", "person")
        .add_edge("person", "end")
        .set_entry("prepare")
        .set_terminal("end")
        .build()
    )
    log = []
    steps = [
        FunctionStep("first", lambda c: log.append("first")),
        GraphStep("ask", engine, ["first"]),
        FunctionStep("last", lambda c: c.get_result("ask").upper(), ["ask"]),
    ]
    return log, steps


async def test_a_pause_inside_a_graph_step_pauses_the_pipeline_and_goes_on_there():
    store = InMemoryCheckpointStore()
    log, steps = question()
    with pytest.raises(HumanInputRequiredError, match=r"Send it\?") as pause:
        await Pipeline("p", steps, store).execute(run_id="r")
    assert pause.value.run_id == "r"
    # in another process, which knows nothing but the store
    other_log, other = question()
    context = (await Pipeline("p", other, store).resume("r", "yes")).unwrap()
    assert context.get_result("last") == "YES AFTER 1"
    assert (log, other_log) == (["first"], [])


async def test_without_a_store_a_paused_run_is_kept_in_memory():
    log, steps = question()
    pipeline = Pipeline("p", steps)
    with pytest.raises(HumanInputRequiredError) as pause:
        await pipeline.execute()
    assert (await pipeline.resume(pause.value.run_id, "no")).unwrap().output == "NO AFTER 1"
    assert log == ["first"]


async def test_a_function_may_ask_by_itself_and_finds_the_answer(store):
    def ask(context):
        if "ask" not in context.answers:
            raise HumanInputRequiredError("How many?")
        return context.answers["ask"] * 2

    def pipeline():
        return Pipeline("p", [FunctionStep("ask", ask)], store)

    with pytest.raises(HumanInputRequiredError):
        await pipeline().execute(run_id="r")
    with pytest.raises(HumanInputRequiredError):
        await pipeline().resume("r")  # without an answer it asks again
    assert (await pipeline().resume("r", 4)).unwrap().output == 8


async def test_a_paused_run_can_be_cancelled():
    _, steps = question()
    store = InMemoryCheckpointStore()
    pipeline = Pipeline("p", steps, store)
    with pytest.raises(HumanInputRequiredError):
        await pipeline.execute(run_id="r")
    assert await pipeline.cancel("r")
    with pytest.raises(WorkflowStateError, match="cancelled"):
        await pipeline.resume("r", "yes")


async def test_a_pipeline_is_a_node_with_nested_checkpoints():
    store = InMemoryCheckpointStore()
    log, fails = [], [ValueError("no")]

    def engine():
        return (
            WorkflowBuilder("outer")
            .add_node("pipe", Pipeline("inner", flaky(log, fails)), output_key="made")
            .add_node("end", lambda s: f"got {s['made']}")
            .add_edge("pipe", "end")
            .set_entry("pipe")
            .set_terminal("end")
            .build(checkpoints=store)
        )

    assert (await engine().execute("x", run_id="r")).is_err()
    result = (await engine().recover("r")).unwrap()
    assert result.output == "got c!"
    assert log == ["a", "b", "b", "c"]


async def test_a_pause_deep_inside_is_answered_through_graph_pipeline_and_graph():
    store = InMemoryCheckpointStore()
    _, steps = question()

    def engine():
        return (
            WorkflowBuilder("outer")
            .add_node("pipe", Pipeline("inner", steps))
            .set_entry("pipe")
            .set_terminal("pipe")
            .build(checkpoints=store)
        )

    with pytest.raises(HumanInputRequiredError):
        await engine().execute("x", run_id="r")
    assert (await engine().resume("r", "yes")).unwrap().output == "YES AFTER 1"


async def test_of_two_who_go_on_with_one_run_one_wins():
    store = InMemoryCheckpointStore()
    fails = [ValueError("no")]
    await Pipeline("p", flaky([], fails), store).execute(run_id="r")

    def steps():
        return [*flaky([], [])[:2], FunctionStep("c", lambda c: 1)]

    one, other = Pipeline("p", steps(), store), Pipeline("p", steps(), store)
    (await one.resume("r")).unwrap()
    # Completed by the first: the second gets the same result and runs nothing.
    assert (await other.resume("r")).unwrap().get_result("c") == 1


async def test_facts_changed_by_steps_are_there_after_a_resume(store):
    fails = [ValueError("no")]
    log = []

    def first(context):
        context.metadata["list"] = [1]

    def second(context):
        context.metadata["list"].append(2)  # in place

    def third(context):
        if fails:
            raise fails.pop()
        log.append(context.metadata["list"])

    names = {"first": first, "second": second, "third": third}
    steps = [FunctionStep(name, func) for name, func in names.items()]
    await Pipeline("p", steps, store).execute(PipelineContext("p"), run_id="r")
    (await Pipeline("p", steps, store).resume("r")).unwrap()
    assert log == [[1, 2]]

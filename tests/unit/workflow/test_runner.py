"""Runners, instances and histories."""

import pytest
from tests.retries import HOPELESS

from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.core import WorkflowDefinition, WorkflowInstance
from lexigram.workflow.errors import HumanInputRequiredError, WorkflowVersionMismatchError
from lexigram.workflow.execution import ExecutionHistory, WorkflowCheckpoint, WorkflowRunner
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, Pipeline

pytestmark = pytest.mark.anyio


def workflows(log, fails):
    """A graph and a pipeline of two parts; the second part fails as long as ``fails`` says."""

    def first(state):
        log.append("first")

    def second(state):
        log.append("second")
        if fails:
            raise fails.pop()
        return "done"

    engine = (
        WorkflowBuilder("w")
        .add_node("first", first)
        .add_node("second", second)
        .add_edge("first", "second")
        .set_entry("first")
        .set_terminal("second")
        .build()
    )
    pipeline = Pipeline("w", [FunctionStep("first", first), FunctionStep("second", second)])
    return {"graph": engine, "pipeline": pipeline}


@pytest.mark.parametrize("kind", ["graph", "pipeline"])
async def test_retries_are_made_after_an_err_and_begin_anew_without_a_store(kind):
    log, fails = [], [ValueError("1"), ValueError("2")]
    runner = WorkflowRunner(workflows(log, fails)[kind], max_retries=3, retry_delay=0)
    assert (await runner.run("x")).unwrap().output == "done"
    assert log == ["first", "second"] * 3


@pytest.mark.parametrize("kind", ["graph", "pipeline"])
async def test_with_a_store_a_retry_goes_on_and_repeats_nothing(kind):
    log, fails = [], [ValueError("1"), ValueError("2")]
    runner = WorkflowRunner(
        workflows(log, fails)[kind],
        max_retries=3,
        retry_delay=0,
        checkpoint=InMemoryCheckpointStore(),
    )
    assert (await runner.run("x", run_id="r")).unwrap().run_id == "r"
    assert log == ["first", "second", "second", "second"]


@pytest.mark.parametrize("kind", ["graph", "pipeline"])
async def test_the_last_error_is_given_when_retries_run_out(kind):
    log, fails = [], [ValueError("2"), ValueError("1")]
    runner = WorkflowRunner(workflows(log, fails)[kind], max_retries=1, retry_delay=0)
    assert "2" in str((await runner.run("x")).unwrap_err())
    assert not fails


@pytest.mark.parametrize("kind", ["graph", "pipeline"])
async def test_a_run_in_a_store_is_resumed_by_another_runner(kind):
    log, fails, store = [], [ValueError("1")], InMemoryCheckpointStore()
    first = WorkflowRunner(workflows(log, fails)[kind], checkpoint=store)
    assert (await first.run("x", run_id="r")).is_err()
    second = WorkflowRunner(workflows(log, fails)[kind], checkpoint=store)
    assert (await second.resume(run_id="r")).unwrap().output == "done"
    assert log == ["first", "second", "second"]


async def test_a_pause_is_answered_by_state_or_by_run_id():
    engine = (
        WorkflowBuilder("ask")
        .add_node("person", human_prompt="Well?", output_key="answer")
        .add_node("end", lambda s: s["answer"])
        .add_edge("person", "end")
        .set_entry("person")
        .set_terminal("end")
        .build()
    )
    states = WorkflowCheckpoint()
    runner = WorkflowRunner(engine, checkpoint=states)
    with pytest.raises(HumanInputRequiredError) as pause:
        await runner.run("x")
    state = states.load(pause.value.run_id)
    assert (await runner.resume("yes", state=state)).unwrap().output == "yes"
    with pytest.raises(HumanInputRequiredError) as pause:
        await runner.run("x")
    assert (await runner.resume("no", run_id=pause.value.run_id)).unwrap().output == "no"
    assert states.load(pause.value.run_id)["output"] == "no"


def test_a_checkpoint_forgets_the_oldest_and_gives_copies():
    kept = WorkflowCheckpoint(max_size=2)
    for name in "abc":
        kept.save(name, {"list": [name]})
    assert ("a" in kept, len(kept)) == (False, 2)
    kept.load("c")["list"].append("x")
    assert kept.load("c") == {"list": ["c"]}
    assert (kept.delete("c"), kept.delete("c")) == (True, False)


async def test_a_limit_of_the_runner_is_one_of_the_run():
    import anyio

    async def forever(state):
        await anyio.sleep_forever()

    engine = WorkflowBuilder("slow").add_node("a", forever).set_entry("a").set_terminal("a").build()
    for slow in (engine, Pipeline("slow", [FunctionStep("a", forever)])):
        error = (await WorkflowRunner(slow, timeout=0.01).run("x")).unwrap_err()
        assert "0.01 s" in str(error)


@pytest.mark.parametrize("kind", ["graph", "pipeline"])
async def test_a_history_tells_how_each_part_went(kind):
    result = (await WorkflowRunner(workflows([], [])[kind]).run("x")).unwrap()
    history = ExecutionHistory(result)
    facts = history.as_dict()
    assert [node["node"] for node in facts["nodes"]] == ["first", "second"]
    assert all(node["succeeded"] for node in facts["nodes"])
    assert history.succeeded_nodes() == ["first", "second"]
    assert history.failed_nodes() == []
    assert history.total_node_time_ms() >= 0
    assert "second: done" in history.as_text()
    assert "2 nodes" in repr(history)


def test_an_instance_remembers_the_version_of_its_definition():
    instance = WorkflowInstance.create(WorkflowDefinition("order", ["a"], 2))
    assert (instance.workflow_name, instance.definition_version) == ("order", 2)
    instance.validate_definition_version(WorkflowDefinition("order", ["a"], 2))
    with pytest.raises(WorkflowVersionMismatchError):
        instance.validate_definition_version(WorkflowDefinition("order", ["a", "b"], 3))
    assert WorkflowInstance().instance_id != WorkflowInstance().instance_id


@pytest.mark.parametrize("kind", ["graph", "pipeline"])
@pytest.mark.parametrize("store", [None, InMemoryCheckpointStore])
@pytest.mark.parametrize("make", HOPELESS)
async def test_an_error_that_is_not_retryable_is_the_err_of_the_first_attempt(kind, store, make):
    log, error = [], make()
    runner = WorkflowRunner(
        workflows(log, [error, error])[kind],
        max_retries=3,
        retry_delay=0,
        checkpoint=None if store is None else store(),
    )
    assert (await runner.run("x")).unwrap_err().cause is error
    assert log == ["first", "second"]

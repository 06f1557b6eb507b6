"""A person in the loop: nothing is held, nothing is repeated, nothing is lost."""

import anyio
import pytest
from tests.crashes import Crash

from lexigram.contracts.workflow import GraphRunStatus
from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import (
    HumanInputRequiredError,
    WorkflowNotFoundError,
    WorkflowStateError,
    WorkflowVersionMismatchError,
)
from lexigram.workflow.graph import WorkflowBuilder, WorkflowState
from lexigram.workflow.nodes import HumanNode

pytestmark = pytest.mark.anyio


def review(log, *, store=None, version=1, config=None):
    """draft → ask a person → publish."""

    def note(name, answer):
        def node(state):
            log.append(name)
            return answer(state)

        return node

    builder = (
        WorkflowBuilder("review", config, version)
        .add_node("draft", note("draft", lambda s: {"text": f"about {s['input']}"}))
        .add_node("ask", human_prompt="publish {text}?")
        .add_node("publish", note("publish", lambda s: f"{s['text']}: {s['output']}"))
        .add_edge("draft", "ask")
        .add_edge("ask", "publish")
        .set_entry("draft")
        .set_terminal("publish")
    )
    return builder.build(checkpoints=store)


async def paused(engine, *args, **options):
    with pytest.raises(HumanInputRequiredError) as caught:
        await engine.execute(*args, **options)
    return caught.value


async def test_a_pause_says_what_is_asked_where_and_for_which_run():
    engine = review([])
    pause = await paused(engine, "tea", run_id="r1")
    assert pause.prompt == "publish about tea?"
    assert pause.node == "ask"
    assert pause.checkpoint_id == pause.run_id == "r1"
    assert pause.state["text"] == "about tea"
    assert str(pause).startswith("[LEX_ERR_WF_016] publish about tea?")


async def test_resume_goes_on_at_the_pause_and_repeats_nothing():
    log = []
    engine = review(log)
    pause = await paused(engine, "tea")
    result = (await engine.resume(pause.run_id, "yes")).unwrap()
    assert result.output == "about tea: yes"
    assert log == ["draft", "publish"]
    assert result.iterations == 3


async def test_another_engine_on_the_same_store_goes_on():
    store, log = InMemoryCheckpointStore(), []
    pause = await paused(review(log, store=store), "tea")
    result = (await review(log, store=store).resume(pause.run_id, "yes")).unwrap()
    assert result.output == "about tea: yes"
    assert log == ["draft", "publish"]


@pytest.mark.parametrize("store", [None, InMemoryCheckpointStore()])
async def test_the_other_forms_of_resume(store):
    engine = review([], store=store)
    await paused(engine, "one")
    assert (await engine.resume("yes")).unwrap().output == "about one: yes"
    state = WorkflowState("two")
    await paused(engine, "two", state=state)
    assert (await engine.resume(state.as_dict(), "yes")).unwrap().output == "about two: yes"
    pause = await paused(engine, "three")
    assert (await engine.resume(pause.state, "no")).unwrap().output == "about three: no"
    pause = await paused(engine, "four")
    result = await engine.resume(checkpoint_state=pause.state, human_response="so")
    assert result.unwrap().output == "about four: so"
    pause = await paused(engine, "five")
    result = await engine.resume(run_id=pause.run_id, response="so")
    assert result.unwrap().output == "about five: so"


async def test_a_state_without_a_run_begins_at_the_entry_with_its_answer():
    log = []
    result = await review(log).resume({"input": "tea", "_definition_version": 1}, "yes")
    assert result.unwrap().output == "about tea: yes"
    assert log == ["draft", "publish"]


@pytest.mark.parametrize("answer", [None, False, 0, "", {"approved": True}, ["a"]])
async def test_any_answer_is_an_answer(answer):
    engine = review([])
    pause = await paused(engine, "tea")
    assert (await engine.resume(pause.run_id, answer)).unwrap().output == f"about tea: {answer}"


async def test_resume_refuses_what_is_not_paused_and_changes_nothing():
    engine = review([])
    with pytest.raises(WorkflowNotFoundError, match="nobody"):
        await engine.resume("nobody", "yes")
    with pytest.raises(WorkflowStateError, match="there is none"):
        await engine.resume("yes")
    pause = await paused(engine, "tea")
    await paused(engine, "more tea")
    with pytest.raises(WorkflowStateError, match="are several"):
        await engine.resume("yes")
    with pytest.raises(WorkflowStateError, match="'draft'.*does not wait"):
        await engine.resume(pause.run_id, "yes", node="draft")
    with pytest.raises(TypeError, match="takes a response"):
        await engine.resume()
    (await engine.resume(pause.run_id, "yes")).unwrap()
    with pytest.raises(WorkflowStateError, match="is completed, not paused"):
        await engine.resume(pause.run_id, "yes")


async def test_of_two_answers_at_once_one_is_taken():
    store, log = InMemoryCheckpointStore(), []
    pause = await paused(review(log, store=store), "tea")
    outcomes = []

    async def answer(text):
        try:
            outcomes.append((await review(log, store=store).resume(pause.run_id, text)).unwrap())
        except WorkflowStateError as error:
            outcomes.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(answer, "yes")
        group.start_soon(answer, "no")
    assert sorted(isinstance(outcome, WorkflowStateError) for outcome in outcomes) == [False, True]
    assert log == ["draft", "publish"]


async def test_another_version_of_the_definition_is_refused_by_name():
    store = InMemoryCheckpointStore()
    pause = await paused(review([], store=store, version=1), "tea")
    newer = review([], store=store, version=2)
    for run in (pause.run_id, pause.state):
        with pytest.raises(WorkflowVersionMismatchError) as caught:
            await newer.resume(run, "yes")
        assert (caught.value.expected_version, caught.value.actual_version) == (2, 1)
    assert "finish it with version 1" in str(caught.value)
    assert (await review([], store=store).resume(pause.run_id, "yes")).is_ok()


async def test_a_node_that_is_gone_without_a_new_version_is_told():
    store = InMemoryCheckpointStore()
    pause = await paused(review([], store=store), "tea")
    other = WorkflowBuilder("review").add_node("draft", lambda s: None)
    engine = other.set_entry("draft").set_terminal("draft").build(checkpoints=store)
    with pytest.raises(WorkflowStateError, match="node 'ask', which the definition does not have"):
        await engine.resume(pause.run_id, "yes")


async def test_other_branches_go_on_while_a_person_is_asked_and_are_not_repeated():
    log = []

    def note(name):
        def node(state):
            log.append(name)
            return {name: True}

        return node

    def build(store):
        builder = WorkflowBuilder("g").add_node("a", note("a"))
        builder.add_node("ask", HumanNode("ask", output_key="said"))
        builder.add_node("b", note("b")).add_node("b2", note("b2"))
        builder.add_node("join", lambda s: f"{s['said']} {s['b2']}")
        for source, target in [("a", "ask"), ("a", "b"), ("b", "b2"), ("ask", "join")]:
            builder.add_edge(source, target)
        builder.add_edge("b2", "join")
        return builder.set_entry("a").set_terminal("join").build(checkpoints=store)

    store = InMemoryCheckpointStore()
    pause = await paused(build(store), "x")
    assert log == ["a", "b", "b2"]
    result = (await build(store).resume(pause.run_id, "ok")).unwrap()
    assert result.output == "ok True"
    assert log == ["a", "b", "b2"]


async def test_several_persons_are_answered_one_by_one_in_any_order():
    builder = WorkflowBuilder("g").add_node("a", lambda s: None)
    for name in ("legal", "money"):
        builder.add_node(name, HumanNode(name, prompt=name, output_key=name))
        builder.add_edge("a", name).add_edge(name, "z")
    builder.add_node("z", lambda s: f"{s['legal']} {s['money']}")
    engine = builder.set_entry("a").set_terminal("z").build()
    pause = await paused(engine, "x")
    assert pause.details["waiting"] == ["legal", "money"]
    with pytest.raises(HumanInputRequiredError, match="legal"):
        await engine.resume(pause.run_id, "rich", node="money")
    assert (await engine.resume(pause.run_id, "fine")).unwrap().output == "fine rich"


async def test_every_turn_of_a_loop_asks_anew():
    builder = (
        WorkflowBuilder("g")
        .add_node("ask", HumanNode("ask"))
        .add_node("look", lambda s: {"answers": [s["human_response"]]})
        .add_edge("ask", "look")
        .add_edge("look", "ask", condition=lambda s: s["human_response"] != "done")
        .reduce("answers", "append")
        .set_entry("ask")
        .set_terminal("look", condition=lambda s: s["human_response"] == "done")
    )
    engine = builder.build()
    pause = await paused(engine, "x")
    for answer in ("one", "two"):
        with pytest.raises(HumanInputRequiredError):
            await engine.resume(pause.run_id, answer)
    state = (await engine.resume(pause.run_id, "done")).unwrap().final_state
    assert state["answers"] == ["one", "two", "done"]


async def test_any_node_may_pause_and_remembers_what_it_wants():
    seen = []

    async def careful(state):
        seen.append(state.get("_pause"))
        if "human_response" not in state:
            raise HumanInputRequiredError("sure?", remember={"asked": 1})
        return {"output": state["human_response"]}

    builder = WorkflowBuilder("g").add_node("a", careful).set_entry("a").set_terminal("a")
    engine = builder.build()
    pause = await paused(engine, "x")
    result = (await engine.resume(pause.run_id, "sure")).unwrap()
    assert result.output == "sure"
    assert seen == [None, {"asked": 1}]
    assert "human_response" not in result.final_state


@pytest.mark.parametrize("every_step", [True, False])
async def test_a_pause_inside_an_inner_graph_pauses_the_outer_one(every_step):
    log = []
    store = InMemoryCheckpointStore() if every_step else None

    def build():
        inner = review(log)
        builder = WorkflowBuilder("outer").add_node("sub", subworkflow=inner)
        builder.add_node("end", lambda s: s["output"] + "!").add_edge("sub", "end")
        return builder.set_entry("sub").set_terminal("end").build(checkpoints=store)

    engine = build()
    pause = await paused(engine, "tea")
    assert pause.node == "sub"
    assert pause.prompt == "publish about tea?"
    other = build() if every_step else engine
    assert (await other.resume(pause.run_id, "yes")).unwrap().output == "about tea: yes!"
    assert log == ["draft", "publish"]


async def test_a_paused_run_can_be_cancelled_and_is_then_final():
    engine = review([])
    pause = await paused(engine, "tea")
    assert await engine.cancel(pause.run_id) is True
    assert await engine.cancel(pause.run_id) is False
    assert await engine.cancel("nobody") is False
    with pytest.raises(WorkflowStateError, match="is cancelled"):
        await engine.resume(pause.run_id, "yes")
    with pytest.raises(WorkflowStateError, match="was cancelled"):
        await engine.recover(pause.run_id)


async def test_an_answer_that_is_stored_is_not_asked_for_again_after_a_crash():
    store = InMemoryCheckpointStore()

    def build(end):
        builder = WorkflowBuilder("g").add_node("ask", human_prompt="?").add_node("end", end)
        builder.add_edge("ask", "end").set_entry("ask").set_terminal("end")
        return builder.build(checkpoints=store)

    def crash(state):
        raise Crash

    pause = await paused(build(crash), "x")
    with pytest.raises(Crash):
        await build(crash).resume(pause.run_id, "yes")
    assert (await store.runs())[0].status is GraphRunStatus.RUNNING
    result = (await build(lambda s: s["output"] + "!").recover(pause.run_id)).unwrap()
    assert result.output == "yes!"


async def test_an_answer_is_kept_before_the_node_that_asked_runs_again():
    store, alive = InMemoryCheckpointStore(), []

    async def asks(state):
        if "human_response" not in state:
            raise HumanInputRequiredError("sure?", remember={"n": 1})
        if not alive:
            raise Crash
        return {"output": [state["human_response"], state["_pause"]]}

    builder = WorkflowBuilder("g").add_node("a", asks).set_entry("a").set_terminal("a")
    pause = await paused(builder.build(checkpoints=store), "x")
    with pytest.raises(Crash):
        await builder.build(checkpoints=store).resume(pause.run_id, "yes")
    alive.append(True)
    result = (await builder.build(checkpoints=store).recover(pause.run_id)).unwrap()
    assert result.output == ["yes", {"n": 1}]


async def test_recover_of_a_paused_run_pauses_again():
    engine = review([], config=GraphConfig(checkpoint_enabled=True))
    pause = await paused(engine, "tea")
    with pytest.raises(HumanInputRequiredError, match="publish about tea"):
        await engine.recover(pause.run_id)
    assert (await engine.resume("yes")).is_ok()

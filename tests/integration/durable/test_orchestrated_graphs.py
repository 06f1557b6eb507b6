"""Graphs as durable runs: the same results as in one process, and every node a claim."""

from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

import anyio
import pytest
from tests.integration.durable.orchestrated_kit import GUARD, asks, engine, over, runs, work
from tests.retries import HOPELESS

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.contracts.workflow.errors import StepRefusedError
from lexigram.testing import wait_until
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.durable import (
    OrchestratedRuns,
    OrchestrationFailedError,
    OrchestrationNotFoundError,
    PlanInvalidError,
    RunNotParkedError,
    StepTerms,
)
from lexigram.workflow.errors import HumanInputRequiredError
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.nodes import HumanNode

pytestmark = pytest.mark.anyio

__all__ = ["engine", "runs", "work"]  # fixtures


def adds(name, **more):
    async def node(state):
        return {"log": [name], **more}

    return node


def diamond(**nodes):
    """A node, two beside each other, a join."""
    builder = WorkflowBuilder("diamond").reduce("log", "append")
    for name in ("first", "left", "right", "last"):
        builder.add_node(name, nodes.get(name, adds(name)))
    for source, target in (
        ("first", "left"),
        ("first", "right"),
        ("left", "last"),
        ("right", "last"),
    ):
        builder.add_edge(source, target)
    return builder.set_entry("first").set_terminal("last")


def loop(most=25):
    """Count until it is enough."""

    async def count(state):
        return {"n": state.get("n", 0) + 1}

    builder = WorkflowBuilder("loop").add_node("count", count).add_node("done", adds("done"))
    builder.add_edge("count", "count", condition=lambda state: state["n"] < state["enough"])
    builder.add_edge("count", "done", condition=lambda state: state["n"] >= state["enough"])
    builder.configure(GraphConfig(max_iterations=most))
    return builder.set_entry("count").set_terminal("done")


def spread():
    """A node that runs once for each piece."""

    async def square(state):
        return {"squares": [state["number"] ** 2]}

    async def total(state):
        return {"output": sum(state["squares"])}

    builder = WorkflowBuilder("spread").reduce("squares", "append")
    builder.add_node("split", adds("split")).add_node("square", square).add_node("total", total)
    builder.add_edge(
        "split", "square", each=lambda s: [{"number": n} for n in range(s.get("pieces", 5))]
    )
    builder.add_edge("square", "total")
    return builder.set_entry("split").set_terminal("total")


@pytest.mark.parametrize(
    ("make", "given"),
    [(diamond, {"k": 1}), (loop, {"enough": 7}), (spread, {}), (spread, {"pieces": 0})],
)
async def test_a_run_has_the_state_that_the_engine_alone_would_give(runs, work, make, given):
    alone = (await make().build().execute(state=given)).unwrap()
    runs.register("graph", make)
    await work()
    run = await over(runs, await runs.submit("graph", given))
    expected = {key: value for key, value in alone.final_state.items() if key[:1] != "_"}
    assert run.state == expected
    assert sorted(run.done) == sorted(result.node_name for result in alone.node_results)


async def test_every_node_is_an_attempt_of_its_own(runs, work, engine):
    runs.register("graph", diamond)
    await work()
    run_id = await runs.submit("graph")
    await over(runs, run_id)
    children = await engine.children(run_id)
    assert [child.status_meta["ran"] for child in children] == [["left"], ["right"]]
    own = [row["step_no"] for row in await engine.attempts(run_id)]
    assert own == [1, 2, 3, 8]  # first; hand out; last; the end


async def test_values_that_json_has_not_come_back_as_they_were(runs, work):
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    seen = []

    async def look(state):
        seen.append((state["when"], state["price"]))
        return {"parts": {1, 2}}

    runs.register("graph", diamond(left=look))
    await work()
    given = {"when": moment, "price": Decimal("1.50")}
    run = await over(runs, await runs.submit("graph", given))
    assert seen == [(moment, Decimal("1.50"))]
    assert run.state["parts"] == {1, 2}


async def test_a_failure_names_the_node_and_a_retry_repeats_only_that(runs, work, engine):
    ran = []

    def node(name):
        async def run(state):
            ran.append(name)
            if name == "right" and ran.count("right") < 2:
                raise OSError("no route")
            return {"log": [name]}

        return run

    runs.register("graph", diamond(**{name: node(name) for name in ("first", "left", "right")}))
    await work()
    run_id = await runs.submit("graph")
    failed = await over(runs, run_id, RunStatus.FAILED)
    assert "Node 'right' failed: no route" in failed.error
    assert (failed.done, failed.at_work) == (["first", "left"], ["right"])
    assert await engine.retry(run_id=run_id) == 2  # the run, and the one of the node
    run = await over(runs, run_id)
    assert run.state["log"] == ["first", "left", "right", "last"]
    assert sorted(ran) == ["first", "left", "right", "right"]


async def test_a_node_is_tried_as_often_as_its_terms_say(runs, work):
    tries = []

    async def shaky(state):
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return {"log": ["left"]}

    runs.register("graph", diamond(left=shaky), steps={"left": StepTerms(retries=3)})
    await work()
    await over(runs, await runs.submit("graph"))
    assert len(tries) == 3


async def test_a_node_that_refuses_is_not_tried_again(runs, work):
    tries = []

    async def refuse(state):
        tries.append(1)
        raise StepRefusedError("never")

    runs.register("graph", diamond(first=refuse), terms=StepTerms(retries=5))
    await work()
    run = await over(runs, await runs.submit("graph"), RunStatus.FAILED)
    assert "'first'" in run.error
    assert "never" in run.error
    assert len(tries) == 1


@pytest.mark.parametrize("make", HOPELESS)
async def test_an_error_that_is_not_retryable_fails_the_run_at_once(runs, work, make):
    tries = []

    async def bad(state):
        tries.append(1)
        raise make()

    runs.register("graph", diamond(first=bad), terms=StepTerms(retries=5))
    await work()
    assert "'first'" in (await over(runs, await runs.submit("graph"), RunStatus.FAILED)).error
    assert len(tries) == 1


async def test_a_node_that_takes_too_long_fails_by_its_name(runs, work):
    async def slow(state):
        await anyio.sleep_forever()

    runs.register("graph", diamond(first=slow), terms=StepTerms(timeout=0.05))
    await work()
    run = await over(runs, await runs.submit("graph"), RunStatus.FAILED)
    assert "'first' took more than 0.05 s" in run.error


async def test_a_loop_without_end_fails(runs, work):
    runs.register("graph", loop(most=4), terms=StepTerms(retries=3))
    await work()
    run = await over(runs, await runs.submit("graph", {"enough": 99}), RunStatus.FAILED)
    assert run.done == ["count"] * 4
    assert "4" in run.error


async def test_two_nodes_that_write_one_key_fail_the_run(runs, work):
    runs.register("graph", diamond(left=adds("l", key=1), right=adds("r", key=2)))
    await work()
    run = await over(runs, await runs.submit("graph"), RunStatus.FAILED)
    assert "'key'" in run.error


async def test_a_value_that_cannot_be_kept_fails_its_node_by_name(runs, work):
    runs.register("graph", diamond(first=adds("first", thing=object())))
    await work()
    run = await over(runs, await runs.submit("graph"), RunStatus.FAILED)
    assert "node 'first'" in run.error
    assert "thing" in run.error
    with pytest.raises(OrchestrationFailedError, match="thing"):
        await runs.submit("graph", {"thing": object()})


async def test_a_node_with_a_pool_waits_for_a_worker_that_has_it(runs, work):
    runs.register("graph", diamond(), steps={"left": StepTerms(pool="gpu")})
    await work({"graph": 2})
    run_id = await runs.submit("graph")

    async def waits():
        run = await runs.status(run_id)
        return (run.done, run.at_work) == (["first", "right"], ["left"])

    await wait_until(waits, timeout=GUARD)
    await work({"gpu": 1})
    assert (await over(runs, run_id)).state["log"] == ["first", "left", "right", "last"]


# --- people ---


def asking(**options):
    builder = WorkflowBuilder("asking").add_node("before", adds("before"))
    builder.add_node("ask", human_prompt="pay {sum}?", output_key="said")
    builder.add_edge("before", "ask").set_entry("before").set_terminal("ask")
    return builder.reduce("log", "append")


async def test_a_pause_holds_no_slot_and_goes_on_with_the_answer(runs, work, engine):
    runs.register("asking", asking)
    runs.register("other", diamond)
    worker = await work({"*": 1})
    run_id = await runs.submit("asking", {"sum": 3})
    [question] = await asks(runs, run_id, "ask")
    assert question.prompt == "pay 3?"
    await over(runs, await runs.submit("other"))  # the only slot is free
    await wait_until(lambda: not worker.busy, timeout=GUARD)
    await runs.answer(run_id, {"yes": datetime(2026, 1, 2, tzinfo=UTC)})
    run = await over(runs, run_id)
    assert run.state["said"] == {"yes": datetime(2026, 1, 2, tzinfo=UTC)}
    assert run.done == ["before", "ask"]
    with pytest.raises(RunNotParkedError):
        await runs.answer(run_id, "again")


async def test_two_questions_beside_each_other_are_answered_by_name(runs, work):
    builder = WorkflowBuilder("two").add_node("first", adds("first"))
    for name in ("left", "right"):
        builder.add_node(name, human_prompt=f"{name}?", output_key=name)
        builder.add_edge("first", name).set_terminal(name)
    runs.register("two", builder.set_entry("first"))
    await work({"*": 1})
    run_id = await runs.submit("two")
    await asks(runs, run_id, "left", "right")
    await runs.answer(run_id, 2, step="right")
    await asks(runs, run_id, "left")
    with pytest.raises(RunNotParkedError, match="'right'"):
        await runs.answer(run_id, 3, step="right")
    await runs.answer(run_id, 1, step="left")
    run = await over(runs, run_id)
    assert (run.state["left"], run.state["right"]) == (1, 2)


async def test_a_question_that_nobody_answers_in_time_comes_back_to_the_node(runs, work):
    async def ask(state):
        if state.get("_timed_out"):
            return {"said": "nobody", "asked": state["_pause"]["whom"]}
        raise HumanInputRequiredError("well?", remember={"whom": "ann"}, timeout=0.05)

    runs.register(
        "graph", WorkflowBuilder("g").add_node("ask", ask).set_entry("ask").set_terminal("ask")
    )
    await work()
    run = await over(runs, await runs.submit("graph"))
    assert (run.state["said"], run.state["asked"]) == ("nobody", "ann")


async def test_a_graph_inside_goes_on_after_its_pause_in_another_process(runs, work, engine):
    ran = []

    def make():
        async def note(state):
            ran.append("note")
            return {}

        inner = WorkflowBuilder("inner").add_node("note", note)
        inner.add_node("ask", human_prompt="inside?", output_key="output")
        inner.add_edge("note", "ask").set_entry("note").set_terminal("ask")
        outer = WorkflowBuilder("outer").add_node("inner", subworkflow=inner.build())
        return outer.set_entry("inner").set_terminal("inner")

    runs.register("outer", make)
    worker = await work()
    run_id = await runs.submit("outer")
    await asks(runs, run_id, "inner")
    await worker.stop(0.0)
    other = OrchestratedRuns(engine)  # nothing in memory
    other.register("outer", make)
    await work(runs=other)
    await other.answer(run_id, "yes")
    assert (await over(other, run_id)).state["output"] == "yes"
    assert ran == ["note"]


async def test_an_answer_that_the_node_cannot_take_is_refused_and_it_still_waits(runs, work):
    class Picky(HumanNode):
        def check_answer(self, response, remembered):
            if response not in ("yes", "no"):
                raise ValueError("yes or no")

    node = Picky("ask", prompt="well?", output_key="said")
    runs.register(
        "picky", WorkflowBuilder("p").add_node("ask", node).set_entry("ask").set_terminal("ask")
    )
    await work()
    run_id = await runs.submit("picky")
    await asks(runs, run_id, "ask")
    with pytest.raises(ValueError, match="yes or no"):
        await runs.answer(run_id, "perhaps")
    await runs.answer(run_id, "no")
    assert (await over(runs, run_id)).state["said"] == "no"


# --- versions ---


def versioned(version, *extra):
    builder = WorkflowBuilder("v", version=version).reduce("log", "append")
    builder.add_node("ask", human_prompt="go?", output_key="said")
    names = ["ask", *extra, "last"]
    for name in names[1:]:
        builder.add_node(name, adds(name))
    for source, target in pairwise(names):
        builder.add_edge(source, target)
    return builder.set_entry("ask").set_terminal("last")


async def test_a_run_refuses_a_graph_that_changed_and_goes_on_with_the_old_one(runs, work, engine):
    runs.register("v", versioned(1))
    await work()
    run_id = await runs.submit("v")
    await asks(runs, run_id, "ask")
    runs.register("v", versioned(1, "more"))
    await runs.answer(run_id, "yes")
    run = await over(runs, run_id, RunStatus.FAILED)
    assert "version 1 of 'v', which is still version 1, but of another shape here" in run.error
    runs.register("v", versioned(1))
    await engine.retry(run_id=run_id)
    await over(runs, run_id)


async def test_a_version_that_accepts_older_runs_goes_on_with_them(runs, work):
    runs.register("v", versioned(1))
    await work()
    run_id = await runs.submit("v")
    await asks(runs, run_id, "ask")
    runs.register("v", versioned(2, "more"), accepts=[1])
    await runs.answer(run_id, "yes")
    assert (await over(runs, run_id)).done == ["ask", "more", "last"]


async def test_a_run_refuses_a_graph_without_the_node_where_it_is(runs, work):
    runs.register("v", versioned(1))
    await work()
    run_id = await runs.submit("v")
    await asks(runs, run_id, "ask")
    runs.register(
        "v",
        WorkflowBuilder("v", version=2)
        .add_node("other", adds("o"))
        .set_entry("other")
        .set_terminal("other"),
        accepts=[1],
    )
    await runs.answer(run_id, "yes")
    run = await over(runs, run_id, RunStatus.FAILED)
    assert "goes on at node 'ask', which the definition does not have" in run.error


async def test_a_version_with_more_nodes_than_a_run_has_turns_for_tells_so(runs, work):
    runs.register("v", versioned(1))
    await work()
    run_id = await runs.submit("v")
    await asks(runs, run_id, "ask")
    more = [f"more {number}" for number in range(5)]
    runs.register("v", versioned(2, *more), accepts=[1])
    await runs.answer(run_id, "yes")
    run = await over(runs, run_id, RunStatus.FAILED)
    assert run.done == ["ask", *more[:4]]
    assert "not over after all turns" in run.error


# --- what is refused ---


async def test_a_name_that_is_not_registered_is_refused_with_the_near_one(runs):
    runs.register("checkout", diamond)
    with pytest.raises(OrchestrationNotFoundError, match="did you mean 'checkout'"):
        await runs.submit("chekout")


async def test_terms_for_a_node_that_is_not_there_are_refused(runs):
    with pytest.raises(PlanInvalidError, match="no node or step 'lft'") as refused:
        runs.register("graph", diamond, steps={"lft": StepTerms()})
    assert "'left'" in refused.value.hint


@pytest.mark.parametrize("what", ["no.such.module", "lexigram.workflow.nothing", 3])
async def test_something_that_is_no_workflow_is_refused(runs, what):
    with pytest.raises(PlanInvalidError):
        runs.register("graph", what)


async def test_a_second_submission_with_the_key_is_the_first_run(runs):
    runs.register("graph", "tests.integration.durable.test_orchestrated_graphs.diamond")
    first = await runs.submit("graph", idempotency_key="order-1")
    assert await runs.submit("graph", idempotency_key="order-1") == first


async def test_a_cancelled_run_ends_with_what_it_handed_out(runs, work, engine):
    begun = anyio.Event()

    async def slow(state):
        begun.set()
        await anyio.sleep_forever()

    runs.register("graph", diamond(left=slow, right=slow))
    await work()
    run_id = await runs.submit("graph")
    await begun.wait()
    await engine.cancel(run_id=run_id)
    await over(runs, run_id, RunStatus.CANCELLED)

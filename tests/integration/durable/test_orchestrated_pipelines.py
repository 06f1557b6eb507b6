"""Pipelines as durable runs: a claim for each step, runs for those side by side."""

from math import inf, nan

import pytest
from tests.integration.durable.orchestrated_kit import asks, engine, over, runs, work
from tests.retries import HOPELESS

from lexigram.contracts.core.result import Err
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.workflow.durable import OrchestrationFailedError, StepTerms
from lexigram.workflow.errors import HumanInputRequiredError
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import (
    ConditionalStep,
    FunctionStep,
    GraphStep,
    ParallelStep,
    Pipeline,
)

pytestmark = pytest.mark.anyio

__all__ = ["engine", "runs", "work"]  # fixtures


def gives(name, value=None, *, after=(), ran=None):
    async def step(context):
        if ran is not None:
            ran.append(name)
        return name if value is None else value

    return FunctionStep(name, step, list(after))


async def test_every_step_is_a_step_of_the_run_by_its_name(runs, work, engine):
    async def total(context):
        context.metadata["seen"] = context.metadata["rate"] + 1
        return context.get_result("load") * context.metadata["rate"]

    async def told(context):
        return context.metadata["seen"]

    steps = [gives("load", 7), FunctionStep("total", total, ["load"]), FunctionStep("tell", told)]
    runs.register("bill", Pipeline("bill", steps))
    await work()
    run_id = await runs.submit("bill", {"rate": 3})
    run = await over(runs, run_id)
    assert run.state["results"] == {"load": 7, "total": 21, "tell": 4}
    assert run.done == ["load", "total", "tell"]
    names = [step.workflow_step_name for step in await engine.steps(run_id)]
    assert names == ["load", "total", "tell", "(end)"]


@pytest.mark.parametrize("concurrent", [False, True])
async def test_steps_side_by_side_are_runs_of_their_own(runs, work, engine, concurrent):
    together = ParallelStep("both", [gives("left", 1), gives("right", 2)], ["first"])
    last = gives("last", after=["both"])
    pipeline = Pipeline("p", [gives("first"), together, last], concurrent=concurrent)
    runs.register("p", pipeline)
    await work()
    run_id = await runs.submit("p")
    run = await over(runs, run_id)
    assert run.state["results"] == {
        "first": "first",
        "left": 1,
        "right": 2,
        "both": [1, 2],
        "last": "last",
    }
    children = await engine.children(run_id)
    assert [child.status_meta["ran"] for child in children] == [["left"], ["right"]]


async def test_a_concurrent_pipeline_hands_out_all_whose_dependencies_are_over(runs, work):
    ran = []
    steps = [
        gives("a", ran=ran),
        gives("b", ran=ran),
        gives("c", after=["a"], ran=ran),
        gives("d", after=["b", "c"], ran=ran),
    ]
    runs.register("p", Pipeline("p", steps, concurrent=True), steps={"d": StepTerms(pool="slow")})
    await work({"pipeline": 2, "slow": 1})
    run = await over(runs, await runs.submit("p"))
    assert sorted(ran) == ["a", "b", "c", "d"]
    assert ran[-1] == "d"
    assert run.done == ["a", "b", "c", "d"]


async def test_a_failed_step_fails_the_run_by_its_name_and_is_all_that_a_retry_repeats(
    runs, work, engine
):
    ran = []

    async def shaky(context):
        ran.append("shaky")
        return Err("no truck") if ran.count("shaky") < 4 else "done"

    steps = [gives("first", ran=ran), FunctionStep("shaky", shaky)]
    runs.register("p", Pipeline("p", steps), steps={"shaky": StepTerms(retries=2)})
    await work()
    run_id = await runs.submit("p")
    failed = await over(runs, run_id, RunStatus.FAILED)
    assert "'shaky'" in failed.error
    assert "no truck" in failed.error
    assert ran == ["first", "shaky", "shaky"]
    await engine.retry(run_id=run_id)
    await over(runs, run_id)
    assert ran == ["first", *["shaky"] * 4]


@pytest.mark.parametrize("way", ["Err", "raise"])
@pytest.mark.parametrize("make", HOPELESS)
async def test_an_error_that_is_not_retryable_fails_the_run_at_once(runs, work, make, way):
    tries = []

    async def bad(context):
        tries.append(1)
        if way == "Err":
            return Err(make())
        raise make()

    runs.register("p", Pipeline("p", [FunctionStep("bad", bad)]), terms=StepTerms(retries=3))
    await work()
    failed = await over(runs, await runs.submit("p"), RunStatus.FAILED)
    assert "'bad'" in failed.error
    assert len(tries) == 1


@pytest.mark.parametrize("value", [nan, object(), {"x": [inf]}], ids=["nan", "object", "inside"])
async def test_a_result_or_fact_that_cannot_be_stored_fails_its_step_by_name(runs, work, value):
    async def fact(context):
        context.metadata["x"] = value

    for name, step in (("result", gives("bad", value)), ("fact", FunctionStep("bad", fact))):
        runs.register(name, Pipeline(name, [step]))
        await work()
        failed = await over(runs, await runs.submit(name), RunStatus.FAILED)
        assert "'bad'" in failed.error
        with pytest.raises(OrchestrationFailedError, match="cannot be kept"):
            await runs.submit(name, {"x": value})


async def test_a_choice_that_was_made_stays_through_a_pause(runs, work):
    ran = []

    async def decide(context):
        ran.append("decide")
        return context.metadata["rich"]

    async def ask(context):
        if "ask" in context.answers:
            return context.answers["ask"]
        raise HumanInputRequiredError("really?")

    choice = ConditionalStep("choice", decide, FunctionStep("ask", ask), gives("no"))
    runs.register("p", Pipeline("p", [gives("first", ran=ran), choice, gives("last")]))
    await work()
    run_id = await runs.submit("p", {"rich": True})
    [question] = await asks(runs, run_id, "choice")
    assert question.prompt == "really?"
    await runs.answer(run_id, "yes")
    run = await over(runs, run_id)
    assert run.state["results"]["choice"] == "yes"
    assert ran == ["first", "decide"]


async def test_a_pause_inside_a_graph_step_is_answered_from_outside(runs, work):
    inner = WorkflowBuilder("inner").add_node("ask", human_prompt="well?", output_key="output")
    graph = inner.set_entry("ask").set_terminal("ask").build()
    runs.register("p", Pipeline("p", [gives("first"), GraphStep("graph", graph)]))
    await work()
    run_id = await runs.submit("p")
    await asks(runs, run_id, "graph")
    await runs.answer(run_id, 42)
    assert (await over(runs, run_id)).state["results"]["graph"] == 42


async def test_a_pipeline_that_changed_is_refused(runs, work):
    async def ask(context):
        if "ask" in context.answers:
            return 1
        raise HumanInputRequiredError("well?")

    runs.register("p", Pipeline("p", [FunctionStep("ask", ask), gives("last")]))
    await work()
    run_id = await runs.submit("p")
    await asks(runs, run_id, "ask")
    runs.register("p", Pipeline("p", [FunctionStep("ask", ask), gives("other")], version=2))
    await runs.answer(run_id, "yes")
    failed = await over(runs, run_id, RunStatus.FAILED)
    assert "began with version 1 of 'p', which is version 2 here" in failed.error

"""Workflows inside workflows: who waits, who is told that nobody answered, what a crash leaves."""

from itertools import pairwise

import pytest
from tests.crashes import Crash

from lexigram import clock
from lexigram.testing.fakes import FakeClock
from lexigram.workflow.approval import ApprovalChain, ApprovalNode, ApprovalStep
from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.errors import HumanInputRequiredError
from lexigram.workflow.graph import WorkflowBuilder, WorkflowEngine
from lexigram.workflow.nodes import HumanNode, PipelineNode
from lexigram.workflow.pipeline import FunctionStep, GraphStep, Pipeline

pytestmark = pytest.mark.anyio


async def paused(call):
    with pytest.raises(HumanInputRequiredError) as caught:
        await call
    return caught.value


def nested(kind, store):
    """An approval of a minute, then of Eve, inside another workflow; the outermost one."""
    chain = ApprovalChain(timeout=60, escalate_to="Eve").add_step(ApprovalStep("legal", "Ada"))
    inner = WorkflowBuilder("inner").add_node("ok", ApprovalNode("ok", chain, output_key="output"))
    graph = inner.set_entry("ok").set_terminal("ok").build()
    if kind == "graph in pipeline":
        return Pipeline("outer", [GraphStep("deal", graph)], checkpoint_store=store)
    outer = WorkflowBuilder("outer")
    if kind == "graph in graph":
        outer.add_node("deal", subworkflow=graph)
    else:
        outer.add_node(
            "deal", PipelineNode("deal", pipeline=Pipeline("p", [GraphStep("g", graph)]))
        )
    return outer.set_entry("deal").set_terminal("deal").build(checkpoints=store)


NESTED = pytest.mark.parametrize(
    "kind", ["graph in graph", "graph in pipeline", "graph in pipeline in graph"]
)


@NESTED
async def test_a_silent_person_is_noticed_inside_other_workflows_too(kind):
    store = InMemoryCheckpointStore()
    with clock.use(FakeClock()) as time:
        pause = await paused(nested(kind, store).execute({"x": 1}))
        assert await nested(kind, store).time_out_pauses() == []
        time.advance(61)
        # Every time another process: nothing is known but what is stored.
        assert await nested(kind, store).time_out_pauses() == [pause.run_id]
        assert await nested(kind, store).time_out_pauses() == []
        again = await paused(going_on(nested(kind, store), pause.run_id))
        assert again.prompt == "Approval needed. (legal: Eve)"
        time.advance(61)
        assert await nested(kind, store).time_out_pauses() == [pause.run_id]
        assert await nested(kind, store).time_out_pauses() == []
    ended = (await going_on(nested(kind, store), pause.run_id)).unwrap()
    assert ended.output is False


@NESTED
async def test_the_next_person_answers_inside_other_workflows(kind):
    store = InMemoryCheckpointStore()
    with clock.use(FakeClock()) as time:
        pause = await paused(nested(kind, store).execute({"x": 1}))
        time.advance(61)
        await nested(kind, store).time_out_pauses()
        ended = (await nested(kind, store).resume(pause.run_id, True)).unwrap()
        assert ended.output is True
        time.advance(61)
        assert await nested(kind, store).time_out_pauses() == []


async def test_an_inner_run_is_left_to_the_outer_one():
    store = InMemoryCheckpointStore()
    chain = ApprovalChain(timeout=60).add_step(ApprovalStep("legal", "Ada"))
    inner = WorkflowBuilder("inner").add_node("ok", ApprovalNode("ok", chain))
    graph = inner.set_entry("ok").set_terminal("ok").build(checkpoints=store)
    outer = WorkflowBuilder("outer").add_node("deal", subworkflow=graph)
    engine = outer.set_entry("deal").set_terminal("deal").build(checkpoints=store)
    with clock.use(FakeClock()) as time:
        pause = await paused(engine.execute("x"))
        time.advance(61)
        assert await graph.time_out_pauses() == []
        assert await engine.time_out_pauses() == [pause.run_id]


async def test_a_step_of_a_pipeline_that_asks_by_itself_learns_that_nobody_answered():
    async def ask(context):
        if "ask" in context.timed_out:
            return "nobody"
        if "ask" in context.answers:
            return context.answers["ask"]
        raise HumanInputRequiredError("Well?", timeout=60)

    store = InMemoryCheckpointStore()
    pipeline = Pipeline("p", [FunctionStep("ask", ask)], checkpoint_store=store)
    with clock.use(FakeClock()) as time:
        pause = await paused(pipeline.execute())
        assert pause.due_at == clock.timestamp() + 60
        assert await pipeline.time_out_pauses() == []
        time.advance(61)
        assert await pipeline.time_out_pauses() == [pause.run_id]
    assert (await pipeline.resume(pause.run_id)).unwrap().output == "nobody"


def going_on(workflow, run_id):
    """As after a crash: a completed run gives its result again, a paused one its question."""
    go_on = workflow.recover if isinstance(workflow, WorkflowEngine) else workflow.resume
    return go_on(run_id)


@pytest.mark.parametrize("kind", ["graph", "pipeline"])
@pytest.mark.parametrize("questions", [1, 2])
async def test_a_crash_after_the_inner_workflow_took_an_answer_gives_it_to_no_other_question(
    kind, questions
):
    class Store(InMemoryCheckpointStore):
        crashes = False

        async def append(self, checkpoint, run=None):
            # The inner run is stored, what the outer one made of it is not.
            if self.crashes and checkpoint.run_id == "run" and b'"r"' not in checkpoint.data:
                raise Crash
            await super().append(checkpoint, run)

    inner = WorkflowBuilder("inner")
    names = [f"q{number}" for number in range(questions)]
    for name in names:
        inner.add_node(name, HumanNode(name, prompt=name, output_key=name))
    for source, target in pairwise(names):
        inner.add_edge(source, target)
    inner.add_node("end", lambda state: {"output": [state[name] for name in names]})
    inner.add_edge(names[-1], "end")
    graph = inner.set_entry("q0").set_terminal("end").build()
    store = Store()
    outer = WorkflowBuilder("outer")
    if kind == "graph":
        outer.add_node("inner", subworkflow=graph)
    else:
        pipeline = Pipeline("p", [GraphStep("g", graph)])
        outer.add_node("inner", PipelineNode("inner", pipeline=pipeline))
    outer.add_node("after", lambda state: {"seen": state["output"]}).add_edge("inner", "after")
    engine = outer.set_entry("inner").set_terminal("after").build(checkpoints=store)
    await paused(engine.execute("x", run_id="run"))
    store.crashes = True
    with pytest.raises(Crash):
        await engine.resume("run", "first")
    store.crashes = False
    if questions == 2:
        pause = await paused(engine.recover("run"))
        assert pause.prompt == "q1"
        ended = await engine.resume("run", "second")
    else:
        ended = await engine.recover("run")
    assert ended.unwrap().final_state["seen"] == ["first", "second"][:questions]

"""What graphs and pipelines do alike with their stored runs: time out pauses, cancel."""

from dataclasses import replace

import pytest

from lexigram import clock
from lexigram.app import Application
from lexigram.contracts.workflow.checkpoints import GraphRunStatus
from lexigram.serialization import SerializationError
from lexigram.testing.fakes import FakeClock
from lexigram.workflow import WorkflowModule, Workflows
from lexigram.workflow.checkpoint import InMemoryCheckpointStore
from lexigram.workflow.errors import HumanInputRequiredError, WorkflowError
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, Pipeline

pytestmark = [pytest.mark.anyio]

KINDS = pytest.mark.parametrize("kind", ["graph", "pipeline"])


def asks(kind, store=None, calls=None, name="asks"):
    """A workflow of one part, which waits for an answer for a minute."""

    def ask(given):
        if calls is not None:
            calls.append(given)
        if kind == "graph":
            is_over, answer = given.get("_timed_out"), given.get("_answer")
        else:
            is_over, answer = "ask" in given.timed_out, given.answers.get("ask")
        if is_over:
            return "nobody"
        if answer is None:
            raise HumanInputRequiredError("well?", timeout=60)
        return answer

    if kind == "pipeline":
        return Pipeline(name, [FunctionStep("ask", ask)], store)
    builder = WorkflowBuilder(name).add_node("ask", ask).set_entry("ask").set_terminal("ask")
    return builder.build(checkpoints=store)


async def pause(workflow, run_id):
    with pytest.raises(HumanInputRequiredError):
        await workflow.execute({"input": "x"}, run_id=run_id)


async def status(store, run_id):
    return (await store.load(run_id)).run.status


@KINDS
async def test_a_run_that_cannot_be_resumed_keeps_no_other_from_its_end(kind):
    class Broken(InMemoryCheckpointStore):
        async def load(self, run_id, seq=None):
            if run_id == "bad" and is_over:
                raise SerializationError("no such class")
            return await super().load(run_id, seq)

    store, is_over = Broken(), []
    workflow = asks(kind, store)
    with clock.use(FakeClock()) as time:
        for run_id in ("one", "bad", "two"):
            await pause(workflow, run_id)
        time.advance(61)
        is_over.append(True)
        with pytest.raises(
            WorkflowError, match="'bad' could not be resumed.*no such class"
        ) as seen:
            await workflow.time_out_pauses()
    assert sorted(seen.value.details["resumed"]) == ["one", "two"]
    for run_id in ("one", "two"):
        assert await status(store, run_id) is GraphRunStatus.COMPLETED


async def test_a_workflow_whose_runs_cannot_be_resumed_keeps_no_other_from_theirs():
    class Broken(InMemoryCheckpointStore):
        async def runs(self, **query):
            raise OSError("the database is away")

    store = InMemoryCheckpointStore()
    workflows = [asks("graph", Broken(), name="bad"), asks("pipeline", store)]
    async with Application("x", modules=[WorkflowModule.stub(workflows=workflows)]) as app:
        bound = await app.container.resolve(Workflows)
        with clock.use(FakeClock()) as time:
            with pytest.raises(HumanInputRequiredError):
                await bound.run("asks", run_id="r")
            time.advance(61)
            with pytest.raises(OSError, match="away"):
                await bound.time_out_pauses()
    assert await status(store, "r") is GraphRunStatus.COMPLETED


@KINDS
async def test_a_run_that_is_answered_at_the_same_moment_is_not_run_twice(kind):
    class Late(InMemoryCheckpointStore):
        async def runs(self, **query):
            found = await super().runs(**query)
            for run in found:  # another process answers before we do anything
                await self.update(
                    replace(run, status=GraphRunStatus.RUNNING), GraphRunStatus.PAUSED
                )
            return found

    calls, store = [], Late()
    workflow = asks(kind, store, calls)
    with clock.use(FakeClock()) as time:
        await pause(workflow, "r")
        time.advance(61)
        assert await workflow.time_out_pauses() == []
    assert len(calls) == 1
    assert await status(store, "r") is GraphRunStatus.RUNNING


@KINDS
async def test_a_run_of_another_workflow_is_not_cancelled(kind):
    store = InMemoryCheckpointStore()
    await pause(asks(kind, store), "r")
    for other in ("graph", "pipeline"):
        assert not await asks(other, store, name="other").cancel("r")
    assert await status(store, "r") is GraphRunStatus.PAUSED
    assert await asks(kind, store).cancel("r")
    assert await status(store, "r") is GraphRunStatus.CANCELLED


@KINDS
async def test_a_run_is_cancelled_among_several_workflows(kind):
    others = [asks(other, name=f"other {other}") for other in ("graph", "pipeline")]
    stub = WorkflowModule.stub(workflows=[*others, asks(kind)])
    async with Application("x", modules=[stub]) as app:
        workflows = await app.container.resolve(Workflows)
        with pytest.raises(HumanInputRequiredError):
            await workflows.run("asks", run_id="r")
        assert await workflows.cancel("r")
        assert (await workflows.status("r")).status == "cancelled"

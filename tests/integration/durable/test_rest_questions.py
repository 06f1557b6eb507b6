"""Submit pipelines, graphs and sagas over HTTP, see what they ask, and answer; on both databases."""

import httpx
import pytest

from lexigram.app import Application
from lexigram.sql import SqlConfig, SqlModule
from lexigram.testing import wait_until
from lexigram.web import WebHost, WebModule
from lexigram.workflow import WorkflowModule, workflow
from lexigram.workflow.approval import ApprovalChain, ApprovalNode, ApprovalStep
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable import NewRun, RunPlan, StepPlan
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.web.orchestrated import orchestrations
from lexigram.workflow.durable.web.runs import runs
from lexigram.workflow.durable.web.sync_states import sync_states
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.pipeline import FunctionStep, Pipeline
from lexigram.workflow.saga import AbstractSaga, saga_step

pytestmark = pytest.mark.anyio

API = "http://localhost/api/v1"
GUARD = 60.0  # against a hang only


@workflow("order")
def order() -> WorkflowBuilder:
    graph = WorkflowBuilder("order").add_node("price", lambda s: {"price": 3 * s["pieces"]})
    graph.add_node("ask", human_prompt="{pieces} for {price}?", output_key="said")
    graph.add_node("send", lambda s: {"output": s["said"]})
    graph.add_edge("price", "ask").add_edge("ask", "send")
    return graph.set_entry("price").set_terminal("send")


@workflow("both")
def both() -> WorkflowBuilder:
    """Two branches that ask at the same time, each as a run of its own."""
    graph = WorkflowBuilder("both").add_node("begin", lambda s: {})
    for name in ("left", "right"):
        graph.add_node(name, human_prompt=f"{name}?", output_key=name)
        graph.add_edge("begin", name).add_edge(name, "end")
    graph.add_node("end", lambda s: {"output": f"{s['left']} {s['right']}"})
    return graph.set_entry("begin").set_terminal("end")


@workflow("vote")
def vote() -> WorkflowBuilder:
    chain = ApprovalChain()
    for name in ("a", "b"):
        chain.add_step(ApprovalStep(name=name, approver=name.upper()))
    graph = WorkflowBuilder("vote").add_node("vote", ApprovalNode("vote", chain))
    return graph.set_entry("vote").set_terminal("vote")


async def double(context):
    return context.metadata["pieces"] * 2


doubling = Pipeline("doubling", [FunctionStep("double", double)])


@workflow("trip")
class Trip(AbstractSaga):
    """A saga with an argument."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number

    def get_id(self):
        return f"trip-{self.number}"

    @saga_step()
    async def pay(self):
        pass


async def ask(ctx):
    return {"by": ctx.answer} if ctx.answered else ctx.park("who pays?")


async def spread(ctx):
    ctx.spawn(["pay"], [NewRun(params={"n": number}) for number in range(2)])


PARKING = RunPlan(
    workflow_id="bill",
    steps=[
        StepPlan(name="spread", step_type="x", handler="spread"),
        StepPlan(name="pay", step_type="x", handler="ask"),
    ],
)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def database(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def app(database):
    durable = DurableConfig(poll_interval=0.1)
    modules = [
        SqlModule.configure(SqlConfig(url=database.config.url)),
        WorkflowModule.stub(
            WorkflowConfig(durable=durable), step_handlers={"ask": ask, "spread": spread}
        ),
        WorkflowModule.scope(order, both, vote, doubling, Trip),
        WebModule.stub(routers=[runs(), orchestrations(), sync_states()]),
    ]
    async with Application("rest", modules=modules) as app:
        yield app


@pytest.fixture
async def client(app):
    transport = httpx.ASGITransport(app=app.container.get(WebHost).asgi)
    async with httpx.AsyncClient(transport=transport, base_url=API) as client:
        yield client


@pytest.fixture
def fleet(app):
    return app.container.get(DurableFleet)


async def reached(client, run_id, has):
    found = {}

    async def there():
        found.update((await client.get(f"/workflow/runs/{run_id}/state")).json())
        return has(found)

    await wait_until(there, timeout=GUARD)
    return found


def asks(facts):
    return facts["questions"]


def is_over(facts):
    return facts["status"] in ("COMPLETED", "FAILED")


def is_error(answer, status, code, text=""):
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["code"] == code, body
    assert text in body["error"], body
    return body


async def test_a_graph_is_submitted_asks_is_answered_and_ends(client, fleet):
    made = await client.post(
        "/workflow/runs", json={"name": "order", "input": {"pieces": 7}, "priority": 2}
    )
    assert made.status_code == 201, made.text
    run = made.json()["run_id"]
    assert made.json() | {"run_id": 0, "group_id": 0} == {
        "run_id": 0,
        "group_id": 0,
        "name": "order",
        "status": "PENDING",
        "done": [],
        "at_work": [],
        "questions": [],
        "error": None,
        "state": {"input": "", "output": "", "pieces": 7},
    }
    async with fleet.working({"*": 2}):
        await reached(client, run, asks)
        [question] = (await client.get("/workflow/questions")).json()
        assert question["run_id"] == run
        assert (question["step"], question["prompt"]) == ("ask", "7 for 21?")
        # it waits without a slot, and the lists of runs and steps say for what
        listed = (await client.get("/workflow/runs")).json()[0]
        assert (listed["state"], listed["asks"], listed["priority"]) == ("parked", "7 for 21?", 2)
        shown = (await client.get(f"/workflow/runs/{run}")).json()
        [step] = [one for one in shown["steps"] if one["status_message"] == "7 for 21?"]
        assert (step["status"], step["worker_id"]) == ("PENDING", None)
        answered = await client.post(f"/workflow/runs/{run}/answer", json={"answer": {"yes": 1}})
        assert answered.status_code == 200, answered.text
        assert answered.json()["step"] == "ask"
        ended = await reached(client, run, is_over)
    assert (ended["status"], ended["done"]) == ("COMPLETED", ["price", "ask", "send"])
    assert ended["state"]["output"] == {"yes": 1}
    assert (await client.get("/workflow/questions")).json() == []
    assert (await client.get(f"/workflow/runs/{run}")).json()["asks"] is None
    second = await client.post(f"/workflow/runs/{run}/answer", json={"answer": "late"})
    is_error(second, 409, "LEX_ERR_WF_151", "does not wait")


async def test_what_can_be_submitted_is_listed_and_pipelines_and_sagas_run(client, fleet):
    known = (await client.get("/workflow/orchestrations")).json()
    kinds = {one["name"]: one["kind"] for one in known}
    assert kinds["order"] == "graph"
    assert (kinds["doubling"], kinds["trip"]) == ("pipeline", "saga")
    async with fleet.working({"*": 2}):
        for name, given in (("doubling", {"pieces": 4}), ("trip", {"number": 3})):
            made = await client.post("/workflow/runs", json={"name": name, "input": given})
            run = (await reached(client, made.json()["run_id"], is_over))["run_id"]
            assert (await client.get(f"/workflow/runs/{run}/state")).json()["status"] == "COMPLETED"


async def test_of_several_questions_the_step_or_the_run_must_be_named(client, fleet):
    made = await client.post("/workflow/runs", json={"name": "both"})
    run = made.json()["run_id"]
    async with fleet.working({"*": 2}):
        await reached(client, run, lambda facts: len(facts["questions"]) == 2)
        asked = (await client.get(f"/workflow/runs/{run}/questions")).json()
        assert {one["step"] for one in asked} == {"left", "right"}
        assert {one["parent_run_id"] for one in asked} == {run}
        listed = (await client.get("/workflow/runs")).json()[0]
        assert (listed["state"], listed["asks"]) == ("waiting", "left?")
        where = f"/workflow/runs/{run}/answer"
        body = is_error(await client.post(where, json={"answer": 1}), 409, "LEX_ERR_WF_152")
        assert {one["step"] for one in body["details"]["questions"]} == {"left", "right"}
        unknown = await client.post(where, json={"answer": 1, "step": "middle"})
        assert "'left', 'right'" in is_error(unknown, 409, "LEX_ERR_WF_151", "'middle'")["hint"]
        assert (await client.post(where, json={"answer": 1, "step": "left"})).status_code == 200
        # one is left: it needs no name; a form will do
        assert (await client.post(where, data={"response": "two"})).status_code == 200
        ended = await reached(client, run, is_over)
    assert ended["state"]["output"] == "1 two"


async def test_an_answer_that_does_not_fit_is_refused_and_the_run_still_waits(client, fleet):
    made = await client.post("/workflow/runs", json={"name": "vote"})
    run = made.json()["run_id"]
    async with fleet.working({"*": 1}):
        await reached(client, run, asks)
        wrong = await client.post(f"/workflow/runs/{run}/answer", json={"answer": {"Zoe": True}})
        assert wrong.status_code == 400
        assert "these are missing" in wrong.json()["hint"]
        nothing = await client.post(f"/workflow/runs/{run}/answer", json={})
        assert nothing.status_code == 422
        right = {"a": True, "b": True}
        done = await client.post(f"/workflow/runs/{run}/answer", json={"answer": right})
        assert done.status_code == 200, done.text
        assert (await reached(client, run, is_over))["status"] == "COMPLETED"


async def test_a_handler_that_parks_is_answered_the_same_way(client, fleet):
    submitted = await fleet.engine.submit(PARKING, [NewRun()])
    run = submitted.runs[0]
    async with fleet.working({"*": 2}):

        async def two():
            return len((await client.get(f"/workflow/runs/{run}/questions")).json()) == 2

        await wait_until(two, timeout=GUARD)
        for one in (await client.get("/workflow/questions")).json():
            assert (one["step"], one["prompt"]) == ("pay", "who pays?")
            answer = f"/workflow/runs/{one['run_id']}/answer"
            assert (await client.post(answer, json={"answer": ["me"]})).status_code == 200
        await wait_until(lambda: _parked(fleet, run), timeout=GUARD)
        assert (
            await client.post(f"/workflow/runs/{run}/answer", json={"answer": 0})
        ).status_code == 200

        async def over():
            return (await fleet.engine.run(run)).status == "COMPLETED"

        await wait_until(over, timeout=GUARD)
    children = await fleet.engine.children(run)
    assert [child.status_meta for child in children] == [{"by": ["me"]}] * 2
    refused = await client.get(f"/workflow/runs/{run}/state")
    is_error(refused, 404, "LEX_ERR_WF_173", "no pipeline, graph or saga")
    part = await client.get(f"/workflow/runs/{children[0].run_id}/state")
    is_error(part, 404, "LEX_ERR_WF_173", f"a part of run {run}")


async def _parked(fleet, run):
    return (await fleet.engine.run(run)).parked is not None


async def test_why_a_graph_failed_is_told_without_a_blob_store(client, fleet):
    made = (await client.post("/workflow/runs", json={"name": "order", "input": "x"})).json()
    async with fleet.working({"*": 1}):
        ended = await reached(client, made["run_id"], is_over)
    assert ended["status"] == "FAILED"
    assert "pieces" in ended["error"]
    failures = (await client.get(f"/workflow/run-groups/{made['group_id']}/failures")).json()
    assert [(one["run_id"], one["uri"]) for one in failures] == [(made["run_id"], None)]


async def test_what_is_wrong_with_a_submission_is_told(client):
    unknown = await client.post("/workflow/runs", json={"name": "ordre"})
    body = is_error(unknown, 404, "LEX_ERR_WF_170", "did you mean 'order'?")
    assert "trip" in body["hint"]
    saga = await client.post("/workflow/runs", json={"name": "trip", "input": {"numbr": 1}})
    is_error(saga, 400, "LEX_ERR_WF_131", "number is missing, numbr is not one of its arguments")
    text = await client.post("/workflow/runs", json={"name": "trip", "input": "x"})
    is_error(text, 400, "LEX_ERR_WF_131", "its input is its arguments")
    for wrong in ({}, {"name": "order", "delay": -1}, {"name": "order", "delay": "inf"}):
        assert (await client.post("/workflow/runs", data=wrong)).status_code == 422, wrong
    for path in ("/workflow/runs/77/state", "/workflow/runs/77/questions"):
        is_error(await client.get(path), 404, "LEX_ERR_WF_132")
    lost = await client.post("/workflow/runs/77/answer", json={"answer": 1})
    is_error(lost, 404, "LEX_ERR_WF_132", "no run 77")


async def test_delay_tenant_priority_and_key_reach_the_run(client, fleet):
    given = {"name": "order", "input": {"pieces": 1}, "delay": 3600, "tenant": "t", "priority": 4}
    first = await client.post("/workflow/runs", json={**given, "idempotency_key": "k"})
    again = await client.post("/workflow/runs", json={**given, "idempotency_key": "k"})
    assert first.json()["run_id"] == again.json()["run_id"]
    [run] = (await client.get("/workflow/runs")).json()
    assert (run["state"], run["tenant"], run["priority"]) == ("delayed", "t", 4)
    assert await fleet.engine.claim_next_step("w", "lease") is None


async def test_a_sync_keeps_how_far_a_source_is(client):
    place = "/sync-state/gitea:admin/repo"
    fresh = (await client.get(place)).json()
    assert fresh == {
        "source_id": "gitea:admin/repo",
        "last_commit_sha": None,
        "last_sync_date": None,
        "branch": "main",
        "sync_metadata": {},
    }
    kept = await client.put(
        place, data={"commit_sha": "abc", "metadata": '{"files": 3, "by": "a"}'}
    )
    assert kept.status_code == 200, kept.text
    later = await client.put(
        place, json={"commit_sha": "def", "branch": "next", "metadata": {"files": 4}}
    )
    got = (await client.get(place)).json()
    assert got == later.json()
    assert (got["last_commit_sha"], got["branch"]) == ("def", "next")
    assert got["sync_metadata"] == {"files": 4, "by": "a"}
    assert got["last_sync_date"] > kept.json()["last_sync_date"]
    assert (await client.put(place, data={})).status_code == 422
    assert (await client.put(place, data={"commit_sha": "x", "metadata": "["})).status_code == 422
    is_error(
        await client.put("/sync-state/" + "s" * 300, data={"commit_sha": "x"}),
        422,
        "LEX_ERR_WEB_008",
        "path.source_id: String should have at most 255 characters",
    )
    assert (await client.delete(place)).status_code == 200
    is_error(await client.delete(place), 404, "LEX_ERR_WF_144")
    assert (await client.get(place)).json() == fresh

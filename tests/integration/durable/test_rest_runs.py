"""The REST API of durable runs, on both databases."""

import httpx
import pytest

from lexigram.app import Application
from lexigram.sql import SqlConfig, SqlModule
from lexigram.web import WebHost, WebModule
from lexigram.workflow import WorkflowModule
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable import (
    LifeCycleEvent,
    LifecycleHandler,
    NewRun,
    RunPlan,
    StepPlan,
)
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.web.runs import runs

pytestmark = pytest.mark.anyio

API = "http://localhost/api/v1"
SEVEN = {
    *("total_runs", "completed", "running", "pending", "failed"),
    *("average_duration", "group_status"),
}
WORKFLOW = """
id: tiny
name: Tiny Workflow
meta: {}
item_steps:
  parse:
    name: read it
    retries: 2
    method: echo
    parameters: {}
  store:
    name: keep it
    method: echo
    resource_key: "K"
    parameters: {}
lifecycle_events: null
"""
PARAMS = """
id: mine
name: Mine
meta: {}
config:
  store:
    data_dir: shelf
"""
PLAN = RunPlan(
    workflow_id="tiny",
    steps=[
        StepPlan(name="read it", step_type="parse", handler="echo"),
        StepPlan(name="keep it", step_type="store", handler="echo", resource_key="K"),
    ],
)


async def echo(run_step, step_params):
    return dict(step_params)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def database(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def app(database, tmp_path):
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "tiny.yaml").write_text(WORKFLOW)
    durable = DurableConfig(
        workflow_dir=str(tmp_path / "workflows"),
        param_dir=str(tmp_path / "params"),
        user_param_dir=str(tmp_path / "user"),
        default_workflow_id="tiny",
    )
    modules = [
        SqlModule.configure(SqlConfig(url=database.config.url)),
        WorkflowModule.stub(WorkflowConfig(durable=durable), step_handlers={"echo": echo}),
        WebModule.stub(routers=[runs()]),
    ]
    async with Application("rest", modules=modules) as app:
        yield app


@pytest.fixture
async def client(app):
    transport = httpx.ASGITransport(app=app.container.get(WebHost).asgi)
    async with httpx.AsyncClient(transport=transport, base_url=API) as client:
        yield client


@pytest.fixture
def engine(app):
    return app.container.get(DurableFleet).engine


async def failed_group(engine):
    group = await engine.submit(PLAN, [NewRun(batch_id=3), NewRun(batch_id=3)], name="two")
    step = await engine.claim_next_step("w", "lease-1")
    await engine.error_step(step.id, "lease-1", "no such page")
    return group


def is_error(answer, status, text=""):
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert {"error", "code"} <= set(body), body
    assert text in body["error"]
    return body


async def test_groups_have_both_spellings_and_the_seven_figures(client, engine):
    group = await failed_group(engine)
    for name in ("run-groups", "run_groups"):
        listed = (await client.get(f"/workflow/{name}")).json()
        assert [item["id"] for item in listed] == [group.group_id]
        one = (await client.get(f"/workflow/{name}/{group.group_id}")).json()
        assert (one["name"], one["status"], one["total_runs"]) == ("two", "RUNNING", 2)
        stats = (await client.get(f"/workflow/{name}/{group.group_id}/stats")).json()
        assert set(stats) == SEVEN
        assert (stats["failed"], stats["pending"], stats["group_status"]) == (1, 1, "RUNNING")
    assert (await client.get("/workflow/run-groups", params={"batch_id": 4})).json() == []


async def test_runs_are_listed_paged_and_shown_with_their_steps(client, engine):
    group = await failed_group(engine)
    everything = (await client.get("/workflow/")).json()
    assert [item["id"] for item in everything] == sorted(group.runs, reverse=True)
    assert "steps" not in everything[0]
    page = (await client.get("/workflow/", params={"page": 2, "rows_per_page": 1})).json()
    assert [item["id"] for item in page.pop("items")] == [min(group.runs)]
    assert page == {"total": 2, "page": 2, "rows_per_page": 1, "total_pages": 2}
    failed = (await client.get("/workflow/by-status", params={"status": "FAILED"})).json()
    assert len(failed) == 1
    run = (await client.get(f"/workflow/runs/{failed[0]['id']}")).json()
    assert [step["status"] for step in run["steps"]] == ["FAILED", "CANCELLED"]
    assert run["steps"][0]["status_message"] == "no such page"
    with_steps = (await client.get("/workflow/", params={"include_steps": True})).json()
    assert len(with_steps[0]["steps"]) == 2
    of_batch = (await client.get("/workflow/runs", params={"batch_id": 3})).json()
    assert len(of_batch) == 2
    steps = (await client.get("/workflow/steps", params={"status": "FAILED"})).json()
    assert [step["workflow_step_name"] for step in steps] == ["read it"]


@pytest.mark.parametrize("how", ["form", "json", "query"])
async def test_a_retry_takes_its_group_from_a_form_json_or_the_query(client, engine, how):
    group = await failed_group(engine)
    given = {"run_group_id": group.group_id}
    form = {k: str(v) for k, v in given.items()}
    options = {"form": {"data": form}, "json": {"json": given}, "query": {"params": form}}[how]
    answer = await client.post("/workflow/retry", **options)
    assert (answer.status_code, answer.json()["runs"]) == (201, 1)
    assert (await engine.stats(group.group_id)).failed == 0


async def test_runs_are_paused_resumed_and_cancelled(client, engine):
    group = await engine.submit(PLAN, [NewRun(), NewRun()])
    aim = {"run_group_id": group.group_id}
    assert (await client.post("/workflow/pause", json=aim)).json()["runs"] == 2
    assert (await client.post("/workflow/resume", json=aim)).json()["runs"] == 2
    one = {"run_id": group.runs[0]}
    assert (await client.post("/workflow/cancel", data=one)).json()["runs"] == 1
    is_error(await client.delete(f"/workflow/run_groups/{group.group_id}"), 409, "not final")
    assert (await client.post("/workflow/cancel", json=aim)).json()["runs"] == 1
    removed = (await client.delete(f"/workflow/run_groups/{group.group_id}")).json()
    assert removed["statistics"]["deleted_runs"] == 2
    is_error(await client.get(f"/workflow/run-groups/{group.group_id}"), 404)


async def test_what_is_not_there_is_404_and_never_200_with_an_error(client):
    for path in (
        "/workflow/run-groups/999",
        "/workflow/run_groups/999/stats",
        "/workflow/runs/999",
        "/workflow/definitions/nothing",
        "/workflow/param-sets/nothing",
        "/stats/durations?run_group_id=999",
        "/stats/step-stats?run_group_id=999",
    ):
        body = is_error(await client.get(path), 404)
        assert body["code"].startswith("LEX_ERR_WF_1")
    for verb in ("retry", "cancel", "pause", "resume"):
        is_error(await client.post(f"/workflow/{verb}", json={"run_group_id": 999}), 404)
        is_error(await client.post(f"/workflow/{verb}", json={"run_id": 999}), 404)
    is_error(await client.delete("/workflow/run-groups/999"), 404)
    is_error(await client.delete("/workflow/param-sets/nothing"), 404)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_wrong_input_is_told_by_its_place(client):
    is_error(await client.get("/workflow/by-status"), 422, "query.status")
    is_error(await client.get("/workflow/by-status", params={"status": "DONE"}), 422, "status")
    is_error(await client.get("/workflow/", params={"page": 0}), 422, "query.page")
    is_error(await client.get("/workflow/runs/seven"), 422, "path.run_id")
    is_error(await client.post("/workflow/retry"), 422, "give run_group_id or run_id")
    both = {"run_group_id": 1, "run_id": 1}
    is_error(await client.post("/workflow/retry", json=both), 422, "give run_group_id or run_id")
    headers = {"content-type": "application/json"}
    answer = await client.post("/workflow/retry", content=b"[1]", headers=headers)
    is_error(answer, 400, "no JSON object")
    answer = await client.post("/workflow/retry", content=b"{", headers=headers)
    is_error(answer, 400, "not JSON")
    headers = {"content-type": "multipart/form-data"}
    is_error(await client.post("/workflow/retry", content=b"x", headers=headers), 400, "boundary")


async def test_definitions_and_parameter_sets(client, engine):
    assert (await client.get("/workflow/definitions")).json()[-1] == {
        "id": "tiny",
        "name": "Tiny Workflow",
    }
    one = (await client.get("/workflow/definitions/tiny")).json()
    assert [step["key"] for step in one["item_steps"]] == ["parse", "store"]
    made = await client.post("/workflow/param-sets", data={"yaml_content": PARAMS})
    assert (made.status_code, made.json()["id"]) == (201, "mine")
    is_error(await client.post("/workflow/param-sets", json={"yaml_content": PARAMS}), 409)
    wrong = {"yaml_content": PARAMS.replace("config:", "confg:")}
    is_error(await client.post("/workflow/param_sets", json=wrong), 400, "confg")
    is_error(await client.post("/workflow/param-sets", json={}), 422, "yaml_content")
    by_target = (await client.get("/workflow/param_sets/target/shelf")).json()
    assert [item["id"] for item in by_target] == ["mine"]
    plan = RunPlan(workflow_id="tiny", param_id="mine", steps=PLAN.steps)
    group = await engine.submit(plan, [NewRun()])
    is_error(await client.delete("/workflow/param-sets/mine"), 403, "used by")
    await engine.cancel(group_id=group.group_id)
    await client.delete(f"/workflow/run-groups/{group.group_id}")
    assert (await client.delete("/workflow/param-sets/mine")).status_code == 200
    is_error(await client.get("/workflow/param-sets/mine"), 404)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_an_upload_with_a_handler_outside_the_allow_list_is_refused(client):
    evil = WORKFLOW.replace("id: tiny", "id: evil").replace("method: echo", "method: os.system")
    body = is_error(await client.post("/workflow/definitions", json={"yaml_content": evil}), 400)
    assert "handler_prefixes" in body["error"]
    fine = WORKFLOW.replace("id: tiny", "id: mine")
    made = await client.post("/workflow/definitions", json={"yaml_content": fine})
    assert made.status_code == 201, made.text


async def test_locks_and_workers_are_seen_and_a_lock_can_be_taken_away(client, engine):
    async with engine.hold_lock("K"):
        [lock] = (await client.get("/workflow/locks")).json()
        assert (lock["resource_key"], lock["holder_kind"]) == ("K", "cli")
        released = await client.post("/workflow/locks/release", json={"resource_key": "K"})
        assert released.json()["released"] is True
    again = await client.post("/workflow/locks/release", json={"resource_key": "K"})
    assert again.json()["released"] is False
    await engine.store.heartbeat("w")
    assert [one["id"] for one in (await client.get("/workflow/workers")).json()] == ["w"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_everything_is_in_openapi_with_a_summary_and_a_tag(client):
    schema = (await client.get("http://localhost/openapi.json")).json()
    paths = {path: item for path, item in schema["paths"].items() if path.startswith("/api/v1")}
    assert len(paths) >= 18
    for item in paths.values():
        for operation in item.values():
            assert operation["summary"]
            assert operation["tags"]
            assert "404" in operation["responses"]
            ok = next(
                operation["responses"][code]
                for code in ("200", "201")
                if code in operation["responses"]
            )
            assert ok["content"]["application/json"]["schema"]
    retry = paths["/api/v1/workflow/retry"]["post"]["requestBody"]["content"]
    assert set(retry) == {"application/json", "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "", "image/png"])
async def test_json_that_is_not_called_json_changes_nothing(client, engine, kind):
    group = await engine.submit(PLAN, [NewRun()])
    body, headers = b'{"run_id": %d}' % group.runs[0], {"content-type": kind} if kind else {}
    answer = await client.post("/workflow/cancel", content=body, headers=headers)
    assert is_error(answer, 415, repr(kind.partition(";")[0]))["code"] == "LEX_ERR_WF_163"
    assert (await client.get(f"/workflow/runs/{group.runs[0]}")).json()["status"] == "PENDING"
    for name in ("application/json", "application/json; charset=utf-8", "application/ld+json"):
        answer = await client.post("/workflow/cancel", content=body, headers={"content-type": name})
        assert answer.status_code == 200
    assert (await client.get(f"/workflow/runs/{group.runs[0]}")).json()["status"] == "CANCELLED"


@pytest.mark.parametrize(
    "browser",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
async def test_a_page_of_another_site_cancels_nothing(client, engine, browser):
    group = await engine.submit(PLAN, [NewRun()])
    target = {"run_id": str(group.runs[0])}
    for sent in ({"data": target}, {"json": target}, {"params": target}, {"files": target}):
        answer = await client.post("/workflow/cancel", headers=browser, **sent)
        assert (answer.status_code, answer.json()["code"]) == (403, "LEX_ERR_WEB_012")
    assert (await client.get(f"/workflow/runs/{group.runs[0]}")).json()["status"] == "PENDING"


async def test_a_handler_that_no_worker_has_is_told_by_stats_and_the_list_of_them(client, engine):
    plan = RunPlan(
        workflow_id="w", steps=[StepPlan(name="a", step_type="parse", handler="shop.absent")]
    )
    group = await engine.submit(plan, [NewRun()])
    [kind] = await engine.store.kinds()
    await engine.store.heartbeat("w", (), [kind.id])
    stats = (await client.get(f"/workflow/run-groups/{group.group_id}/stats")).json()
    message = "no worker for handler shop.absent (pool parse)"
    assert stats["problems"] == [message]
    [missing] = (await client.get("/workflow/workers/missing")).json()
    assert missing | {"waits_since": ""} == {
        "handler": "shop.absent",
        "pool": "parse",
        "event": None,
        "waits_since": "",
        "message": message,
    }
    await engine.store.heartbeat("other")
    assert (await client.get("/workflow/workers/missing")).json() == []


async def test_a_lifecycle_handler_that_no_worker_has_is_in_the_stats_and_the_list_of_them(
    client, engine
):
    plan = RunPlan(
        workflow_id="w",
        steps=[StepPlan(name="a", step_type="parse", handler="echo")],
        lifecycle={
            LifeCycleEvent.GROUP_END: [LifecycleHandler(name="notify", handler="shop.notify")]
        },
    )
    group = await engine.submit(plan, [NewRun()])
    step = await engine.claim_next_step("w", "L")
    assert await engine.complete_step(step.id, "L")
    await engine.store.heartbeat("w", lacks_handlers=["shop.notify"])
    stats = (await client.get(f"/workflow/run-groups/{group.group_id}/stats")).json()
    message = "no worker for handler shop.notify (event group_end)"
    assert (stats["group_status"], stats["problems"]) == ("COMPLETED", [message])
    [missing] = (await client.get("/workflow/workers/missing")).json()
    assert missing | {"waits_since": ""} == {
        "handler": "shop.notify",
        "pool": None,
        "event": "group_end",
        "waits_since": "",
        "message": message,
    }
    await engine.store.heartbeat("other")
    assert (await client.get("/workflow/workers/missing")).json() == []

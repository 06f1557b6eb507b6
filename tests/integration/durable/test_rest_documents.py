"""Batches and documents over REST, on both databases: bring, start, work, look, remove."""

import hashlib
import json

import httpx
import pytest

from lexigram.app import Application
from lexigram.blobs import BlobConfig, BlobModule
from lexigram.contracts.workflow.durable import DurableRunsProtocol, RunStatus
from lexigram.sql import SqlConfig, SqlModule
from lexigram.testing import wait_until
from lexigram.web import WebHost, WebModule
from lexigram.workflow import WorkflowModule
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.web.contributor import DurableRouteContributor

pytestmark = pytest.mark.anyio

API = "http://localhost/api/v1"
WORKFLOW = """
id: tiny
name: Tiny Workflow
meta: {}
item_steps:
  validate: {name: check it, method: look, parameters: {}}
lifecycle_events:
  item_end:
    - {name: note it, method: note, parameters: {}}
"""


async def look(doc):
    return {"size": doc.file_size, "uri": doc.uri}


async def note(workflow_run):
    return {"run": workflow_run.id}


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def database(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def app(database, tmp_path):
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "tiny.yaml").write_text(WORKFLOW)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.txt").write_text("from the inbox")
    (tmp_path / "secret.txt").write_text("not for clients")
    durable = DurableConfig(
        workflow_dir=str(tmp_path / "workflows"),
        param_dir=str(tmp_path / "params"),
        user_param_dir=str(tmp_path / "user"),
        default_workflow_id="tiny",
        input_dirs=(str(tmp_path / "inbox"),),
        poll_interval=0.1,
    )
    modules = [
        SqlModule.configure(SqlConfig(url=database.config.url)),
        BlobModule.configure(BlobConfig(root=str(tmp_path / "blobs"))),
        WorkflowModule.stub(
            WorkflowConfig(durable=durable), step_handlers={"look": look, "note": note}
        ),
        WebModule.stub(contributors=[DurableRouteContributor()]),
    ]
    async with Application("rest", modules=modules) as app:
        assert app.container.get(DurableRunsProtocol) is app.container.get(DurableFleet).runs
        yield app


@pytest.fixture
async def client(app):
    host = app.container.get(WebHost)
    transport = httpx.ASGITransport(app=host.asgi)
    assert host.left_out == ()
    async with httpx.AsyncClient(transport=transport, base_url=API) as client:
        yield client


async def batch_of(client, source="shelf"):
    made = await client.post("/batch/", data={"source": source, "name": "first"})
    assert made.status_code == 201, made.text
    return made.json()["batch_id"]


async def bring(client, batch_id, uri, content, **more):
    given = {"source_uri": uri, "source": "shelf", "batch_id": str(batch_id), **more}
    return await client.post(
        "/document/ingest-document",
        data=given,
        files={"file": ("a.bin", content, "application/pdf")},
    )


def is_error(answer, status, text=""):
    assert answer.status_code == status, answer.text
    assert text in answer.json()["error"], answer.text
    assert answer.json()["code"]


async def test_a_document_goes_all_the_way(client, app):
    batch_id = await batch_of(client)
    # every byte, and what looks like the end of a part
    content = bytes(range(256)) + b"\r\n--boundary\r\n\r\n" + b"x" * 1000 + b"\r\n"
    brought = await bring(client, batch_id, "a.pdf", content, doc_meta='{"title": "A"}')
    assert brought.status_code == 201, brought.text
    body = brought.json()
    assert body["document_hash"] == "sha256-" + hashlib.sha256(content).hexdigest()
    assert (body["version"], body["action"], body["batch_id"]) == (1, "create", batch_id)
    [uri] = (await client.get("/document/", params={"batch_id": batch_id})).json()
    assert (uri["mime_type"], uri["file_size"]) == ("application/pdf", len(content))
    assert uri["doc_meta"] == {"title": "A"}
    given = {"batch_id": str(batch_id), "workflow_definition_id": "tiny"}
    started = await client.post("/batch/start-workflows", data=given)
    assert started.status_code == 201, started.text
    assert started.json()["workflows"] == 1
    group = started.json()["run_group"]
    again = (await client.post("/batch/start-workflows", data=given)).json()
    assert (again["workflows"], again["skipped"]) == (0, 1)
    fleet = app.container.get(DurableFleet)
    async with fleet.working({"*": 2}):

        async def ended():
            done = (await fleet.engine.stats(group)).group_status is RunStatus.COMPLETED
            return done and await fleet.overview.lifecycle(group_id=group)

        await wait_until(ended)
    status = (await client.get("/batch/status", params={"batch_id": batch_id})).json()
    assert (status["workflow_count"], status["parsed"], status["remaining"]) == (
        {"COMPLETED": 1},
        1,
        0,
    )
    assert status["batch"]["completed_date"]
    [run] = (await client.get("/workflow/", params={"include_doc_info": True})).json()
    assert run["document"]["uri"] == "a.pdf"
    [step] = (await client.get(f"/batch/{batch_id}/steps")).json()
    assert step["status_meta"] == {"size": len(content), "uri": "a.pdf"}
    [event] = (await client.get(f"/workflow/runs/{run['id']}/lifecycle")).json()
    assert (event["event"], event["handler_name"]) == ("item_end", "note it")
    assert (await client.get(f"/workflow/run-groups/{group}/failures")).json() == []
    aim = {"uri": "a.pdf", "source": "shelf"}
    removed = (await client.request("DELETE", "/document/by-uri", params=aim)).json()
    assert removed["statistics"]["deleted_runs"] == 1
    is_error(await client.request("DELETE", "/document/by-uri", params=aim), 404)


@pytest.mark.parametrize("field", ["workflow_definition_id", "workflow_definiton_id"])
async def test_one_document_is_started_by_both_spellings_and_not_twice(client, field):
    batch_id = await batch_of(client)
    doc = (await bring(client, batch_id, "a.txt", b"a")).json()["document_hash"]
    given = {"doc_id": doc, field: "tiny"}
    made = await client.post("/workflow/", data=given)
    assert made.status_code == 201, made.text
    assert (made.json()["doc_id"], made.json()["workflow_definition_id"]) == (doc, "tiny")
    assert [step["status"] for step in made.json()["steps"]] == ["PENDING"]
    is_error(await client.post("/workflow/", json=given), 409, "already")
    assert (await client.post("/workflow/", json={**given, "again": True})).status_code == 201
    is_error(await client.post("/workflow/", json={**given, field: "nothing"}), 404, "nothing")
    is_error(await client.post("/workflow/", json={"doc_id": "sha256-0"}), 404, "sha256-0")
    is_error(await client.post("/workflow/", json={}), 422, "doc_id")


async def test_delay_tenant_priority_name_and_key_reach_the_runs_of_documents(client, app):
    batch_id = await batch_of(client)
    doc = (await bring(client, batch_id, "a.txt", b"a")).json()["document_hash"]
    more = {"delay": 3600, "tenant": "t", "priority": 4, "name": "later"}
    one = {"doc_id": doc, **more, "idempotency_key": "k-1"}
    first = await client.post("/workflow/", json=one)
    assert first.status_code == 201, first.text
    assert (first.json()["state"], first.json()["tenant"]) == ("delayed", "t")
    assert (await client.post("/workflow/", json=one)).json()["id"] == first.json()["id"]
    # the key of another call does not make it the same call
    other = await client.post("/workflow/", json={**one, "idempotency_key": "k-2"})
    is_error(other, 409, "already")
    many = {"batch_id": batch_id, "again": True, **more, "idempotency_key": "k-3"}
    started = (await client.post("/batch/start-workflows", json=many)).json()
    repeated = (await client.post("/batch/start-workflows", json=many)).json()
    assert started["run_group"] == repeated["run_group"] != first.json()["run_group_id"]
    assert (started["workflows"], repeated["workflows"]) == (1, 0)
    listed = (await client.get("/workflow/")).json()
    assert {(run["state"], run["tenant"], run["priority"]) for run in listed} == {
        ("delayed", "t", 4)
    }
    groups = (await client.get("/workflow/run-groups")).json()
    assert [group["name"] for group in groups] == ["later", "later"]
    fleet = app.container.get(DurableFleet)
    assert await fleet.engine.claim_next_step("w", "lease") is None
    for wrong in (-1, "soon"):
        refused = await client.post("/workflow/", json={"doc_id": doc, "delay": wrong})
        is_error(refused, 422, "delay")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_files_of_this_machine_only_from_the_folders_that_are_allowed(client, tmp_path):
    batch_id = await batch_of(client)
    given = {"source_uri": "x", "source": "shelf", "batch_id": batch_id}
    inside = {**given, "input_uri": f"file://{tmp_path}/inbox/a.txt"}
    assert (await client.post("/document/ingest-document", json=inside)).status_code == 201
    outside = {**given, "input_uri": f"{tmp_path}/inbox/../secret.txt"}
    is_error(await client.post("/document/ingest-document", json=outside), 400, "outside")
    missing = {**given, "input_uri": f"{tmp_path}/inbox/b.txt"}
    is_error(await client.post("/document/ingest-document", json=missing), 400, "b.txt")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_wrong_documents_are_told(client):
    batch_id = await batch_of(client)
    is_error(await bring(client, 999, "a", b"x"), 404, "999")
    is_error(await bring(client, batch_id, "a", b"x", doc_meta="{"), 422, "doc_meta")
    both = {"source_uri": "a", "source": "s", "batch_id": batch_id}
    is_error(await client.post("/document/ingest-document", json=both), 422, "file or input_uri")
    cut = b"--b\r\nContent-Disposition: form-data; name=source\r\n\r\nshelf"
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = await client.post("/document/ingest-document", content=cut, headers=headers)
    is_error(answer, 400, "ends in the middle")
    is_error(await client.get("/document/"), 400, "source or batch_id")
    is_error(await client.get("/document/", params={"batch_id": 999}), 404)
    is_error(await client.get("/batch/status", params={"batch_id": 999}), 404)
    is_error(await client.get("/batch/999/steps"), 404)
    is_error(await client.post("/batch/start-workflows", data={"batch_id": 999}), 404)
    is_error(await client.post("/batch/", json={"name": "x"}), 422, "source")


async def test_a_source_is_compared_in_the_seeds_words(client):
    batch_id = await batch_of(client)
    await bring(client, batch_id, "a", b"a")
    await bring(client, batch_id, "b", b"b")
    await bring(client, batch_id, "gone", b"c")
    have = {"a": hashlib.sha256(b"a").hexdigest(), "b": "sha256:00", "new": "sha256-11"}
    given = {"source": "shelf", "hashes": json.dumps(have)}
    found = (await client.post("/source-status", data=given)).json()
    assert {uri: one["status"] for uri, one in found.items()} == {
        "a": "matched",
        "b": "mismatch",
        "new": "new",
    }
    stale = {"source": "shelf", "hashes": have, "delete_stale": True}
    answer = (await client.post("/source-status", json=stale)).json()
    assert (answer["deleted_count"], set(answer["status"])) == (1, {"a", "b", "new"})
    assert len((await client.get("/document/", params={"source": "shelf"})).json()) == 2
    is_error(await client.post("/source-status", data={**given, "hashes": "[]"}), 422, "hashes")
    cleaned = await client.post("/document/cleanup-orphans")
    assert cleaned.json()["statistics"]["deleted_documents"] == 0
    versions = (
        await client.get("/document/history", params={"uri": "a", "source": "shelf"})
    ).json()
    assert [one["action"] for one in versions] == ["create"]


async def test_batches_are_listed(client):
    first, second = await batch_of(client), await batch_of(client, "other")
    listed = (await client.get("/batch/")).json()
    assert [one["id"] for one in listed] == [second, first]
    one = (await client.get(f"/batch/{first}")).json()
    assert (one["source"], one["name"], one["completed_date"]) == ("shelf", "first", None)

"""What is out of bounds is 422 with the name of the field over REST; on both databases."""

import httpx
import pytest

from lexigram.app import Application
from lexigram.blobs import BlobConfig, BlobModule
from lexigram.contracts.workflow.durable import RunStatus
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
name: Tiny
item_steps:
  parse: {method: echo}
"""
BIG = 2**63
START = {"batch_id": 1, "workflow_definition_id": "tiny"}
LISTS = [
    *("/workflow/", "/workflow/runs", "/workflow/run-groups", "/workflow/steps"),
    *("/workflow/questions", "/batch/", "/workflow/by-status?status=FAILED"),
]
TEXTS = {"NUL": "a\0b", "long": "x" * 256, "empty": ""}


async def echo(step_params):
    return dict(step_params)


@pytest.fixture(
    params=[
        "sqlite_url",
        pytest.param("postgres_url", marks=pytest.mark.service("postgresql")),
    ]
)
def url(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def app(url, tmp_path):
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "tiny.yaml").write_text(WORKFLOW)
    durable = DurableConfig(
        workflow_dir=str(tmp_path / "workflows"),
        param_dir=str(tmp_path / "params"),
        user_param_dir=str(tmp_path / "user"),
        default_workflow_id="tiny",
        poll_interval=0.1,
    )
    modules = [
        SqlModule.configure(SqlConfig(url=url)),
        BlobModule.configure(BlobConfig(root=str(tmp_path / "blobs"))),
        WorkflowModule.stub(WorkflowConfig(durable=durable), step_handlers={"echo": echo}),
        WebModule.stub(contributors=[DurableRouteContributor()]),
    ]
    async with Application("limits", modules=modules) as app:
        yield app


@pytest.fixture
async def client(app):
    transport = httpx.ASGITransport(app=app.container.get(WebHost).asgi)
    async with httpx.AsyncClient(transport=transport, base_url=API) as client:
        yield client


@pytest.fixture
def fleet(app):
    return app.container.get(DurableFleet)


def is_refused(answer, field):
    assert answer.status_code == 422, answer.text
    assert field in answer.json()["error"], answer.text
    return True


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("delay", value) for value in (-1, 1e300, 3_153_600_001)],
        *[("priority", value) for value in (2**31, 2**63, -(2**31) - 1, 2**63 - 1)],
        *[("batch_id", value) for value in (BIG, 2**64, -1)],
        *[("idempotency_key", value) for value in TEXTS.values()],
        *[("tenant", value) for value in TEXTS.values()],
        *[("name", value) for value in TEXTS.values()],
    ],
)
async def test_a_start_out_of_bounds_is_422_and_names_the_field(client, field, value):
    for path in ("/batch/start-workflows", "/workflow/"):
        if field == "batch_id" and path == "/workflow/":
            continue
        body = {**START, "doc_id": "sha256-1", field: value}
        assert is_refused(await client.post(path, json=body), f"body.{field}")
    if field not in ("batch_id", "name"):
        body = {"name": "order", field: value}
        assert is_refused(await client.post("/workflow/runs", json=body), f"body.{field}")


@pytest.mark.parametrize("number", [BIG, 2**64, 2**200, -1])
async def test_an_id_or_offset_beyond_64_bits_is_422_and_names_the_field(client, number):
    for path in LISTS:
        if "by-status" not in path and path != "/workflow/":
            assert is_refused(await client.get(path, params={"offset": number}), "query.offset")
        else:
            paged = {"status": "FAILED", "page": number}
            assert is_refused(await client.get(path, params=paged), "query.page")
    for path in ("runs", "run-groups"):
        assert is_refused(await client.get(f"/workflow/{path}/{number}"), "path.")
    for path in ("/workflow/", "/workflow/runs", "/workflow/run-groups", "/document/"):
        found = await client.get(path, params={"batch_id": number})
        assert is_refused(found, "query.batch_id")
    for order in ("retry", "cancel", "pause", "resume"):
        for name in ("run_id", "run_group_id"):
            refused = await client.post(f"/workflow/{order}", json={name: number})
            assert is_refused(refused, f"body.{name}")


async def test_the_last_ids_offsets_and_pages_are_answered(client):
    last = BIG - 1
    for path in LISTS[1:6]:
        answer = await client.get(path, params={"offset": last, "limit": 10_000})
        assert (answer.status_code, answer.json()) == (200, [])
    page = {"page": last // 1000, "rows_per_page": 1000}
    assert (await client.get("/workflow/", params=page)).json()["items"] == []
    assert (await client.get(f"/workflow/runs/{last}")).status_code == 404
    assert (await client.get("/batch/status", params={"batch_id": last})).status_code == 404


@pytest.mark.parametrize(
    "value", ["[" * 300 + "]" * 300, '{"a": 1e400}', '{"a": NaN}', '"\\ud800"', "1" * 5000]
)
async def test_an_answer_or_input_that_no_json_holds_is_the_fault_of_the_caller(client, value):
    for path, field in (("/workflow/runs/1/answer", "answer"), ("/workflow/runs", "input")):
        body = f'{{"name": "order", "{field}": {value}}}'
        answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert 400 <= answer.status_code < 500, answer.text
        assert answer.json()["error"]


async def test_a_batch_counts_documents_and_not_their_runs(client, fleet):
    batch = (await client.post("/batch/", json={"source": "shelf"})).json()["batch_id"]
    for number in range(4):
        await client.post(
            "/document/ingest-document",
            data={"source_uri": f"{number}.txt", "source": "shelf", "batch_id": str(batch)},
            files={"file": ("a.txt", str(number).encode(), "text/plain")},
        )
    given = {"batch_id": batch, "workflow_definition_id": "tiny", "again": True}
    for _ in range(3):
        assert (await client.post("/batch/start-workflows", json=given)).json()["workflows"] == 4
    async with fleet.working({"*": 4}):

        async def ended():
            groups = (await fleet.overview.groups()).items
            return all(group["status"] == RunStatus.COMPLETED for group in groups)

        await wait_until(ended)
    status = (await client.get("/batch/status", params={"batch_id": batch})).json()
    assert (status["document_count"], status["parsed"], status["workflows"]) == (4, 4, 12)

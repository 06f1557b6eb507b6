"""Every operation of the OpenAPI document, with values that fit it and values that do not.

No response is a 5xx, and none shows a stack trace or SQL. `make chaos` sends more of them, with
another seed each time.
"""

import json
import os
import random
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager, closing
from urllib.parse import quote

import anyio.to_thread
import httpx
import pytest

from lexigram.ai.workers.vectors import VectorConfig, VectorStores
from lexigram.ai.workers.vectors.router import LanceDbRouteContributor
from lexigram.app import Application
from lexigram.blobs import BlobConfig, BlobModule
from lexigram.config import SecretStr
from lexigram.contracts.workflow.durable import RunDocument
from lexigram.di import Provider
from lexigram.sql import SqlConfig, SqlModule
from lexigram.web import WebConfig, WebHost, WebModule
from lexigram.workflow import WorkflowModule
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable.config import DurableConfig
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.web.contributor import DurableRouteContributor

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

KEY = "k" * 32
KEY_HEADER = {"X-API-Key": KEY}
LEAKS = re.compile(
    r"Traceback|File \"|site-packages|OperationalError|query argument|SELECT .* FROM"
    r"|INSERT INTO|UPDATE .* SET|lexigram_durable_"
)
HOSTILE = [2**63, -(2**63) - 1, 2**200, 1e300, "a\0b", "x" * 20_000, "nan", [[[]]]]
PLAUSIBLE = {
    "db": "manuals",
    "name": "tiny",
    "source": "s",
    "uri": "0.txt",
    "status": "FAILED",
    "workflow_definition_id": "tiny",
    "filter": "{}",
    "collection": "documents",
    "param_id": None,
    "idempotency_key": None,
    "tenant": None,
    "run_group_id": None,
}
WORKFLOW = """
id: tiny
name: Tiny
item_steps:
  parse: {method: echo}
"""
SIGNS_OF_LIFE = re.compile(r"heartbeat|checkin|worker|\.db(-wal|-shm)?$|\.lock$")
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
EXAMPLES, SEED = (40, random.randrange(2**32)) if FULL else (3, 15)


@pytest.fixture(
    params=[
        "sqlite_url",
        pytest.param("postgres_url", marks=pytest.mark.service("postgresql")),
    ]
)
def url(request):
    return request.getfixturevalue(request.param)


async def echo(step_params):
    return dict(step_params)


@asynccontextmanager
async def serving(url, folder):
    """The address of a host with all routes, some runs and some vectors."""

    class Stores(Provider):
        async def register(self, container):
            container.singleton(VectorStores, VectorStores(VectorConfig(path=str(folder / "rag"))))

    for name in ("workflows", "inbox"):
        (folder / name).mkdir()
    (folder / "workflows" / "tiny.yaml").write_text(WORKFLOW)
    durable = DurableConfig(
        workflow_dir=str(folder / "workflows"),
        param_dir=str(folder / "params"),
        user_param_dir=str(folder / "user"),
        default_workflow_id="tiny",
        input_dirs=(str(folder / "inbox"),),
    )
    modules = [
        SqlModule.configure(SqlConfig(url=url)),
        BlobModule.configure(BlobConfig(root=str(folder / "blobs"))),
        WorkflowModule.stub(WorkflowConfig(durable=durable), step_handlers={"echo": echo}),
        WebModule.stub(
            WebConfig(port=0, api_keys={"fuzz": SecretStr(KEY)}),
            contributors=[DurableRouteContributor(), LanceDbRouteContributor()],
        ),
    ]
    async with Application("fuzz", modules=modules, providers=[Stores]) as app:
        await app.container.get(VectorStores).at("manuals").add_texts(["one"], [[1.0, 0.0]])
        documents = [RunDocument(uri=f"{n}.txt", source="s", content=b"x") for n in range(3)]
        await app.container.get(DurableFleet).runs.submit(documents)
        async with app.container.get(WebHost).serving() as address:
            yield address.url


def hostile_requests(document):
    """Each parameter and each field of a body in turn with values that no database holds.

    Whatever bounds the document has: a route without bounds is found too.
    """
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parameters = operation.get("parameters", ())
            bodies = operation.get("requestBody", {}).get("content", {})
            schema = bodies.get("application/json", {}).get("schema", {})
            fields = {name: PLAUSIBLE.get(name, 1) for name in schema.get("properties", ())}
            names = [(one["in"], one["name"]) for one in parameters if one["in"] != "header"]
            for place, name in [*names, *(("body", name) for name in fields)]:
                for value in HOSTILE:
                    given = {("body", n): v for n, v in fields.items()}
                    given |= {key: PLAUSIBLE.get(key[1], 1) for key in names}
                    given[place, name] = value
                    url = path
                    for key in names:
                        if key[0] == "path":
                            text = quote(str(given[key]), safe="")
                            url = url.replace(f"{{{key[1]}}}", text)
                    query = {n: str(v) for (p, n), v in given.items() if p == "query"}
                    body = {n: v for (p, n), v in given.items() if p == "body"}
                    yield method.upper(), url, query, body or None


async def fuzz(base, folder, *, examples, header, seed):
    """Statuses with how many responses had them; fails for a 5xx and for a response that leaks."""
    async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
        document = (await client.get("/openapi.json", headers=KEY_HEADER)).json()
    schema, report = folder / "openapi.json", folder / "requests.har"
    schema.write_text(json.dumps(document))
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", str(schema), "--url", base),
        *("--checks", "not_a_server_error", "--phases", "coverage,fuzzing"),
        *("--max-examples", str(examples), "--seed", str(seed), "--continue-on-failure"),
        *("--suppress-health-check", "all", "--warnings", "off", "--no-shrink"),
        # else it sends keys of its own making, and every response is 401
        *("--generation-with-security-parameters", "false"),
        *("--report-har-path", str(report)),
        *(argument for name, value in header.items() for argument in ("-H", f"{name}: {value}")),
    ]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "NO_PROXY": "*"},
            capture_output=True,
            text=True,
            check=False,
        )
    )
    assert done.returncode == 0, done.stdout + done.stderr
    statuses = Counter()
    for entry in json.loads(report.read_text())["log"]["entries"]:
        response = entry["response"]
        statuses[response["status"]] += 1
        found = LEAKS.search(response["content"].get("text") or "")
        assert found is None, (entry["request"]["method"], entry["request"]["url"], found)
    return statuses


@pytest.mark.chaos
async def test_no_request_of_the_document_is_answered_with_a_5xx(tmp_path, url):
    print("schemathesis with --seed", SEED)
    async with serving(url, tmp_path) as base:
        statuses = await fuzz(base, tmp_path, examples=EXAMPLES, header=KEY_HEADER, seed=SEED)
    print(dict(statuses))
    assert statuses.total() > 1000
    # what is sent reaches the routes: some of it fits, much of it is refused by name
    assert statuses[401] == 0
    assert statuses[200] + statuses[201] > statuses.total() // 20
    assert statuses[422] > statuses.total() // 20


async def test_no_parameter_of_the_document_is_answered_with_a_5xx_whatever_it_holds(tmp_path, url):
    async with (
        serving(url, tmp_path) as base,
        httpx.AsyncClient(base_url=base, trust_env=False, headers=KEY_HEADER) as client,
    ):
        document = (await client.get("/openapi.json")).json()
        statuses = Counter()
        for method, path, query, body in hostile_requests(document):
            response = await client.request(method, path, params=query, json=body)
            shown = (method, path[:80], str(query)[:80], str(body)[:300], response.text[:300])
            assert response.status_code < 500, shown
            assert LEAKS.search(response.text) is None, shown
            statuses[response.status_code] += 1
    assert statuses[422] > statuses.total() // 4


def stored(folder, url):
    """All rows of the database and all files, but for signs of life."""
    files = {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
        rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables}
    return {name: value for name, value in (files | rows).items() if not SIGNS_OF_LIFE.search(name)}


async def test_no_get_of_the_document_changes_anything(tmp_path, sqlite_url):
    async with (
        serving(sqlite_url, tmp_path) as base,
        httpx.AsyncClient(base_url=base, trust_env=False, headers=KEY_HEADER) as client,
    ):
        document = (await client.get("/openapi.json")).json()
        before, statuses = stored(tmp_path, sqlite_url), Counter()
        for path, operations in document["paths"].items():
            parameters = [one for each in operations.values() for one in each.get("parameters", ())]
            given = {one["name"]: PLAUSIBLE.get(one["name"], 1) for one in parameters}
            query = {name: value for name, value in given.items() if value is not None}
            answer = await client.get(path.format(**given), params=query)
            statuses[answer.status_code] += 1
        assert stored(tmp_path, sqlite_url) == before
    assert statuses[200] > 10


async def test_without_a_key_nothing_of_the_document_but_the_probes_is_answered(
    tmp_path, sqlite_url
):
    """Refused before any database is asked: one will do."""
    async with serving(sqlite_url, tmp_path) as base:
        statuses = await fuzz(base, tmp_path, examples=1, header={}, seed=15)
    assert statuses[401] > statuses.total() // 2
    assert statuses[201] == 0

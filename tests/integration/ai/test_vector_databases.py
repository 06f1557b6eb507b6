"""The routes and the commands over real databases of vectors."""

import json
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from textwrap import dedent

import anyio
import httpx
import pytest

from lexigram.ai.workers.vectors import VectorConfig, VectorStores, hold_rag_lock, rag_key
from lexigram.ai.workers.vectors.checksum import checksum_file
from lexigram.ai.workers.vectors.router import LanceDbRouteContributor
from lexigram.app import Application
from lexigram.cli.contributors import registry
from lexigram.cli.main import main
from lexigram.config import LexigramConfig
from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.contracts.web import RouteContributorProtocol
from lexigram.di import Provider
from lexigram.sql import Database
from lexigram.sql.locks import SqlResourceLocks
from lexigram.web import WebConfig, WebHost, WebModule


async def fill(stores):
    """Two databases; the first has old versions to remove."""
    for _ in range(5):
        await stores.at("manuals").add_texts(
            ["one", "two", "three"],
            [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
            [
                {"document_id": "d1", "uri": "a.md", "source": "docs"},
                {"document_id": "d1", "uri": "a.md", "source": "docs"},
                {"document_id": "d2", "uri": "b.md", "source": "wiki"},
            ],
            "documents",
        )
    await stores.at("notes").add_texts(["four"], [[1.0, 0.0]])
    await stores.close()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    anyio.run(fill, VectorStores(VectorConfig(path=str(tmp_path / "lancedb"))))
    return tmp_path / "lancedb"


# --- routes ---


@asynccontextmanager
async def serving(stores):
    class Stores(Provider):
        async def register(self, container):
            if stores is not None:
                container.singleton(VectorStores, stores)

    web = WebModule.stub(WebConfig(port=0), contributors=[LanceDbRouteContributor()])
    async with Application("shop", LexigramConfig(), modules=[web], providers=[Stores]) as app:
        host = app.container.get(WebHost)
        async with host.serving() as address:
            base = f"{address.url}/api/v1/lancedb"
            async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
                yield client


@pytest.fixture
def stores(folder):
    return VectorStores(VectorConfig(path=str(folder)))


@pytest.mark.anyio
async def test_databases_are_listed_and_described(stores):
    assert isinstance(LanceDbRouteContributor(), RouteContributorProtocol)
    async with serving(stores) as client:
        listed = (await client.get("/list")).json()
        assert [(row["database"], row["rows"]) for row in listed] == [("manuals", 3), ("notes", 1)]
        info = (await client.get("/info", params={"db": "manuals"})).json()
        (collection,) = info["collections"]
        assert (collection["name"], collection["dimension"], collection["index"]) == (
            "documents",
            2,
            "flat",
        )


@pytest.mark.anyio
async def test_documents_are_paged_and_filtered(stores):
    async with serving(stores) as client:

        async def ids(**query):
            answer = await client.get("/documents", params={"db": "manuals", **query})
            return [(row["document_id"], row["chunks"]) for row in answer.json()]

        assert await ids() == [("d1", 2), ("d2", 1)]
        assert await ids(limit=1, offset=1) == [("d2", 1)]
        assert await ids(filter='{"source": "docs"}') == [("d1", 2)]
        bad = await client.get("/documents", params={"db": "manuals", "filter": "1=1"})
        assert (bad.status_code, bad.json()["code"]) == (400, "LEX_ERR_AIWORK_035")


@pytest.mark.anyio
async def test_a_vacuum_is_posted(stores, folder):
    async with serving(stores) as client:
        answer = await client.post("/vacuum", params={"db": "manuals"})
        assert answer.status_code == 200
        assert answer.json()["freed_bytes"] > 0
        assert await anyio.Path(checksum_file(folder / "manuals")).is_file()


@pytest.mark.anyio
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_get_of_a_vacuum_is_405_and_names_post(stores, folder, method):
    async with serving(stores) as client:
        answer = await client.request(method, "/vacuum", params={"db": "manuals"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        if method == "GET":
            assert answer.json()["detail"] == "GET is not allowed here: use POST"
        assert not await anyio.Path(checksum_file(folder / "manuals")).exists()


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["unknown", "../lancedb/manuals", "/etc"])
async def test_what_is_no_database_is_404(stores, name):
    async with serving(stores) as client:
        for method, path in (("GET", "/info"), ("GET", "/documents"), ("POST", "/vacuum")):
            answer = await client.request(method, path, params={"db": name})
            assert answer.status_code == 404
        assert (await client.get("/info")).status_code == 422


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"db": ""}, "query.db"),
        ({"db": "a" * 256}, "query.db"),
        ({"limit": 1001}, "query.limit"),
        ({"limit": 2**64}, "query.limit"),
        ({"offset": 2**63}, "query.offset"),
        ({"offset": -1}, "query.offset"),
        ({"offset": "9" * 4400}, "query.offset"),
        ({"collection": ""}, "query.collection"),
        ({"collection": "a" * 101}, "query.collection"),
        ({"filter": "1" * 8193}, "query.filter"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_out_of_bounds_is_422_and_names_the_field(stores, query, field):
    async with serving(stores) as client:
        answer = await client.get("/documents", params={"db": "manuals", **query})
        assert answer.status_code == 422
        assert [item["path"] for item in answer.json()["errors"]] == [field]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"db": "a\0b"}, 404),
        ({"db": "𝕏" * 255}, 404),
        ({"db": "\ud800".encode(errors="surrogatepass")}, 404),
        ({"collection": "a\0b"}, 404),
        ({"collection": "../../lancedb/notes/documents"}, 404),
        ({"collection": "𝕏" * 100}, 404),
        ({"offset": 2**63 - 1}, 200),
        ({"filter": "[" * 3000}, 400),
        ({"filter": '{"a":' * 900}, 400),
        ({"filter": '{"a": %s}' % ("9" * 4400)}, 400),
        ({"filter": '{"a": NaN}'}, 400),
        ({"filter": '{"\\u0000": "\\ud800"}'}, None),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_hostile_name_or_filter_is_answered(stores, query, status):
    async with serving(stores) as client:
        for path in ("/documents", "/info"):
            answer = await client.get(path, params={"db": "manuals", **query})
            assert answer.status_code < 500
            if path == "/documents" and status is not None:
                assert answer.status_code == status, answer.text


@pytest.mark.anyio
async def test_a_vacuum_of_a_locked_database_is_409(stores, folder, sqlite_url, monkeypatch):
    monkeypatch.setattr("lexigram.ai.workers.vectors.router._MAX_WAIT", 0.0)
    async with Database(sqlite_url) as database:
        stores.locks = SqlResourceLocks(database)
        async with serving(stores) as client:
            async with hold_rag_lock(folder / "manuals", locks=stores.locks):
                answer = await client.post("/vacuum", params={"db": "manuals"})
            assert answer.status_code == 409


@pytest.mark.anyio
async def test_an_application_without_vector_stores_has_no_such_routes():
    async with serving(None) as client:
        assert (await client.get("/list")).status_code == 404


# --- commands ---


@pytest.fixture
def lex(folder, monkeypatch, capsys):
    """Run ``lexigram lancedb …`` in this process: code, what was printed."""
    point = EntryPoint(
        "lancedb",
        "lexigram.ai.workers.vectors.cli:LanceDbCliContributor",
        "lexigram.cli.contributors",
    )
    monkeypatch.setattr(registry, "_installed", lambda: [point])

    def run(*arguments):
        capsys.readouterr()
        code = main(["lancedb", *arguments])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def test_the_commands_work_without_an_application(lex, folder):
    code, text = lex("list", "--json")
    assert code == 0
    assert [row["database"] for row in json.loads(text)["databases"]] == ["manuals", "notes"]
    code, text = lex("info", "manuals")
    assert (code, "documents" in text) == (0, True)
    assert lex("info", "unknown")[0] == 1
    assert lex("list", "--dir", str(folder / "nowhere"))[0] == 0


def test_a_database_is_verified_by_the_sum_of_its_last_vacuum(lex, folder):
    code, text = lex("verify", "manuals")
    assert (code, "run a vacuum to write it" in text) == (1, True)
    code, text = lex("vacuum", "manuals")
    assert (code, "bytes freed" in text) == (0, True)
    assert lex("verify", "manuals")[0] == 0
    data = next((folder / "manuals" / "documents.lance" / "data").iterdir())
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    code, text = lex("verify", "manuals", "--json")
    assert (code, json.loads(text)["ok"]) == (1, False)


def test_all_are_vacuumed_and_a_broken_one_does_not_stop_the_others(lex, folder):
    assert lex("vacuum-all")[0] == 0
    for path in (folder / "manuals" / "documents.lance" / "_versions").iterdir():
        path.write_bytes(b"rubbish")
    code, text = lex("vacuum-all", "--json")
    outcomes = {row["database"]: row["status"] for row in json.loads(text)["databases"]}
    assert (code, outcomes) == (1, {"manuals": "failed", "notes": "ok"})


APP = """
    from lexigram.ai.workers.vectors import VectorConfig, VectorStores
    from lexigram.app import Application
    from lexigram.contracts.data.locks import ResourceLockProtocol
    from lexigram.di import Provider
    from lexigram.sql import Database
    from lexigram.sql.locks import SqlResourceLocks


    class Stores(Provider):
        async def register(self, container):
            async def stores():
                async with Database({url!r}) as database:
                    yield VectorStores(VectorConfig(), locks=SqlResourceLocks(database))

            container.singleton(VectorStores, factory=stores)


    def app():
        return Application("vectors", providers=[Stores])
"""


def test_a_held_lock_is_exit_code_2_and_force_takes_it(lex, folder, sqlite_url, monkeypatch):
    (folder.parent / "vectors_app.py").write_text(dedent(APP).format(url=sqlite_url))
    (folder.parent / "pyproject.toml").write_text('[tool.lexigram]\napp = "vectors_app:app"\n')
    monkeypatch.syspath_prepend(str(folder.parent))
    key = rag_key(folder / "manuals")

    async def hold():
        async with Database(sqlite_url) as database:
            locks = SqlResourceLocks(database)
            await locks.acquire(key, "stuck", kind=ResourceLockKind.WORKER, ttl=600)

    anyio.run(hold)
    code, text = lex("vacuum", "manuals")
    assert (code, "stuck" in text) == (2, True)
    assert lex("vacuum-all")[0] == 2
    assert lex("vacuum", "manuals", "--force")[0] == 0
    assert lex("vacuum", "manuals")[0] == 0

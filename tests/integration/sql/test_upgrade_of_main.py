"""A database that the main branch filled before the first release: upgraded, complete, continued.

The dumps are in ``tests/samples/databases``; ``fill.py`` there made them. Goes in 1.1, with the
bridges of the migrations.
"""

import sqlite3
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import asyncpg
import pytest
from tests.names import unique_identifier

from lexigram.ai.workers.dlq.store_sql import SqlDeadLetterStore
from lexigram.ai.workers.maintenance.store_sql import SqlRuns
from lexigram.ai.workers.statistics_store import SqlStatistics
from lexigram.app import Application
from lexigram.cache import Cache, SqlCache
from lexigram.cache.store_idempotency import SqlIdempotencyStore
from lexigram.contracts.core.result import Ok
from lexigram.contracts.workflow import ContentCheckpointKey
from lexigram.di import Module, module
from lexigram.queue import TransactionalOutbox
from lexigram.queue.backends.sql import SqlQueue
from lexigram.schedule import ScheduleModule, Scheduler
from lexigram.sql import (
    Database,
    DatabaseOutdatedError,
    DatabaseTooOldError,
    SqlConfig,
    SqlModule,
)
from lexigram.sql.locks import SqlResourceLocks
from lexigram.sql.migrate import (
    check,
    downgrade,
    installed_migrations,
    snapshot,
    status,
    upgrade,
    upgrade_sql,
)
from lexigram.tasks import Jobs, JobStatus, TasksModule, job
from lexigram.testing import boot, wait_until
from lexigram.workflow.bulk import BulkOperation, BulkOperationConfig, SqlBulkCheckpoints
from lexigram.workflow.checkpoint import DatabaseContentCheckpointStore, SqlCheckpointStore
from lexigram.workflow.durable import DurableEngine, OrchestratedRuns, Worker, WorkerConfig
from lexigram.workflow.durable.store.sync_states import SyncStates
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.saga import AbstractSaga, SqlSagaStore, saga_step
from lexigram.workflow.state import DatabaseStatePersistence

pytestmark = pytest.mark.anyio

DUMPS = Path(__file__).parents[2] / "samples" / "databases"
INSTALLED = installed_migrations()  # read here: it blocks the first time
BEFORE = {
    "lexigram": "0004",
    "lexigram-queue": "0001",
    "lexigram-workflow": "0009",
    "lexigram-ai-workers": "0001",
}


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def dialect(request):
    return request.param


@pytest.fixture
async def url(dialect, request, tmp_path):
    """The address of a copy of the database that commit 25c098f left."""
    dump = (DUMPS / f"{dialect}.sql").read_text(encoding="utf-8")
    if dialect == "sqlite":
        connection = sqlite3.connect(tmp_path / "before.db")
        connection.executescript(dump)
        connection.close()
        yield f"sqlite:///{tmp_path}/before.db"
    else:
        async with dropped_schema(request) as (schema, server, execute):
            await execute(dump.replace("before_upgrade", schema))
            yield f"{server}?search_path={schema}"


@pytest.fixture
async def new(dialect, request, tmp_path):
    """A new database of the same kind."""
    if dialect == "sqlite":
        async with Database(f"sqlite:///{tmp_path}/new.db") as database:
            await upgrade(database)
            yield database
    else:
        async with dropped_schema(request) as (schema, server, execute):
            await execute(f"CREATE SCHEMA {schema}")
            async with Database(f"{server}?search_path={schema}") as database:
                await upgrade(database)
                yield database


@asynccontextmanager
async def dropped_schema(request):
    """The name of a schema that is removed at the end, its server, and what executes there."""
    server = f"postgresql://postgres@{request.getfixturevalue('services')['postgresql'].address}"
    admin = await asyncpg.connect(f"{server}/test")
    schema = unique_identifier()
    yield schema, f"{server}/test", admin.execute
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    await admin.close()


@pytest.fixture
async def before(url):
    async with Database(url) as database:
        yield database


@pytest.fixture
async def database(before):
    await upgrade(before)
    return before


def structure(found):
    """A snapshot without the rows, and without the schema that PostgreSQL shows in views."""
    tables = {name: {**table, "rows": ()} for name, table in found["tables"].items()}
    return tables, found["views"]


async def test_the_dump_has_unfinished_work_in_every_table(before):
    assert {item.distribution: item.current for item in await status(before)} == BEFORE
    tables = (await snapshot(before))["tables"]
    assert len(tables) > 40
    assert [name for name, table in tables.items() if not table["rows"]] == []


async def test_an_upgraded_database_is_the_same_as_a_new_one(before, new):
    with pytest.raises(DatabaseOutdatedError):
        await check(before)
    rows = (await snapshot(before))["tables"]
    applied = await upgrade(before)
    assert [(item.distribution, item.revision) for item in applied] == [
        ("lexigram-queue", "0002"),
        ("lexigram-workflow", "0012"),
    ]
    await check(before)
    after = await snapshot(before)
    assert structure(after) == structure(await snapshot(new))
    assert all(len(after["tables"][name]["rows"]) == len(rows[name]["rows"]) for name in rows)
    assert await upgrade(before) == []


async def test_the_start_of_an_application_upgrades_the_embedded_database(url):
    if not url.startswith("sqlite"):
        with pytest.raises(BaseException, match="lexigram db upgrade"):
            async with boot(SqlModule.configure(SqlConfig(url=url))):
                pass
        return
    async with boot(SqlModule.configure(SqlConfig(url=url))) as app:
        await check(await app.container.resolve(Database))


async def test_the_script_does_what_upgrade_does(before, new):
    for distribution in ("lexigram-queue", "lexigram-workflow"):
        script = await upgrade_sql(before.dialect, only=distribution, start=BEFORE[distribution])
        body = script.partition("BEGIN IMMEDIATE;")[2] or script.partition("BEGIN;")[2]
        statements = body.removesuffix("COMMIT;").split(";\n")

        def play(connection, statements=statements):
            for statement in filter(str.strip, statements):
                connection.exec_driver_sql(statement)

        await before.restructure(play)
    await check(before)
    assert structure(await snapshot(before)) == structure(await snapshot(new))


@pytest.mark.parametrize("revision", ["0008", "0010"])
async def test_an_older_database_is_refused_and_left_as_it_is(before, revision):
    await before.execute("UPDATE migrations_of_lexigram_workflow SET version_num = ?", (revision,))
    rows = await snapshot(before)
    for work in (
        upgrade(before),
        check(before),
        downgrade(before, "base", only="lexigram-workflow"),
    ):
        with pytest.raises(DatabaseTooOldError) as caught:
            await work
        assert caught.value.code == "LEX_ERR_DB_124"
        assert f"has revision {revision} of lexigram-workflow" in caught.value.message
        assert f"the last lexigram-workflow that has revision {revision}" in caught.value.hint
    states = {item.distribution: item.state for item in await status(before)}
    assert states["lexigram-workflow"] == "too old"
    assert await snapshot(before) == rows


async def test_a_downgrade_asks_for_the_upgrade_first(before):
    with pytest.raises(DatabaseOutdatedError):
        await downgrade(before, "base", only="lexigram-workflow")


async def test_processes_that_start_at_once_upgrade_it_once(url):
    applied = []

    async def start():
        async with Database(url) as database:
            applied.extend(await upgrade(database))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(start)
    assert [item.revision for item in applied] == ["0002", "0012"]


# Unfinished work.


@job("resize")
async def resize(name: str) -> str:
    return name


@job("album")
async def album(names: list[str]) -> str:
    return ", ".join(names)


@module(imports=[TasksModule.scope(resize, album)])
class Pictures(Module):
    pass


async def test_jobs_schedules_locks_and_values_of_the_core_are_kept(database, url):
    assert (await Cache(SqlCache(database)).get("color")).unwrap() == {"name": "blue"}
    assert (await SqlIdempotencyStore(database).get("payment-1")).unwrap() == "paid"
    assert (await SqlResourceLocks(database).get("printer")).holder_id == "desk-1"
    modules = [SqlModule.configure(SqlConfig(url=url)), TasksModule, Pictures]
    async with Application("after", modules=[*modules, ScheduleModule.configure()]) as app:
        rows = (await database.execute_query("SELECT id, name FROM lexigram_jobs")).rows
        jobs = app.container.get(Jobs)
        albums = [row["id"] for row in rows if row["name"] == "album"]
        assert await jobs.result(albums[0]) == "cat, dog"
        for row in rows:
            assert (await jobs.outcome(row["id"])).status is JobStatus.COMPLETED
        scheduler = await app.container.resolve(Scheduler)
        assert {item.schedule.name for item in await scheduler.schedules()} >= {"report", "collect"}


async def test_messages_of_the_bus_and_its_outbox_are_delivered(database):
    received = []

    async def receive(message):
        received.append(message.payload["number"])

    async with SqlQueue(database) as queue:
        await queue.subscribe("orders", receive, group="billing")
        await queue.subscribe("nobody", receive, group="late")
        await queue.subscribe("returns", receive, group="desk")
        await TransactionalOutbox(queue, database).flush()
        await wait_until(lambda: sorted(received) == [1, 2, 3, 5])
        (dead,) = await queue.driver.list_dead("returns", "desk")
        assert "no stock" in dead.error
        await queue.driver.redrive("returns", "desk")
        await wait_until(lambda: sorted(received) == [1, 2, 3, 4, 5])


def letter(database):
    return (
        WorkflowBuilder("letter", version=1)
        .add_node("write", lambda state: {"text": f"Dear {state['input']}"})
        .add_node("ask", human_prompt="Send '{text}'?", output_key="answer")
        .add_node("send", lambda state: f"{state['text']} ({state['answer']})")
        .add_edge("write", "ask")
        .add_edge("ask", "send")
        .set_entry("write")
        .set_terminal("send")
        .build(checkpoints=SqlCheckpointStore(database))
    )


class Trip(AbstractSaga):
    def __init__(self, store):
        super().__init__(store, lease=5.0)
        self.seat = ""
        self.booked = ""

    def get_id(self):
        return "trip"

    def snapshot(self):
        return {"seat": self.seat}

    def restore(self, snapshot):
        self.seat = snapshot.get("seat", "")

    @saga_step(compensation="cancel")
    async def flight(self):
        self.seat = "never again"
        return Ok(None)

    async def cancel(self):
        self.seat = ""

    @saga_step()
    async def hotel(self):
        self.booked = f"hotel for {self.seat}"
        return Ok(None)


async def test_graphs_sagas_bulk_operations_and_machines_continue(database):
    (run,) = (await database.execute_query("SELECT run_id FROM lexigram_graph_runs")).rows
    result = await letter(database).resume(run["run_id"], "yes")
    assert result.unwrap().output == "Dear Ada (yes)"

    trip = Trip(SqlSagaStore(database))
    assert (await trip.resume(take_over=True)).is_ok()
    assert trip.booked == "hotel for 12A"

    taken = []

    async def process(items):
        taken.extend(items)
        return items

    operation = BulkOperation(
        BulkOperationConfig(batch_size=2, max_concurrency=1),
        process,
        checkpoint_store=SqlBulkCheckpoints(database),
    )
    async for _ in operation.execute(range(10), operation_id="import", take_over=True):
        pass
    assert taken == [4, 5, 6, 7, 8, 9]

    key = ContentCheckpointKey.compute("parse", None, {"text": "a"}, "1", {"lang": "en"})
    assert (await DatabaseContentCheckpointStore(database).get(key)).output == {"words": 1}
    machines = DatabaseStatePersistence(database)
    assert await machines.append_transition("door", "shut", "open", "open", 1) == 2


def parcel():
    graph = WorkflowBuilder("parcel")
    graph.add_node("pack", lambda state: {"parcel": f"a parcel for {state['input']}"})
    graph.add_node("ask", human_prompt="send {parcel}?", output_key="said")
    graph.add_node("send", lambda state: {"output": f"{state['parcel']}, {state['said']}"})
    graph.add_edge("pack", "ask").add_edge("ask", "send")
    return graph.set_entry("pack").set_terminal("send")


PARKED = "SELECT id FROM lexigram_durable_runs WHERE parked IS NOT NULL"


async def test_durable_runs_continue_where_they_were(database):
    engine, calls = DurableEngine(database), []
    runs = OrchestratedRuns(engine)
    runs.register("parcel", parcel)

    def handler(name):
        async def call():
            calls.append(name)
            return {name: 1}

        return call

    names = ("charge", "ship", "hang", "later", "log")
    worker = Worker(
        WorkerConfig(poll_interval=0.05, retention=0),
        engine,
        {**runs.handlers, **{name: handler(name) for name in names}},
    )
    await worker.start()
    try:
        found = await database.execute_query("SELECT id, name FROM lexigram_durable_groups")
        groups = {row["name"]: row["id"] for row in found.rows}
        parked = await database.execute_query(PARKED)
        run_id = parked.rows[0]["id"]
        await runs.answer(run_id, "yes")
        assert (await runs.ended(run_id)).state["output"] == "a parcel for Bob, yes"

        async def has_ended():
            left = [(await engine.stats(groups[name])).completed for name in ("waits", "cut off")]
            return left == [1, 1] and calls.count("log") == 2

        await wait_until(has_ended)
    finally:
        await worker.stop()
    assert sorted(calls) == ["hang", "later", "log", "log", "ship"]
    assert (await engine.stats(groups["done"])).completed == 1
    assert (await engine.stats(groups["failed"])).failed == 1
    assert (await SyncStates(database).get("gitea:repo")).commit_sha == "abc123"


async def test_dead_letters_statistics_and_runs_of_the_ai_workers_are_kept(database):
    store = SqlDeadLetterStore(database)
    (letter,) = await store.find()
    assert (letter.id, letter.last_error, letter.notes) == ("7", "boom", {"topic": "orders"})
    assert await store.statistics()
    assert (await SqlStatistics(database).since(20000))[0]["value"] == 1.0
    assert [run.task_name for run in await SqlRuns(database).recent()] == ["vacuum"]

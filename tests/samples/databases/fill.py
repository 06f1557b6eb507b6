"""Fill every table of a database with work that is not finished, then end like a power cut.

Runs in a checkout of commit 25c098f, with its environment:

    PYTHONPATH=. .venv/bin/python fill.py sqlite:////tmp/before.db
    sqlite3 /tmp/before.db .dump
    PYTHONPATH=. .venv/bin/python fill.py postgresql://…?search_path=before_upgrade
    pg_dump --inserts --no-owner --no-privileges --no-comments --schema=before_upgrade

``sqlite.sql`` and ``postgresql.sql`` are these dumps without comments, settings and paths. What
pg_dump writes for ``state IN (…)`` in the condition of an index is stored in another form when it is
read again, so the original text stands there.
"""

import os
import sys
import tempfile
from datetime import UTC, datetime

import anyio

from lexigram.ai.workers.dlq.letters import Failure, RetryRule, failed
from lexigram.ai.workers.dlq.store_sql import SqlLetters
from lexigram.ai.workers.maintenance.store_sql import SqlRuns
from lexigram.ai.workers.store_figures import Figures
from lexigram.ai.workers.types import FailureCategory, MaintenanceResult, MaintenanceTaskType
from lexigram.app import Application
from lexigram.blobs import BlobConfig
from lexigram.blobs.store import BlobStore
from lexigram.cache import Cache, SqlCache
from lexigram.cache.store_idempotency import SqlIdempotencyStore
from lexigram.contracts.core.result import Ok
from lexigram.contracts.queue import BusMessage
from lexigram.contracts.workflow import ContentCheckpointEntry, ContentCheckpointKey
from lexigram.contracts.workflow.durable import RunDocument
from lexigram.di import Module, module
from lexigram.queue.backends.sql import SqlQueue
from lexigram.queue.outbox import TransactionalOutbox
from lexigram.queue.store_inbox import InboxStore
from lexigram.schedule import ScheduleModule, scheduled
from lexigram.sql import Database, Migrate, SqlConfig, SqlModule
from lexigram.sql.locks import SqlResourceLocks
from lexigram.sql.migrate import upgrade
from lexigram.tasks import (
    IdempotencyManager,
    JobContext,
    JobOptions,
    Jobs,
    TasksConfig,
    TasksModule,
    job,
)
from lexigram.tasks.store_side import SqlSubmissions
from lexigram.testing import wait_until
from lexigram.workflow.bulk import BulkOperation, BulkOperationConfig, SqlBulkCheckpoints
from lexigram.workflow.checkpoint import DatabaseContentCheckpointStore, SqlCheckpointStore
from lexigram.workflow.durable import (
    DurableEngine,
    LifeCycleEvent,
    LifecycleHandler,
    NewRun,
    OrchestratedRuns,
    RunPlan,
    StepPlan,
    Worker,
    WorkerConfig,
)
from lexigram.workflow.durable.artifacts import Artifacts
from lexigram.workflow.durable.documents import Documents
from lexigram.workflow.durable.store import Terms
from lexigram.workflow.durable.sync_states import SyncStates
from lexigram.workflow.errors import HumanInputRequiredError
from lexigram.workflow.graph import WorkflowBuilder
from lexigram.workflow.saga import AbstractSaga, SqlSagaStore, saga_step
from lexigram.workflow.state import DatabaseStatePersistence

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


async def main(url):
    async with Database(url) as database:
        await upgrade(database)
        await fill_core(database, url)
        await fill_bus(database)
        await fill_workflow(database)
        await fill_ai(database)
        await fill_durable(database)


# The core.


@job("resize")
async def resize(name: str, context: JobContext) -> str:
    await context.progress(1, 2, f"{name}: half")
    return name


@job("album")
async def album(names: list[str]) -> str:
    return ", ".join(names)


@scheduled("30 2 * * *", name="report", timezone="Europe/Berlin")
async def report() -> None: ...


@scheduled(every=1, name="collect")
async def collect() -> None:
    collected.set()


collected = anyio.Event()


@module(imports=[TasksModule.scope(resize, album)])
class Pictures(Module): ...


async def fill_core(database, url):
    await SqlResourceLocks(database).acquire("printer", "desk-1", ttl=10 * 365 * 86400)
    await Cache(SqlCache(database)).set("color", {"name": "blue"})
    await SqlIdempotencyStore(database).acquire("payment-1")
    await SqlIdempotencyStore(database).set("payment-1", "paid")
    submissions = IdempotencyManager(SqlSubmissions(database))
    await submissions.record_submission("payment-2", "task-2", "pay", {})
    modules = [SqlModule.configure(SqlConfig(url=url, migrate=Migrate.NEVER)), Pictures]
    modules += [ScheduleModule.configure(schedules=[report, collect])]
    async with Application("before", modules=[*modules, TasksModule]) as app:
        await collected.wait()
        jobs = app.container.get(Jobs)
        await jobs.result(await jobs.submit(resize, "cat"))
        app.container.get(Jobs)
    modules[-1] = TasksModule.configure(TasksConfig(workers=False))
    async with Application("before", modules=modules) as app:
        jobs = app.container.get(Jobs)
        dog = await jobs.submit(resize, "dog", options=JobOptions(idempotency_key="dog"))
        await jobs.submit(album, ["cat", "dog"], options=JobOptions(after=[dog]))


# The bus.


async def fill_bus(database):
    async def refuse(message):
        raise ValueError("no stock")

    async with SqlQueue(database) as queue:  # the group remains, without a consumer
        await queue.subscribe("orders", refuse, group="billing")
    async with SqlQueue(database, dedup_window=3600) as queue:
        await queue.publish("orders", BusMessage(payload={"number": 1}))
        await queue.publish("orders", BusMessage(payload={"number": 2}))
        await queue.publish("nobody", BusMessage(payload={"number": 3}))
        await queue.subscribe("returns", refuse, group="desk")
        await queue.publish("returns", BusMessage(payload={"number": 4}, max_retries=0))

        async def has_died():
            return bool(await queue.driver.list_dead("returns", "desk"))

        await wait_until(has_died)
        outbox = TransactionalOutbox(queue, database)
        await outbox.stage("orders", BusMessage(payload={"number": 5}))
    await InboxStore(database).note("billing", ["message-1"])


# Workflows.


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

    def get_id(self):
        return "trip"

    def snapshot(self):
        return {"seat": self.seat}

    def restore(self, snapshot):
        self.seat = snapshot.get("seat", "")

    @saga_step(compensation="cancel")
    async def flight(self):
        self.seat = "12A"
        return Ok(None)

    async def cancel(self): ...

    @saga_step()
    async def hotel(self):
        booked.set()
        await anyio.sleep_forever()


booked = anyio.Event()
begun = anyio.Event()


async def fill_workflow(database):
    try:
        await letter(database).execute("Ada")
    except HumanInputRequiredError as pause:
        print("graph", pause.run_id)
    key = ContentCheckpointKey.compute("parse", None, {"text": "a"}, "1", {"lang": "en"})
    entry = ContentCheckpointEntry({"words": 1}, None, MOMENT, "1", 12, {"by": "before"})
    await DatabaseContentCheckpointStore(database).set(key, entry)
    await DatabaseStatePersistence(database).append_transition("door", "open", "close", "shut", 0)


# The AI workers.


async def fill_ai(database):
    letters = SqlLetters(database)
    failure = Failure(
        source="jobs",
        id="7",
        payload={"name": "mail"},
        error="boom",
        category=FailureCategory.UNKNOWN,
        failed_at=1000.0,
        notes={"topic": "orders"},
    )
    rule = RetryRule(max_retries=2, base=60.0)
    await letters.change("jobs", "7", lambda old: failed(old, failure, rule))
    await letters.add_figure("dlq.retried")
    await Figures(database).add({"maintenance.runs": 1.0}, 20000)
    await SqlRuns(database).add(
        MaintenanceResult.success("vacuum", next(iter(MaintenanceTaskType)), MOMENT, 1, 0, {})
    )


# Durable runs.


def parcel():
    graph = WorkflowBuilder("parcel")
    graph.add_node("pack", lambda state: {"parcel": f"a parcel for {state['input']}"})
    graph.add_node("ask", human_prompt="send {parcel}?", output_key="said")
    graph.add_node("send", lambda state: {"output": f"{state['parcel']}, {state['said']}"})
    graph.add_edge("pack", "ask").add_edge("ask", "send")
    return graph.set_entry("pack").set_terminal("send")


def plan(*steps, step_type="work"):
    return RunPlan(
        workflow_id="-".join(steps),
        steps=[StepPlan(name=s, step_type=step_type, handler=s, retries=1) for s in steps],
        lifecycle={LifeCycleEvent.GROUP_END: [LifecycleHandler(name="log", handler="log")]},
    )


async def charge():
    return {"charged": 1}


async def ship():
    return {"shipped": 1}


async def refuse():
    raise ValueError("out of stock")


async def hang():
    begun.set()
    await anyio.sleep_forever()


async def log():
    return {"logged": True}


async def fill_durable(database):
    engine = DurableEngine(database, Terms(lease=10.0))
    runs = OrchestratedRuns(engine)
    runs.register("parcel", parcel)
    handlers = {"charge": charge, "ship": ship, "refuse": refuse, "hang": hang, "log": log}
    worker = Worker(WorkerConfig(poll_interval=0.05), engine, {**runs.handlers, **handlers})
    await worker.start()
    done = await engine.submit(plan("charge", "ship"), [NewRun(params={"order": 1})], name="done")
    broken = await engine.submit(plan("charge", "refuse"), [NewRun()], name="failed")
    run_id = await runs.submit("parcel", "Bob")

    async def has_ended():
        states = [(await engine.stats(group.group_id)) for group in (done, broken)]
        asked = (await runs.status(run_id)).questions
        events = (
            await database.execute_query(
                "SELECT count(*) AS n FROM lexigram_durable_lifecycle WHERE status = 'COMPLETED'"
            )
        ).rows[0]["n"]
        return states[0].completed == 1 and states[1].failed == 1 and asked and events == 2

    await wait_until(has_ended, timeout=30)
    print("parcel", run_id)
    with tempfile.TemporaryDirectory() as folder:
        blobs = await BlobStore.open(BlobConfig(root=folder))
        documents = Documents(database, Artifacts(blobs), engine)
        batch = await documents.create_batch("mail", "folder")
        document = RunDocument(uri="a.txt", source="folder", content=b"alpha")
        await documents.ingest(document, getattr(batch, "id", batch))
    await SyncStates(database).put("gitea:repo", "abc123", metadata={"files": 2})
    # What nobody finishes: a step and a saga that run, a bulk operation, a run without a worker.
    await worker.stop()
    worker = Worker(WorkerConfig(consumers={"work": 1}, poll_interval=0.05), engine, handlers)
    await worker.start()
    waits = plan("later", "ship", step_type="other")
    await engine.submit(waits, [NewRun(params={"order": 3})], name="waits")
    await engine.submit(plan("charge", "hang"), [NewRun(params={"order": 2})], name="cut off")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Trip(SqlSagaStore(database)).execute)
        await booked.wait()
        await begun.wait()
        await bulk(database)


async def bulk(database):
    async def process(items):
        if 4 in items:
            os._exit(0)  # a power cut, for all of the above
        return items

    config = BulkOperationConfig(batch_size=2, max_concurrency=1)
    operation = BulkOperation(config, process, checkpoint_store=SqlBulkCheckpoints(database))
    async for batch in operation.execute(range(10), operation_id="import"):
        print("batch", batch.batch_id)


anyio.run(main, sys.argv[1])

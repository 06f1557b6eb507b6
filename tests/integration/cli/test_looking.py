"""Commands that look at an application leave its work alone: messages, jobs, ticks, workflows."""

import importlib
import os
import sys

import anyio
import pytest

from lexigram.cli.main import main
from lexigram.contracts.data.outbox import OutboxProtocol
from lexigram.contracts.queue import BusMessage, QueueProtocol
from lexigram.tasks import Jobs
from lexigram.testing import wait_until

SHOP = """
from pathlib import Path

import anyio
from lexigram.app import Application
from lexigram.di import Module, module
from lexigram.events.lifecycle import ApplicationStarted, ApplicationStopping
from lexigram.queue import MessageConsumer, NamedQueueConfig, QueueConfig, QueueModule
from lexigram.schedule import ScheduleConfig, ScheduleModule, scheduled
from lexigram.sql import SqlConfig, SqlModule
from lexigram.tasks import TasksConfig, TasksModule, job
from lexigram.workflow import PipelineContext, WorkflowModule, workflow

FILE = Path(__file__).parent / "shop.db"
ALL = {"message", "staged message", "job", "tick", "workflow"}
DONE = []


class Shipping(MessageConsumer):
    topic = "orders"
    group = "shipping"

    async def handle(self, payload: str) -> None:
        DONE.append(payload)


@job("tidy")
async def tidy() -> None:
    DONE.append("job")


@scheduled(every=0.1, name="often")
async def often() -> None:
    DONE.append("tick")


@workflow("welcome", on=ApplicationStarted)
async def welcome(context: PipelineContext) -> None:
    DONE.append("workflow")


@module(imports=[QueueModule.scope(Shipping)])
class ShopModule(Module):
    pass


async def give_it_a_chance(_: ApplicationStopping) -> None:
    with anyio.move_on_after(0.5):
        while not DONE:
            await anyio.sleep(0.01)


def create() -> Application:
    events = NamedQueueConfig(name="events", driver="sql")
    app = Application(
        "shop",
        modules=[
            SqlModule.configure(SqlConfig(url=f"sqlite:///{FILE}")),
            QueueModule.configure(QueueConfig(backends=[events])),
            TasksModule.configure(TasksConfig(), handlers=[tidy]),
            ScheduleModule.configure(ScheduleConfig(), schedules=[often]),
            WorkflowModule.stub(workflows=[welcome]),
            ShopModule,
        ],
    )
    app.events.subscribe(ApplicationStopping, give_it_a_chance)
    return app
"""

COMMANDS = (
    *("queue ls", "queue dlq ls", "jobs ls", "schedule ls"),
    *("workflow ls", "workflow history", "inspect health"),
)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The module of an application that has something of everything to do."""
    for name in [name for name in os.environ if name.startswith("LEX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "looked_at.py").write_text(SHOP)
    (tmp_path / "pyproject.toml").write_text('[tool.lexigram]\napp = "looked_at:create"\n')
    module = importlib.import_module("looked_at")
    anyio.run(_fill, module.create())
    yield module
    del sys.modules["looked_at"]


async def _fill(app):
    app.only_look()
    async with app:
        queue = await app.container.resolve(QueueProtocol)
        await queue.publish("orders", BusMessage(payload="message"))
        outbox = await app.container.resolve(OutboxProtocol)
        await outbox.stage("orders", BusMessage(payload="staged message"))
        await (await app.container.resolve(Jobs)).submit("tidy")


def test_commands_that_look_handle_nothing(shop, capsys):
    for command in COMMANDS:
        assert main(command.split()) == 0, capsys.readouterr().err
        assert shop.DONE == [], command


def test_what_the_commands_left_is_done_by_an_application_that_runs(shop):
    assert main(["queue", "ls"]) == 0

    async def work():
        async with shop.create():
            await wait_until(lambda: sorted(shop.ALL.difference(shop.DONE)) == [])

    anyio.run(work)
    assert set(shop.DONE) == shop.ALL


def test_jobs_run_here_does_that_job_and_nothing_else(shop):
    assert main(["jobs", "run", "tidy", "--here"]) == 0
    assert set(shop.DONE) == {"job"}


def test_workflow_run_runs_that_workflow_and_nothing_else(shop):
    assert main(["workflow", "run", "welcome"]) == 0
    assert shop.DONE == ["workflow"]

"""Commands that look at an application leave its work alone: messages, jobs, ticks, workflows."""

import importlib
import io
import os
import sys

import anyio
import pytest

from lexigram.app import Application
from lexigram.cli.main import main, root_command
from lexigram.cli.session import Session
from lexigram.contracts.data.outbox import OutboxProtocol
from lexigram.contracts.queue import BusMessage, QueueProtocol
from lexigram.tasks import Jobs
from lexigram.testing import wait_until

# A package of others: its command starts the application as it finds it.
STRANGER = """
import anyio
import typer
from lexigram.cli.contributors import BaseCliContributor
from lexigram.contracts.cli import CommandContribution


class StrangerCliContributor(BaseCliContributor):
    def get_commands(self):
        return [
            CommandContribution(
                name="stranger",
                help="Look at something.",
                app_factory_path="stranger:commands",
                contributor="stranger",
                requires_app_context=True,
            )
        ]


def commands():
    app = typer.Typer()

    @app.command()
    def look(ctx: typer.Context) -> None:
        async def work() -> None:
            async with ctx.find_root().obj.application as app:
                print(app.state.value)

        anyio.run(work)

    @app.command()
    def nothing() -> None: ...

    return app
"""
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

LOOKING = (
    *("queue ls", "queue lag", "queue peek orders", "queue dlq ls", "queue dlq show 1"),
    *("jobs ls", "jobs show 1", "schedule ls", "schedule show often", "db status"),
    *("workflow ls", "workflow history", "inspect health", "inspect container", "doctor"),
)
# Commands whose purpose is background work.
WORKING = {"run", "serve", "worker", "jobs work"}
# Read by `command_line` where the word of a required argument has to be something.
WORDS = {"paths": "pyproject.toml", "files": "pyproject.toml", "payload": "{}"}


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
    app.background_enabled = False
    async with app:
        queue = await app.container.resolve(QueueProtocol)
        await queue.publish("orders", BusMessage(payload="message"))
        outbox = await app.container.resolve(OutboxProtocol)
        await outbox.stage("orders", BusMessage(payload="staged message"))
        await (await app.container.resolve(Jobs)).submit("tidy")


def all_commands():
    """Every command of the installed packages, with what it requires."""

    def commands_of(command, context, words):
        if not hasattr(command, "list_commands"):
            yield words, tuple(command_line(command))
            return
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            below = type(context)(inner, parent=context, info_name=name)
            yield from commands_of(inner, below, f"{words} {name}".strip())

    root = root_command()
    return dict(commands_of(root, root.context_class(root, obj=Session()), ""))


def command_line(command):
    for parameter in command.params:
        if parameter.required:
            if parameter.param_type_name == "option":
                yield parameter.opts[0]
            yield WORDS.get(parameter.name, "1")
        elif "--yes" in parameter.opts:
            yield "--yes"


def test_no_command_but_workers_starts_background_work(shop, capsys, monkeypatch):
    enabled = {}

    class NotStartedError(Exception):
        """Instead of the start of the application."""

    async def refuse(app):
        enabled[command] = app.background_enabled
        raise NotStartedError

    monkeypatch.setattr(Application, "start", refuse)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for command, arguments in all_commands().items():
        more = ["--port", "0"] if command == "serve" else []
        main([*command.split(), *arguments, *more])
        capsys.readouterr()
    assert {command for command, background in enabled.items() if background} == WORKING
    # More than these; but a command that fails before its start would show nothing.
    looking = {
        "queue ls",
        "queue peek",
        "jobs ls",
        "workflow ls",
        "workflow runs",
        "inspect health",
    }
    assert looking | {"shell", "ingest", "search"} <= enabled.keys()


def test_commands_that_look_handle_nothing(shop, capsys):
    for command in LOOKING:
        main(command.split())
        assert "Traceback" not in capsys.readouterr().err
        assert shop.DONE == [], command


@pytest.mark.parametrize("command", sorted(WORKING))
def test_an_application_made_without_background_work_gets_none(shop, capsys, monkeypatch, command):
    create = shop.create

    def created():
        app = create()
        app.background_enabled = False
        return app

    async def serve(app, work=None):
        assert not app.background_enabled

    monkeypatch.setattr(shop, "create", created)
    monkeypatch.setattr(Application, "serve", serve)
    is_worker = command in {"worker", "jobs work"}
    more = ["--port", "0"] if command == "serve" else []
    assert main([*command.split(), *more]) == (2 if is_worker else 0)
    assert ("background=False" in capsys.readouterr().err) == is_worker


def test_the_shell_handles_nothing(shop, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("print(app.state.value)\n"))
    assert main(["shell", "-q"]) == 0, capsys.readouterr().err
    assert "running" in capsys.readouterr().out
    assert shop.DONE == []


def test_a_command_of_another_package_handles_nothing(shop, capsys, tmp_path):
    (tmp_path / "stranger.py").write_text(STRANGER)
    metadata = tmp_path / "stranger-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    entry = "[lexigram.cli.contributors]\nstranger = stranger:StrangerCliContributor\n"
    (metadata / "entry_points.txt").write_text(entry)
    assert main(["stranger", "look"]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == "running\n"
    assert shop.DONE == []


@pytest.mark.parametrize("command", sorted(WORKING))
def test_a_command_that_runs_the_application_does_its_background_work(shop, monkeypatch, command):
    seen = []

    async def serve(app, work=None):
        async with app:
            seen.extend(provider.background_enabled for provider in app.providers)

    monkeypatch.setattr(Application, "serve", serve)
    assert main([*command.split(), *(["--port", "0"] if command == "serve" else [])]) == 0
    assert seen
    assert all(seen)


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

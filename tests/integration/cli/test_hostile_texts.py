"""Names, messages and documents of others reach the terminal as text, from every command."""

import contextlib
import importlib
import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.integration.cli.test_looking import all_commands
from tests.processes import Popen

from lexigram.app import Application
from lexigram.cli.main import main
from lexigram.config.escape import escape_line
from lexigram.contracts.queue import BusMessage, QueueProtocol
from lexigram.observability import configure_logging, reset_logging
from lexigram.queue.operations.control import BusControl
from lexigram.tasks import JobOptions, Jobs
from lexigram.testing import wait_until
from lexigram.workflow.workflows import Workflows

# What is shown where controls are not refused: escape codes, a title, C1, bidi, a second record.
TEXT = "n\x1b[31mred\x1b]0;t\x07\x9b2J\u202egnp\u2066\r\nfake: row\t[red]m[/red] [link=x]l[/link]"
NAME = "n\u202egnp[bold]"  # where they are
STEERS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
SGR = re.compile("\x1b\\[[0-9;]*m")  # colours of our own
BARS = re.compile("\x1b\\[(\\?25[lh]|2K|1A)|\r")  # how rich draws a bar again
APP = f"""
from pathlib import Path

from lexigram.ai.workers import WorkersConfig, WorkersModule
from lexigram.ai.workers.embeddings.config import EmbeddingConfig
from lexigram.ai.workers.vectors.config import VectorConfig
from lexigram.app import Application
from lexigram.blobs import BlobConfig, BlobModule
from lexigram.di import Module, module
from lexigram.queue import MessageConsumer, NamedQueueConfig, QueueConfig, QueueModule
from lexigram.schedule import ScheduleConfig, ScheduleModule, scheduled
from lexigram.sql import SqlConfig, SqlModule
from lexigram.tasks import TasksConfig, TasksModule, job
from lexigram.workflow import PipelineContext, WorkflowConfig, WorkflowModule, workflow
from lexigram.workflow.durable.config import DurableConfig

HERE = Path(__file__).parent
TEXT, NAME = {TEXT!r}, {NAME!r}
DEFINITIONS = DurableConfig(workflow_dir=str(HERE / "workflows"), param_dir=str(HERE / "params"))


class Consumer(MessageConsumer):
    topic = NAME
    group = NAME

    async def handle(self, payload: object) -> None:
        raise ValueError(TEXT)


@job(NAME)
async def fail(text: str = TEXT) -> None:
    raise ValueError(TEXT)


@scheduled(every=3600, name=NAME)
async def often() -> None: ...


@workflow(NAME)
async def broken(context: PipelineContext) -> None:
    raise ValueError(TEXT)


@module(imports=[QueueModule.scope(Consumer)])
class Shop(Module):
    pass


Shop.__name__ = Shop.__qualname__ = TEXT


def create() -> Application:
    return Application(
        TEXT,
        modules=[
            SqlModule.configure(SqlConfig(url=f"sqlite:///{{HERE}}/app.db")),
            QueueModule.configure(QueueConfig(backends=[NamedQueueConfig(name="events", driver="sql")])),
            TasksModule.configure(TasksConfig(), handlers=[fail]),
            ScheduleModule.configure(ScheduleConfig(), schedules=[often]),
            BlobModule.configure(BlobConfig(root=str(HERE / "blobs"))),
            WorkflowModule.configure(
                WorkflowConfig(durable=DEFINITIONS),
                workflows=[broken],
                step_handlers={{"check": lambda doc: None}},
            ),
            WorkersModule.configure(
                WorkersConfig(
                    embeddings=EmbeddingConfig(provider="hashing"),
                    vectors=VectorConfig(path=str(HERE / "lancedb")),
                )
            ),
            Shop,
        ],
    )


def broken_app() -> Application:
    raise ValueError(TEXT)
"""
DEFINITION = {
    "id": "tiny",
    "name": TEXT,
    "meta": {},
    "item_steps": {"validate": {"name": TEXT, "retries": 1, "method": "check", "parameters": {}}},
}
# Commands that must get as far as showing something, with a part of what they show.
SHOWING = {
    ("inspect", "container"): "",
    ("config", "show"): TEXT,
    ("queue", "ls"): NAME,
    ("queue", "lag"): NAME,
    ("queue", "peek", NAME): TEXT,
    ("queue", "dlq", "ls"): NAME,
    ("queue", "dlq", "show", "dead"): TEXT,
    ("jobs", "ls"): NAME,
    ("jobs", "show", "job"): TEXT,
    ("jobs", "run", NAME, "--here"): NAME,
    ("schedule", "ls"): NAME,
    ("schedule", "show", NAME): NAME,
    ("schedule", "next", NAME): "",
    ("workflow", "ls"): NAME,
    ("workflow", "history"): NAME,
    ("workflow", "status", "run"): NAME,
    ("workflow", "graph", NAME): "",
    ("workflow", "definitions"): TEXT,
    ("workflow", "definitions", "tiny"): TEXT,
    ("search", "harbour"): TEXT,
    ("ingest", "status"): "",
    ("workers", "dlq", "ls"): "",
    ("workers", "dlq", "show", "job"): TEXT,
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder with an application whose stores hold hostile texts."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile_app.py").write_text(APP)
    (folder / "pyproject.toml").write_text('[tool.lexigram]\napp = "hostile_app:create"\n')
    (folder / "application.yaml").write_text(json.dumps({"logging": {"levels": {TEXT: "INFO"}}}))
    for name, document in (("workflows", DEFINITION),):
        (folder / name).mkdir()
        (folder / name / "tiny.yaml").write_text(json.dumps(document))
    (folder / "documents").mkdir()
    (folder / "documents" / f"{TEXT.replace('/', '')}.md").write_text(
        f"# Harbour {TEXT}\n\nThe harbour falls dry twice a day. {TEXT}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        anyio.run(_fill, importlib.import_module("hostile_app").create)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = main(["ingest", str(folder / "documents")])
        assert code == 0, out.getvalue()
    return folder


def enter(folder, patch):
    for name in [name for name in os.environ if name.startswith("LEX_")]:
        patch.delenv(name)
    patch.chdir(folder)
    patch.syspath_prepend(folder)
    patch.setattr("sys.stdin", io.StringIO())


@pytest.fixture
def lex(filled, monkeypatch, capsys, blocking_calls_fail):
    blocking_calls_fail.deactivate()
    enter(filled, monkeypatch)

    def call(*arguments):
        code = main(arguments)
        printed = capsys.readouterr()
        assert not STEERS.search(printed.out + printed.err), (arguments, printed)
        return code, printed

    return call


async def _fill(create):
    async with create() as app:
        queue = await app.container.resolve(QueueProtocol)
        await queue.publish(
            NAME, BusMessage(id="dead", payload=TEXT, headers={"x": NAME}, max_retries=0)
        )
        jobs = await app.container.resolve(Jobs)
        await jobs.submit(NAME, options=JobOptions(id="job", max_retries=0))
        with contextlib.suppress(ValueError):
            await (await app.container.resolve(Workflows)).run(NAME, run_id="run")
        control = await app.container.resolve(BusControl)

        async def has_failed():
            job = await jobs.get("job")
            return job.status.value == "failed" and await control.dead_letters().get("dead")

        await wait_until(has_failed)
    later = create()
    later.background_enabled = False
    async with later as app:
        queue = await app.container.resolve(QueueProtocol)
        await queue.publish(NAME, BusMessage(payload=TEXT))


@pytest.mark.parametrize("command", SHOWING, ids=" ".join)
def test_texts_of_others_are_shown_and_steer_nothing(lex, command):
    code, printed = lex(*command)
    shown = printed.out + printed.err
    assert code in {0, 1}, shown
    assert escape_line(SHOWING[command])[:12] in shown
    assert "\nfake: row" not in shown


@pytest.mark.parametrize(
    "command", [command for command in SHOWING if "run" not in command], ids=" ".join
)
def test_json_keeps_texts_of_others_exactly(lex, command):
    _, printed = lex(*command, "--json")
    assert SHOWING[command][:12] in "".join(strings(json.loads(printed.out)))


def strings(value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    else:
        yield str(value)


@pytest.mark.parametrize("option", ["--json", "--debug"])
def test_no_command_prints_its_arguments_as_they_are(lex, option, monkeypatch):
    """Nearly all of them refuse what they are given: the refusals, and what they quote."""
    monkeypatch.setattr(Application, "serve", refuse)
    for command, required in all_commands().items():
        if command.split()[0] in {"new", "generate"}:
            continue  # would write into the folder
        arguments = [TEXT if word == "1" else word for word in required]
        lex(*command.split(), *(arguments or [TEXT]), option)
    for arguments in ((TEXT,), ("queue", f"--{TEXT}"), ("inspect", "modules", f"{TEXT}:app")):
        assert lex(*arguments, option)[0] != 0


async def refuse(app, work=None):
    raise RuntimeError(TEXT)


@pytest.mark.parametrize("option", ["--no-color", "--json", "--debug"])
def test_an_error_and_its_traceback_steer_nothing(lex, option):
    code, printed = lex("inspect", "modules", "hostile_app:broken_app", option)
    assert code == 1
    assert r"\x1b[31mred" in printed.err or r"\u001b[31mred" in printed.out


def test_log_lines_steer_nothing(lex, capsys):
    configure_logging()
    try:
        logging.getLogger(f"shop.{NAME}").warning("got %s", TEXT, extra={"topic": TEXT})
        try:
            raise ValueError(TEXT)
        except ValueError:
            logging.getLogger("shop").exception("failed")
    finally:
        reset_logging()
    err = capsys.readouterr().err
    assert not STEERS.search(err)
    assert r"\x1b[31mred" in err
    assert "\nfake: row" not in err.partition("Traceback")[0]


def test_the_prompt_shows_errors_as_text(lex, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"raise ValueError({TEXT!r})\n"))
    _, printed = lex("shell", "-q")
    assert r"ValueError: n\x1b[31mred" in printed.err


@pytest.mark.parametrize(
    "command", ["jobs ls", "queue dlq show dead", "search harbour", "jobs run"]
)
def test_a_terminal_gets_colours_of_ours_only(filled, command):
    arguments = [*command.split(), *([NAME, "--here"] if command == "jobs run" else [])]
    ours, theirs = pty.openpty()
    process = Popen(
        [Path(sys.executable).with_name("lexigram"), *arguments],
        cwd=filled,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200", "PYTHONPATH": str(filled)},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
        while part := terminal.read(65536):  # EIO: the process has closed its end
            written += part
    assert process.wait() in {0, 1}
    text = BARS.sub("", SGR.sub("", written.decode().replace("\r\n", "\n")))
    assert not STEERS.search(text), text
    assert "n\\u202egnp" in text or r"n\x1b[31mred" in text

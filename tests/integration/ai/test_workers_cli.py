"""``lexigram ai workers``: status, dead letters and maintenance of an application on SQLite."""

import json
import re
import sys

import pytest

from lexigram.cli.main import main

APP = """
from pathlib import Path

from lexigram.ai.workers import WorkersConfig, WorkersModule
from lexigram.ai.workers.embeddings.config import EmbeddingConfig
from lexigram.ai.workers.vectors.config import VectorConfig
from lexigram.app import Application
from lexigram.schedule import ScheduleModule
from lexigram.sql import SqlConfig, SqlModule
from lexigram.tasks import TasksModule

HERE = Path(__file__).parent
CONFIG = WorkersConfig(
    embeddings=EmbeddingConfig(provider="hashing"), vectors=VectorConfig(provider="memory")
)


def create() -> Application:
    return Application(
        "shop",
        modules=[
            SqlModule.configure(SqlConfig(url=f"sqlite:///{HERE}/shop.db")),
            TasksModule,
            ScheduleModule,
            WorkersModule.configure(CONFIG),
        ],
    )


def small() -> Application:
    return Application("small", modules=[WorkersModule.configure(CONFIG)])


def without() -> Application:
    return Application("plain", modules=[])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, blocking_calls_fail):
    blocking_calls_fail.deactivate()  # the command line has the process to itself
    (tmp_path / "workers_cli_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def lex(folder, capfd):
    def call(*arguments, code=0, app="create"):
        sys.modules.pop("workers_cli_app", None)
        got = main(["ai", "workers", *arguments, "--app", f"workers_cli_app:{app}"])
        out, err = capfd.readouterr()
        assert got == code, f"{got}: {out}{err}"
        return out if "--json" in arguments else out + err

    return call


@pytest.fixture
def data(lex):
    return lambda *arguments, **more: json.loads(lex(*arguments, "--json", **more))


@pytest.fixture
def dead_jobs(folder, lex):
    """Three jobs that failed for good."""
    import anyio

    from lexigram.sql import Database
    from lexigram.sql.migrate import upgrade
    from lexigram.tasks import SqlTaskQueue

    async def make():
        async with Database(f"sqlite:///{folder}/shop.db") as database:
            await upgrade(database)
            queue = SqlTaskQueue(database)
            for number in range(3):
                await queue.enqueue({"name": "mail", "id": f"j{number}", "kwargs": {"n": number}})
            while (job := await queue.dequeue()) is not None:
                await queue.nack(job.id, requeue=False)

    anyio.run(make)


def test_dead_letters_are_listed_shown_retried_archived_deleted_and_counted(lex, data, dead_jobs):
    items = data("dlq", "ls")["items"]
    assert {item["id"] for item in items} == {"j0", "j1", "j2"}
    assert {item["source"] for item in items} == {"jobs"}
    assert "j1" in lex("dlq", "ls")
    assert data("dlq", "ls", "--category", "permanent")["items"] == []
    shown = data("dlq", "show", "j1")
    assert shown["original_job"]["kwargs"] == {"n": 1}
    assert data("dlq", "retry", "j0") == {"items": {"j0": True}}
    assert data("dlq", "archive", "j1")["items"] == {"j1": True}
    assert data("dlq", "delete", "j2", "nope", code=1)["items"] == {"j2": True, "nope": False}
    left = {item["id"]: item["state"] for item in data("dlq", "ls")["items"]}
    assert left == {"j0": "retrying", "j1": "archived"}
    stats = data("dlq", "stats")
    assert (stats["retried_count"], stats["archived_count"], stats["deleted_count"]) == (1, 1, 1)
    assert "retried_count: 1" in lex("dlq", "stats")
    assert "unknown dead letter 'nope'" in lex("dlq", "show", "nope", code=2)
    assert "unknown category" in lex("dlq", "ls", "--category", "odd", code=2)


def test_maintenance_is_listed_run_switched_and_remembered(lex, data):
    names = [task["name"] for task in data("maintenance", "ls")["tasks"]]
    assert names == [
        "index_optimization",
        "cache_cleanup",
        "document_cleanup",
        "metrics_rollup",
        "health_check",
    ]
    done = data("maintenance", "run", "metrics_rollup")
    assert (done["status"], done["items_processed"]) == ("completed", 8)
    lex("maintenance", "disable", "health_check")
    tasks = {task["name"]: task for task in data("maintenance", "ls")["tasks"]}
    assert tasks["health_check"]["enabled"] is False
    assert (tasks["metrics_rollup"]["run_count"], tasks["cache_cleanup"]["run_count"]) == (1, 0)
    lex("maintenance", "enable", "health_check")
    [run] = data("maintenance", "history")["runs"]
    assert run["task_name"] == "metrics_rollup"
    written = {row["name"]: row["value"] for row in data("maintenance", "statistics")["statistics"]}
    assert written["waiting.embedding.pending"] == 0.0
    assert "Task not found: metrics" in lex("maintenance", "run", "metrics", code=1)
    assert "unknown maintenance task 'x'" in lex("maintenance", "enable", "x", code=2)


def test_status_shows_workers_jobs_and_dead_letters(lex, data, dead_jobs):
    facts = data("status")
    assert [row["worker"] for row in facts["workers"]] == ["embedding", "ingestion"]
    assert facts["workers"][0]["pending"] == 0
    assert facts["dead_letters"]["total_items"] == 3
    assert "dead letters: 3" in lex("status")


def test_the_old_spelling_of_the_commands_works_and_is_hidden(folder, capfd):
    sys.modules.pop("workers_cli_app", None)
    assert main(["workers", "status", "--app", "workers_cli_app:create"]) == 0
    assert "embedding" in capfd.readouterr().out
    assert main(["--help"]) == 0
    _, _, commands = capfd.readouterr().out.partition("AI commands:")
    assert re.findall(r"^  (\w+) ", commands.partition("\n\n")[0], re.MULTILINE) == [
        "ai",
        "ingest",
        "lancedb",
        "search",
    ]


def test_an_application_without_what_is_asked_for_says_so(lex):
    assert "plain has no AI workers" in lex("status", app="without", code=2)
    told = lex("maintenance", "disable", "health_check", app="small", code=2)
    assert "would be lost" in told

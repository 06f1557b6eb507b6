"""Dead letters over killed processes: a job is tried on, a permanent failure is told of once."""

import signal
import subprocess
import sys

import pytest
from tests.processes import Popen

PROGRAM = """
import sys
from pathlib import Path

import anyio

from lexigram.ai.workers import DeadLetterConfig, DeadLetterQueueWorker, WorkersConfig, WorkersModule
from lexigram.ai.workers.embeddings.config import EmbeddingConfig
from lexigram.ai.workers.vectors.config import VectorConfig
from lexigram.app import Application
from lexigram.contracts.infra.tasks import TaskQueueProtocol
from lexigram.sql import SqlConfig, SqlModule
from lexigram.tasks import TasksModule, job

url, folder, role = sys.argv[1], Path(sys.argv[2]), sys.argv[3]


def note(name: str, text: str) -> None:
    with (folder / name).open("a") as file:
        file.write(text + "\\n")


@job("lost", max_retries=0)
async def lost(path: str) -> None:
    note("ran", path)
    raise FileNotFoundError(path)


@job("mend", max_retries=0)
async def mend(n: int) -> None:
    note("mend", str(n))
    if not (folder / "mended").exists():
        raise ConnectionError("away")


async def main() -> None:
    config = WorkersConfig(
        embeddings=EmbeddingConfig(provider="hashing"),
        vectors=VectorConfig(provider="memory"),
        enable_maintenance=False,
        dlq_check_interval=3600,  # it looks when this program says so
        dead_letters=DeadLetterConfig(base_backoff=0.2, max_retries=50),
    )
    modules = [
        SqlModule.configure(SqlConfig(url=url)),
        TasksModule.configure(handlers=[lost, mend]),
        WorkersModule.configure(config),
    ]
    async with Application("shop", modules=modules) as app:
        letters = app.container.get(DeadLetterQueueWorker)
        letters.set_notification_handler(lambda item: note("told", item.job_id))
        if role == "first":
            queue = app.container.get(TaskQueueProtocol)
            await queue.enqueue({"name": "lost", "id": "j1", "kwargs": {"path": "/x"}})
            await queue.enqueue({"name": "mend", "id": "j2", "kwargs": {"n": 1}})
        while True:
            await letters.check()
            stats = await letters.get_stats()
            print("checked", stats.permanent_failures, stats.succeeded_count, flush=True)
            await anyio.sleep(0.05)


anyio.run(main)
"""


class Process:
    """The program as a process of its own, and the lines it prints."""

    def __init__(self, folder, url, role):
        (folder / "program.py").write_text(PROGRAM)
        self.process = Popen(
            [sys.executable, str(folder / "program.py"), url, str(folder), role],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def until(self, wanted):
        """Read lines until one says so."""
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == ["checked"] and wanted(int(words[1]), int(words[2])):
                return
        raise AssertionError("the process ended")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.promise
def test_after_a_kill_dead_letters_are_retried_and_notified_once(sqlite_url, tmp_path):
    first = Process(tmp_path, sqlite_url, "first")
    first.until(lambda told, _: told == 1)
    first.kill()
    assert (tmp_path / "told").read_text().split() == ["j1"]
    second = Process(tmp_path, sqlite_url, "second")
    for _ in range(3):
        second.until(lambda told, _: told == 1)
    (tmp_path / "mended").write_text("")
    second.until(lambda _, succeeded: succeeded == 1)
    second.kill()
    assert (tmp_path / "told").read_text().split() == ["j1"]
    assert (tmp_path / "ran").read_text().split() == ["/x"]
    assert len((tmp_path / "mend").read_text().split()) >= 2

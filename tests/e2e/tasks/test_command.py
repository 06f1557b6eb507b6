import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from tests.processes import Popen

from lexigram.sql import Database
from lexigram.tasks import SqlTaskQueue

pytestmark = pytest.mark.anyio

SHOP = """
from lexigram.app import Application
from lexigram.sql import SqlConfig, SqlModule
from lexigram.tasks import TasksConfig, TasksModule, job


@job("add", queue="sums")
async def add(a: int, b: int) -> int:
    return a + b


def create() -> Application:
    sql = SqlModule.configure(SqlConfig(url="sqlite:///shop.db"))
    return Application("shop", modules=[sql, TasksModule.configure(
        TasksConfig(workers=False, poll=0.1), handlers=[add])])
"""


async def test_jobs_work_does_jobs_until_it_is_told_to_stop(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    command = [str(Path(sys.executable).with_name("lexigram")), "jobs"]
    arguments = ["--arg", "a=1", "--arg", "b=2", "--detach", "--app", "shop:create"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    enqueued = await anyio.run_process(
        [*command, "run", "add", *arguments], cwd=tmp_path, env=environment
    )
    job_id = enqueued.stdout.decode().strip()
    assert job_id, enqueued.stderr
    worker = Popen(
        [*command, "work", "--queue", "sums", "-c", "2", "--app", "shop:create"],
        cwd=tmp_path,
        env=environment,
    )
    try:
        async with Database(f"sqlite:///{tmp_path}/shop.db") as database:
            queue = SqlTaskQueue(database, poll=0.1)
            assert (await queue.wait(job_id, 60)).value == 3
        worker.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(worker.wait) == 0
    finally:
        worker.kill()
        worker.wait()

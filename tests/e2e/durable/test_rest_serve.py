"""``lexigram serve``: REST and a worker in one process, without the worker, and drained."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.processes import Popen

from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

LEXIGRAM = Path(sys.executable).with_name("lexigram")
HERE = Path(__file__).parent
TINY = """
id: tiny
name: Tiny
meta: {}
item_steps:
  parse: {name: look at it, method: look, parameters: {}}
lifecycle_events: null
"""
# Its own: that of another installed package is for other handlers.
PARAMS = "id: default\nname: Nothing\nmeta: {}\nconfig: {parse: {}}\n"


@pytest.fixture
def serve(tmp_path, blocking_calls_fail):
    blocking_calls_fail.deactivate()  # the test starts processes and reads their output
    (tmp_path / "config" / "workflows").mkdir(parents=True)
    (tmp_path / "config" / "workflows" / "tiny.yaml").write_text(TINY)
    (tmp_path / "config" / "params").mkdir()
    (tmp_path / "config" / "params" / "default.yaml").write_text(PARAMS)
    env = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "LEX_SQL__URL": f"sqlite:///{tmp_path}/served.db",
        "LEX_QUIET": "true",
        "LEX_WORKFLOW__DURABLE__POLL_INTERVAL": "0.2",
        "DEFAULT_WORKFLOW_ID": "tiny",
    }
    started = []

    def run(*options):
        process = Popen(
            [str(LEXIGRAM), "serve", "serve_app:create", "--json", *options],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, json.loads(process.stdout.readline())["url"]

    yield run
    for process in started:
        process.kill()
        process.communicate()


async def started_run(client):
    batch = (await client.post("/api/v1/batch/", data={"source": "s"})).json()["batch_id"]
    given = {"source_uri": "a", "source": "s", "batch_id": str(batch)}
    brought = await client.post(
        "/api/v1/document/ingest-document", data=given, files={"file": ("a", b"four")}
    )
    assert brought.status_code == 201, brought.text
    begun = await client.post("/api/v1/batch/start-workflows", data={"batch_id": batch})
    assert begun.status_code == 201, begun.text
    return begun.json()["run_group"]


async def test_a_served_application_works_on_what_it_is_given_and_drains(serve):
    process, url = serve()
    async with httpx.AsyncClient(base_url=url) as client:
        group = await started_run(client)

        async def ended():
            stats = await client.get(f"/api/v1/workflow/run-groups/{group}/stats")
            return stats.json()["group_status"] == "COMPLETED"

        await wait_until(ended, timeout=60)
        assert len((await client.get("/api/v1/workflow/workers")).json()) == 1
        assert (await client.get("/health/ready")).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0


async def test_without_a_worker_runs_wait_for_others(serve):
    process, url = serve("--no-worker")
    async with httpx.AsyncClient(base_url=url) as client:
        group = await started_run(client)
        assert (await client.get("/api/v1/workflow/workers")).json() == []
        stats = (await client.get(f"/api/v1/workflow/run-groups/{group}/stats")).json()
        assert (stats["pending"], stats["group_status"]) == (1, "PENDING")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0

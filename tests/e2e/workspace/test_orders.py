"""The orders example on PostgreSQL and a broker: the same code, another ``application.yaml``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from docblocks import ROOT
from tests.integration.queue.rabbitmq_place import clear, own_vhost
from tests.names import unique_name
from tests.processes import Popen

from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.sql import Database
from lexigram.testing import wait_until
from lexigram.testing.services import free_port

EXAMPLE = ROOT / "examples" / "orders"
HANG_GUARD = 120.0  # seconds; processes start slowly on a busy machine
LEXIGRAM = Path(sys.executable).parent / "lexigram"


@pytest.fixture
async def broker(services):
    """A backend of the bus on RabbitMQ, with nothing left of it afterwards."""
    with own_vhost(services["rabbitmq"]) as url:
        options = {"url": url, "exchange": unique_name()}
        yield {"name": "events", "driver": "rabbitmq", "rabbitmq": options}
        await clear(RabbitMQDriver(**options))


@pytest.mark.service("postgresql")
@pytest.mark.service("rabbitmq")
async def test_an_order_is_shipped_and_another_refunded(broker, own_schema, tmp_path):
    settings = {"sql": {"url": own_schema}, "queue": {"backends": [broker]}}
    (tmp_path / "application.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    shutil.copy(EXAMPLE / "app.py", tmp_path)
    async with Database(own_schema) as database:
        await database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT)")
    port, output = free_port(), tmp_path / "output.txt"
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        with (
            output.open("wb") as file,
            Popen(
                [LEXIGRAM, "serve", "app:app", "--port", str(port)],
                cwd=tmp_path,
                env={k: v for k, v in os.environ.items() if not k.startswith("LEX_")},
                stdout=file,
                stderr=subprocess.STDOUT,
            ) as server,
        ):
            try:
                await wait_until(lambda: is_ready(client), timeout=HANG_GUARD)
                for order in ("1/tea", "2/anvil"):
                    assert (await client.post(f"/orders/{order}")).status_code == 202
                await wait_until(lambda: have_ended(client), timeout=HANG_GUARD)
            finally:
                server.terminate()
                server.wait()
    printed = output.read_text(encoding="utf-8")
    for line in ("charge order 1", "ship order 1", "charge order 2", "refund order 2"):
        assert printed.count(line) == 1, printed


async def is_ready(client):
    try:
        return (await client.get("/health/ready")).status_code == 200
    except httpx.ConnectError:
        return False


async def have_ended(client):
    runs = (await client.get("/api/v1/workflow/runs")).json()
    return {run["status"] for run in runs} == {"COMPLETED", "FAILED"}

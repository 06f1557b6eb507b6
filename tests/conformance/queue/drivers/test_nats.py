"""The driver suite on a running NATS server, each test on streams of its own."""

import json
from uuid import uuid4

import nats
import pytest

from lexigram.queue.backends.nats import CAPABILITIES, NATSDriver
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.queue import DriverConformance
from lexigram.testing.services import KNOWN_SERVICES

pytestmark = pytest.mark.service("nats")

URL = f"nats://{KNOWN_SERVICES['nats'].address}"
BACKLOG = 250


def _driver(stream: str) -> NATSDriver:
    return NATSDriver(
        URL, stream=stream, visibility_timeout=2.5, max_backlog=BACKLOG, dedup_window=60.0
    )


async def on_nats():
    driver = _driver(f"test-{uuid4().hex[:12]}")
    await driver.connect()
    yield driver
    await driver.close()
    client = await nats.connect(URL)
    for name in (driver.stream, f"{driver.stream}-records", f"{driver.stream}-dead"):
        answer = await client.request(f"$JS.API.STREAM.DELETE.{name}")
        assert json.loads(answer.data)["success"]
    await client.close()


TestNATSDriver = conformance_suite(
    DriverConformance,
    on_nats,
    capabilities=CAPABILITIES,
    neighbour=lambda driver: _driver(driver.stream),
    max_backlog=lambda driver: BACKLOG,
)

"""The queue suite on a running NATS server, each test on streams of its own."""

import json
from uuid import uuid4

import nats
import pytest

from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.nats import NATSQueue
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance
from lexigram.testing.services import KNOWN_SERVICES

pytestmark = pytest.mark.service("nats")

URL = f"nats://{KNOWN_SERVICES['nats'].address}"
QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


def _queue(stream: str) -> NATSQueue:
    return NATSQueue(URL, stream, options=QUICK, visibility_timeout=2.5)


async def on_nats():
    queue = _queue(f"test-{uuid4().hex[:12]}")
    await queue.connect()
    yield queue
    await queue.close()
    client = await nats.connect(URL)
    for kind in ("", "-records", "-dead"):
        answer = await client.request(f"$JS.API.STREAM.DELETE.{queue.driver.stream}{kind}")
        assert json.loads(answer.data)["success"]
    await client.close()


TestNATSQueue = conformance_suite(
    QueueConformance,
    on_nats,
    capabilities=set(QueueCapability),
    neighbour=lambda queue: _queue(queue.driver.stream),
)

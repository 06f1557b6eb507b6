"""The queue suite on a running NATS server, each test on streams of its own."""

import pytest
from tests.integration.queue.nats_place import delete_streams
from tests.names import unique_name

from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.nats import NATSQueue
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance

pytestmark = pytest.mark.service("nats")

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


@pytest.fixture
def make(services):
    """Queues on one stream: other processes, as far as the server can tell."""
    url, stream = f"nats://{services['nats'].address}", unique_name()
    return lambda: NATSQueue(url, stream, options=QUICK, visibility_timeout=2.5)


class TestNATSQueue(QueueConformance):
    capabilities = frozenset(QueueCapability)

    @pytest.fixture
    async def subject(self, make, services):
        queue = make()
        await queue.connect()
        yield queue
        await queue.close()
        await delete_streams(services["nats"], queue.driver.stream)

    @pytest.fixture
    def neighbour(self, subject, make):
        return make()

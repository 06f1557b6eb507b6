"""The driver suite on a running NATS server, each test on streams of its own."""

import pytest
from tests.integration.queue.nats_place import delete_streams
from tests.names import unique_name

from lexigram.queue.backends.nats import CAPABILITIES, NATSDriver
from lexigram.testing.conformance.queue import DriverConformance

pytestmark = pytest.mark.service("nats")

BACKLOG = 250


@pytest.fixture
def make(services):
    """Drivers on one stream: other processes, as far as the server can tell."""
    url, stream = f"nats://{services['nats'].address}", unique_name()
    return lambda: NATSDriver(
        url, stream=stream, visibility_timeout=2.5, max_backlog=BACKLOG, dedup_window=60.0
    )


class TestNATSDriver(DriverConformance):
    capabilities = CAPABILITIES

    @pytest.fixture
    async def subject(self, make, services):
        driver = make()
        await driver.connect()
        yield driver
        await driver.close()
        await delete_streams(services["nats"], driver.stream)

    @pytest.fixture
    def neighbour(self, subject, make):
        return make()

    @pytest.fixture
    def max_backlog(self, subject):
        return BACKLOG

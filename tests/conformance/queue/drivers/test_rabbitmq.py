"""The driver suite on a running RabbitMQ: an exchange of its own per test, in a vhost of the run."""

import pytest
from tests.integration.queue.rabbitmq_place import clear, own_vhost
from tests.names import unique_name

from lexigram.queue.backends.rabbitmq import CAPABILITIES, QUORUM_CAPABILITIES, RabbitMQDriver
from lexigram.queue.config import RabbitMQDriverConfig
from lexigram.testing.conformance.queue import DriverConformance

pytestmark = pytest.mark.service("rabbitmq")

BACKLOG = 250


@pytest.fixture(scope="session")
def vhost(services):
    with own_vhost(services["rabbitmq"]) as url:
        yield url


class OnRabbitMQ(DriverConformance):
    queue_type = "classic"

    @pytest.fixture
    def make(self, vhost):
        exchange = unique_name()
        config = RabbitMQDriverConfig(queue_type=self.queue_type)
        return lambda: RabbitMQDriver(vhost, config=config, exchange=exchange, max_backlog=BACKLOG)

    @pytest.fixture
    async def subject(self, make):
        driver = make()
        await driver.connect()
        yield driver
        await clear(driver)

    @pytest.fixture
    def neighbour(self, subject, make):
        return make()

    @pytest.fixture
    def max_backlog(self, subject):
        return BACKLOG


class TestRabbitMQDriver(OnRabbitMQ):
    capabilities = CAPABILITIES


class TestRabbitMQDriverOnQuorumQueues(OnRabbitMQ):
    capabilities = QUORUM_CAPABILITIES
    queue_type = "quorum"

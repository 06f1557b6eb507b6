"""The queue suite on a running RabbitMQ, with an exchange of its own per test."""

import pytest
from tests.integration.queue.rabbitmq_place import clear, own_vhost
from tests.names import unique_name

from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.rabbitmq import RabbitMQQueue
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance

pytestmark = pytest.mark.service("rabbitmq")

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


@pytest.fixture(scope="module")
def vhost(services):
    with own_vhost(services["rabbitmq"]) as url:
        yield url


class TestRabbitMQQueue(QueueConformance):
    capabilities = frozenset(QueueCapability)

    @pytest.fixture
    def make(self, vhost):
        exchange = unique_name()
        return lambda: RabbitMQQueue(vhost, exchange, options=QUICK)

    @pytest.fixture
    async def subject(self, make):
        queue = make()
        await queue.connect()
        yield queue
        await queue.close()
        await clear(queue.driver)

    @pytest.fixture
    def neighbour(self, subject, make):
        return make()

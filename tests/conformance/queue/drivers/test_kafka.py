"""The driver suite on librdkafka's mock cluster; on real brokers with LEX_TEST_KAFKA (host:port)."""

import pytest
from tests.doubles.kafka.places import driver_on, place_name
from tests.doubles.kafka.server import kafka_servers

from lexigram.queue.backends.kafka import CAPABILITIES
from lexigram.testing.conformance.queue import DriverConformance

__all__ = ["kafka_servers"]  # a fixture

BACKLOG = 250


class TestKafkaDriverOnAMockCluster(DriverConformance):
    capabilities = CAPABILITIES

    @pytest.fixture
    async def subject(self, kafka_servers):
        driver = driver_on(kafka_servers, place_name(), max_backlog=BACKLOG)
        await driver.connect()
        yield driver
        await driver.close()

    @pytest.fixture
    def neighbour(self, subject, kafka_servers):
        return driver_on(kafka_servers, subject.group_id, max_backlog=BACKLOG)

    @pytest.fixture
    def max_backlog(self, subject):
        return BACKLOG

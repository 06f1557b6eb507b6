"""The queue suite on librdkafka's mock cluster; on real brokers with LEX_TEST_KAFKA (host:port)."""

import pytest
from tests.doubles.kafka.places import SETTINGS, place_name
from tests.doubles.kafka.server import kafka_servers

from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.kafka import KafkaQueue
from lexigram.queue.config import KafkaDriverConfig
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance

__all__ = ["kafka_servers"]  # a fixture

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


def _queue(servers, group_id):
    return KafkaQueue(
        servers, group_id=group_id, config=KafkaDriverConfig(**SETTINGS), options=QUICK
    )


class TestKafkaQueueOnAMockCluster(QueueConformance):
    capabilities = set(QueueCapability) - {QueueCapability.PATTERN}

    @pytest.fixture
    async def subject(self, kafka_servers):
        queue = _queue(kafka_servers, place_name())
        await queue.connect()
        yield queue
        await queue.close()

    @pytest.fixture
    def neighbour(self, subject, kafka_servers):
        return _queue(kafka_servers, subject.driver.group_id)

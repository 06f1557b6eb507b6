"""The queue suite on a double of Pub/Sub; on the real service with LEX_TEST_GCP_PUBSUB_PROJECT."""

import pytest
from tests.doubles.pubsub.places import LEASE, OneLoop, clear, driver_on, place_name, pubsub
from tests.queue_drivers import make

from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.gcp_pubsub import GCPPubSubQueue
from lexigram.queue.config import GCPPubSubDriverConfig
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance

__all__ = ["pubsub"]  # a fixture

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


def _queue(settings, prefix):
    own = {"topic_id": prefix, "max_messages": 100, "visibility_timeout": LEASE, "options": QUICK}
    return make(GCPPubSubQueue, GCPPubSubDriverConfig, **settings, **own)


class TestGCPPubSubQueueOnADouble(OneLoop, QueueConformance):
    capabilities = set(QueueCapability) - {QueueCapability.PATTERN}

    @pytest.fixture
    async def subject(self, pubsub):
        queue = _queue(pubsub, place_name())
        await queue.connect()
        yield queue
        await queue.close()
        await clear(driver_on(pubsub, queue.driver.prefix))

    @pytest.fixture
    def neighbour(self, subject, pubsub):
        return _queue(pubsub, subject.driver.prefix)

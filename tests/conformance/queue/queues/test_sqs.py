"""The queue suite on moto's SQS server (a double); on the real service with LEX_TEST_SQS_URL."""

import pytest
from tests.doubles.sqs.places import LEASE, REAL, clear, driver_on, place_name, sqs
from tests.queue_drivers import make

from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.sqs import SQSQueue
from lexigram.queue.config import SQSDriverConfig
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance

__all__ = ["sqs"]  # a fixture

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


def _queue(settings, prefix):
    settings = dict(settings)
    url = f"{settings.pop('endpoint_url')}/123456789012/{prefix}"
    own = {"queue_url": url, "visibility_timeout": LEASE, "options": QUICK}
    return make(SQSQueue, SQSDriverConfig, **settings, **own)


class TestSQSQueueOnMoto(QueueConformance):
    capabilities = frozenset(QueueCapability)

    @pytest.fixture
    async def subject(self, sqs):
        queue = _queue(sqs, place_name())
        await queue.connect()
        yield queue
        await queue.close()
        if REAL:
            await clear(driver_on(sqs, queue.driver.prefix))

    @pytest.fixture
    def neighbour(self, subject, sqs):
        return _queue(sqs, subject.driver.prefix)

"""The queue suite on a double of Service Bus; on the real service with LEX_TEST_AZURE_SERVICEBUS."""

import pytest
from tests.doubles.servicebus.places import LEASE, REAL, clear, driver_on, place_name, servicebus
from tests.queue_drivers import make

from lexigram.queue import BusOptions, RetryPolicy
from lexigram.queue.backends.azure_servicebus import AzureServiceBusQueue
from lexigram.queue.config import AzureServiceBusDriverConfig
from lexigram.testing.conformance.queue import QueueCapability, QueueConformance

__all__ = ["servicebus"]  # a fixture

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


def _queue(settings, prefix):
    own = {"queue_name": prefix, "visibility_timeout": LEASE, "options": QUICK}
    return make(AzureServiceBusQueue, AzureServiceBusDriverConfig, **settings, **own)


class TestAzureServiceBusQueueOnADouble(QueueConformance):
    capabilities = set(QueueCapability) - {QueueCapability.PATTERN}

    @pytest.fixture
    async def subject(self, servicebus):
        queue = _queue(servicebus, place_name())
        await queue.connect()
        yield queue
        await queue.close()
        if REAL:
            await clear(driver_on(servicebus, queue.driver.prefix))

    @pytest.fixture
    def neighbour(self, subject, servicebus):
        return _queue(servicebus, subject.driver.prefix)

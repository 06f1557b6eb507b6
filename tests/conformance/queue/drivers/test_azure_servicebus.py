"""The driver suite on a double of Service Bus, which the vendor's own client speaks to.

With LEX_TEST_AZURE_SERVICEBUS (a connection string) it runs on the real service instead.
"""

import pytest
from tests.doubles.servicebus.places import REAL, clear, driver_on, place_name, servicebus

from lexigram.contracts.queue import Capability
from lexigram.queue.backends.azure_servicebus import CAPABILITIES
from lexigram.testing.conformance.queue import DriverConformance

__all__ = ["servicebus"]  # a fixture

BACKLOG = 250
# With sessions a group has two queues. Without, it is under test in queues/ and in integration.
SETTINGS = {"max_backlog": BACKLOG, "dedup_window": 60.0, "sessions": True}


class TestAzureServiceBusDriverOnADouble(DriverConformance):
    capabilities = CAPABILITIES | {Capability.ORDERING}

    @pytest.fixture
    async def subject(self, servicebus):
        driver = driver_on(servicebus, place_name(), **SETTINGS)
        await driver.connect()
        yield driver
        await driver.close()
        if REAL:
            await clear(driver)

    @pytest.fixture
    def neighbour(self, subject, servicebus):
        return driver_on(servicebus, subject.prefix, **SETTINGS)

    @pytest.fixture
    def max_backlog(self, subject):
        return BACKLOG

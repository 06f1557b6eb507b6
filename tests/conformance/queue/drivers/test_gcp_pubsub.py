"""The driver suite on a double of Pub/Sub, which the vendor's own client speaks to.

With LEX_TEST_GCP_PUBSUB_PROJECT it runs on the real service instead.
"""

import pytest
from tests.doubles.pubsub.places import OneLoop, clear, driver_on, place_name, pubsub

from lexigram.queue.backends.gcp_pubsub import CAPABILITIES
from lexigram.testing.conformance.queue import DriverConformance

__all__ = ["pubsub"]  # a fixture


class TestGCPPubSubDriverOnADouble(OneLoop, DriverConformance):
    capabilities = CAPABILITIES

    @pytest.fixture
    async def subject(self, pubsub):
        driver = driver_on(pubsub, place_name())
        await driver.connect()
        yield driver
        await driver.close()
        await clear(driver)

    @pytest.fixture
    def neighbour(self, subject, pubsub):
        return driver_on(pubsub, subject.prefix)

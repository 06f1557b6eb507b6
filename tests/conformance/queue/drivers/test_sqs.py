"""The driver suite on moto's SQS server (a double), by standard and by FIFO queues.

With LEX_TEST_SQS_URL it runs on the real service instead.
"""

import os

import pytest
from tests.doubles.sqs.places import LEASE, REAL, clear, driver_on, place_name, sqs

from lexigram.blobs import BlobConfig, BlobStore
from lexigram.queue.backends.sqs import CAPABILITIES, OF_FIFO
from lexigram.testing.conformance.queue import DriverConformance
from lexigram.testing.conformance.queue.driver.deduplication import DeduplicationSpec
from lexigram.testing.conformance.queue.driver.ordering import OrderingSpec
from lexigram.testing.conformance.queue.driver.publishing import PublishingSpec
from lexigram.testing.conformance.queue.driver.redriving import RedrivingSpec
from lexigram.testing.conformance.queue.driver.retrying import RetryingSpec
from lexigram.testing.conformance.queue.driver.scheduling import SchedulingSpec

__all__ = ["sqs"]  # a fixture

BACKLOG = 250
FULL = REAL or int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
# Where FIFO queues and stored bodies go ways of their own; `make chaos` runs the whole suite there.
SHORT = (
    *(PublishingSpec, RetryingSpec, RedrivingSpec),
    *(SchedulingSpec, OrderingSpec, DeduplicationSpec),
)


class OnMoto:
    fifo = False

    @pytest.fixture
    async def subject(self, sqs, request):
        # One test holds 250 at once: a busy machine takes longer for them than a second.
        lease = 15.0 if "refuses_what_it_cannot_keep" in request.node.name else LEASE
        driver = await self.make(sqs, place_name(), visibility_timeout=lease, max_backlog=BACKLOG)
        await driver.connect()
        yield driver
        await driver.close()
        if REAL:
            await clear(driver)

    async def make(self, settings, prefix, **more):
        return driver_on(settings, prefix, **more)

    @pytest.fixture
    def neighbour(self, subject, sqs):
        return driver_on(
            sqs, subject.prefix, max_backlog=BACKLOG, fifo=self.fifo, blobs=subject.blobs
        )

    @pytest.fixture
    def max_backlog(self, subject):
        return BACKLOG


class TestSQSDriverOnMoto(OnMoto, DriverConformance):
    capabilities = CAPABILITIES


@pytest.mark.chaos
class TestSQSDriverWithFifoQueuesAndABlobStoreOnMoto(OnMoto, DriverConformance):
    capabilities = CAPABILITIES | OF_FIFO
    fifo = True

    async def make(self, settings, prefix, **more):
        blobs = await BlobStore.open(BlobConfig(scheme="memory"))
        own = {"fifo": True, "dedup_window": 300.0, "inline_bytes": 10, "blobs": blobs}
        return driver_on(settings, prefix, **own, **more)


if not FULL:
    wanted = {name for spec in SHORT for name in vars(spec)}
    for name in dir(DriverConformance):
        if name.startswith("test_") and name not in wanted:
            setattr(TestSQSDriverWithFifoQueuesAndABlobStoreOnMoto, name, None)  # not collected

"""Where the tests of the Pub/Sub driver run: the double, or a real project.

With LEX_TEST_GCP_PUBSUB_PROJECT (a project, with the application default credentials) the same
suites run on the service; its deadlines are longer, so they take longer.
"""

import os
from uuid import uuid4

import pytest
from tests.doubles.pubsub.server import PubSubDouble, demand_pubsub, settle_calls
from tests.queue_drivers import make

from lexigram.queue.backends.gcp_pubsub import GCPPubSubDriver
from lexigram.queue.config import GCPPubSubDriverConfig

demand_pubsub()

REAL = os.environ.get("LEX_TEST_GCP_PUBSUB_PROJECT")
LEASE = 10.0 if REAL else 3.0
PROJECT = "lexigram-test"


@pytest.fixture(scope="session")
def pubsub():
    """The settings of a driver: of the double, unless another place is given."""
    if REAL:
        yield {"project_id": REAL}
    else:
        with PubSubDouble() as double:
            yield {"project_id": PROJECT, "emulator_host": double.host}


class OneLoop:
    """All tests of a class in one loop: the gRPC library does not bear one that is closed soon.

    See ``settle_calls``.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def anyio_backend(cls):
        return "asyncio"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    async def one_loop(cls, anyio_backend):
        yield
        await settle_calls()


def place_name():
    return f"t{os.getpid()}-{uuid4().hex[:8]}"


def driver_on(settings, prefix, **more):
    more = {"visibility_timeout": LEASE, "max_messages": 100, **settings, **more}
    return make(GCPPubSubDriver, GCPPubSubDriverConfig, topic_id=prefix, **more)


async def clear(driver):
    """Delete what a test made on a service that lasts."""
    if not REAL:
        return
    await driver.connect()
    for topic, group in await driver.groups():
        await driver.drop(topic, group)
    await driver.close()

"""Where the tests of the Service Bus driver run: the double, or a real namespace.

With LEX_TEST_AZURE_SERVICEBUS (a connection string) the same suites run on the service; its
locks are at least five seconds long, so they take longer.
"""

import os
from contextlib import contextmanager
from uuid import uuid4

import pytest
from tests.doubles.servicebus.quick import without_naps
from tests.doubles.servicebus.server import ServiceBusDouble, demand_proton
from tests.queue_drivers import make

from lexigram.queue.backends.azure_servicebus import AzureServiceBusDriver
from lexigram.queue.config import AzureServiceBusDriverConfig

if not os.environ.get("LEX_TEST_AZURE_SERVICEBUS"):
    demand_proton()

REAL = os.environ.get("LEX_TEST_AZURE_SERVICEBUS")
LEASE = 5.0 if REAL else 3.0


@pytest.fixture(scope="session")
def servicebus():
    with settings() as found:
        yield found


@contextmanager
def settings():
    """The connection settings of a driver: of the double, unless a real namespace is given."""
    if REAL:
        yield {"connection_str": REAL}
        return
    patch = pytest.MonkeyPatch()
    without_naps(patch)
    with ServiceBusDouble() as double:
        yield {"connection_str": double.connection_str, "management_str": double.management_str}
    patch.undo()


def place_name():
    return f"t{os.getpid()}-{uuid4().hex[:8]}"


def driver_on(settings, prefix, **more):
    more = {"visibility_timeout": LEASE, "max_wait_time": 1.0, **settings, **more}
    return make(AzureServiceBusDriver, AzureServiceBusDriverConfig, queue_name=prefix, **more)


async def clear(driver):
    """Delete all entities of the prefix."""
    await driver.connect()
    for topic, group in await driver.groups():
        await driver.drop(topic, group)
    await driver.close()

"""The suite of task queues over brokers: Redis, RabbitMQ and NATS live, and two without a server.

Each broker has another state behind it, so that both kinds meet more than one broker. The polls
are long where the broker is live: a test that passes was woken by a call.
"""

import pytest
from tests.conformance.tasks.handler_failures import HandlerFailures
from tests.integration.queue.nats_place import delete_streams
from tests.integration.queue.rabbitmq_place import clear

from lexigram.queue.backends.memory import MemoryBroker, MemoryDriver
from lexigram.queue.backends.nats import NATSDriver
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.backends.redis import RedisDriver
from lexigram.queue.backends.sql import SqlDriver
from lexigram.queue.tasks import BusTaskQueue
from lexigram.sql import Database
from lexigram.tasks.store_memory import MemoryStore
from lexigram.tasks.store_sql import SqlStore
from lexigram.testing.conformance.tasks import TaskQueueCapability, TaskQueueConformance

LONG_POLL = 10.0  # seconds


class OverABroker(HandlerFailures, TaskQueueConformance):
    capabilities = frozenset(TaskQueueCapability)


class TestTaskQueueOverMemory(OverABroker):
    @pytest.fixture
    def broker(self):
        return MemoryBroker()

    @pytest.fixture
    def state(self):
        return MemoryStore(poll=0.2)

    @pytest.fixture
    async def subject(self, broker, state):
        driver = MemoryDriver(broker)
        await driver.connect()
        return BusTaskQueue(driver, state, poll=LONG_POLL)

    @pytest.fixture
    async def neighbour(self, subject, broker, state):
        driver = MemoryDriver(broker)
        await driver.connect()
        return BusTaskQueue(driver, state, poll=LONG_POLL)


class TestTaskQueueOverSqlite(OverABroker):
    @pytest.fixture
    async def subject(self, sqlite):
        driver = SqlDriver(sqlite)
        await driver.connect()
        yield BusTaskQueue(driver, SqlStore(sqlite, poll=0.1), poll=0.1)
        await driver.close()

    @pytest.fixture
    async def neighbour(self, subject, sqlite_url):
        async with Database(sqlite_url) as database:
            driver = SqlDriver(database)
            await driver.connect()
            yield BusTaskQueue(driver, SqlStore(database, poll=0.1), poll=0.1)
            await driver.close()


@pytest.mark.service("redis")
class TestTaskQueueOverRedis(OverABroker):
    @pytest.fixture
    async def subject(self, redis_url, prefix, make_redis_jobs):
        driver = RedisDriver(redis_url, prefix=prefix)
        await driver.connect()
        yield BusTaskQueue(driver, make_redis_jobs(), poll=LONG_POLL)
        await driver.close()

    @pytest.fixture
    async def neighbour(self, subject, redis_url, prefix, make_redis_jobs):
        driver = RedisDriver(redis_url, prefix=prefix)
        await driver.connect()
        yield BusTaskQueue(driver, make_redis_jobs(), poll=LONG_POLL)
        await driver.close()


@pytest.mark.service("rabbitmq")
@pytest.mark.service("postgresql")
class TestTaskQueueOverRabbitMQ(OverABroker):
    @pytest.fixture
    async def subject(self, vhost, prefix, postgres):
        driver = RabbitMQDriver(vhost, exchange=prefix)
        await driver.connect()
        yield BusTaskQueue(driver, SqlStore(postgres, poll=0.5), poll=LONG_POLL)
        await clear(driver)

    @pytest.fixture
    async def neighbour(self, subject, vhost, prefix, postgres_url):
        driver = RabbitMQDriver(vhost, exchange=prefix)
        await driver.connect()
        async with Database(postgres_url) as database:
            yield BusTaskQueue(driver, SqlStore(database, poll=0.5), poll=LONG_POLL)
        await driver.close()


@pytest.mark.service("nats")
@pytest.mark.service("redis")
class TestTaskQueueOverNATS(OverABroker):
    @pytest.fixture
    async def subject(self, services, prefix, make_redis_jobs):
        driver = NATSDriver(f"nats://{services['nats'].address}", stream=prefix)
        await driver.connect()
        yield BusTaskQueue(driver, make_redis_jobs(), poll=LONG_POLL)
        await driver.close()
        await delete_streams(services["nats"], prefix)

    @pytest.fixture
    async def neighbour(self, services, subject, prefix, make_redis_jobs):
        driver = NATSDriver(f"nats://{services['nats'].address}", stream=prefix)
        await driver.connect()
        yield BusTaskQueue(driver, make_redis_jobs(), poll=LONG_POLL)
        await driver.close()

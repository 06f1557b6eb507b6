import pytest
from tests.conformance.tasks.handler_failures import HandlerFailures

from lexigram.sql import Database
from lexigram.tasks import InMemoryTaskQueue, SqlTaskQueue
from lexigram.tasks.queue import TaskQueue
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.tasks import TaskQueueCapability, TaskQueueConformance

TestInMemoryTaskQueue = conformance_suite(
    TaskQueueConformance,
    lambda: InMemoryTaskQueue(poll=0.05),
    capabilities=TaskQueueCapability,
    # The store is the shared part; another queue object on it is what another user has.
    neighbour=lambda queue: TaskQueue(queue.store),
)


class TestSqliteTaskQueue(HandlerFailures, TaskQueueConformance):
    capabilities = frozenset(TaskQueueCapability)

    @pytest.fixture
    async def subject(self, sqlite):
        return SqlTaskQueue(sqlite, poll=0.05)

    @pytest.fixture
    async def neighbour(self, subject, sqlite_url):
        async with Database(sqlite_url) as database:
            yield SqlTaskQueue(database, poll=0.05)


@pytest.mark.service("postgresql")
class TestPostgresTaskQueue(HandlerFailures, TaskQueueConformance):
    capabilities = frozenset(TaskQueueCapability)

    @pytest.fixture
    async def subject(self, postgres):
        return SqlTaskQueue(postgres, poll=0.5)

    @pytest.fixture
    async def neighbour(self, subject, postgres_url):
        async with Database(postgres_url) as database:
            yield SqlTaskQueue(database, poll=0.5)

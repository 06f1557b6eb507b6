"""One suite for every saga store we ship: memory, SQLite, PostgreSQL."""

import pytest

from lexigram.contracts.workflow import SagaState
from lexigram.sql import Database
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.sagas import SagaStoreCapability, SagaStoreConformance
from lexigram.workflow.saga import InMemorySagaStore, SqlSagaStore

TestInMemorySagaStore = conformance_suite(
    SagaStoreConformance,
    InMemorySagaStore,
    capabilities={SagaStoreCapability.STATES, SagaStoreCapability.LEASES},
)


class OnSql(SagaStoreConformance):
    @pytest.fixture
    async def neighbour(self, subject):
        async with Database(subject._db.config) as other:
            yield SqlSagaStore(other)

    async def test_a_save_joins_the_transaction_of_its_task(self, subject):
        with pytest.raises(RuntimeError):
            async with subject._db.transaction():
                await subject.save("s", SagaState.RUNNING, {})
                raise RuntimeError
        assert await subject.load("s") is None


class TestSqliteSagaStore(OnSql):
    capabilities = frozenset(SagaStoreCapability)

    @pytest.fixture
    async def subject(self, sqlite):
        return SqlSagaStore(sqlite)


@pytest.mark.service("postgresql")
class TestPostgresSagaStore(OnSql):
    capabilities = frozenset(SagaStoreCapability)

    @pytest.fixture
    async def subject(self, postgres):
        return SqlSagaStore(postgres)

"""One suite for every state persistence we ship: memory, SQLite, PostgreSQL."""

import pytest

from lexigram.contracts.workflow import StateVersionConflictError
from lexigram.sql import Database
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.states import (
    StatePersistenceCapability,
    StatePersistenceConformance,
)
from lexigram.workflow.state import DatabaseStatePersistence, InMemoryStatePersistence

TestInMemoryStatePersistence = conformance_suite(
    StatePersistenceConformance,
    InMemoryStatePersistence,
    capabilities={StatePersistenceCapability.HISTORY, StatePersistenceCapability.VERSIONS},
)


class OnSql(StatePersistenceConformance):
    @pytest.fixture
    async def neighbour(self, subject):
        async with Database(subject._db.config) as other:
            yield DatabaseStatePersistence(other)

    async def test_a_conflict_leaves_the_transaction_around_it_usable(self, subject):
        await subject.append_transition("m", "a", "go", "b", 0)
        async with subject._db.transaction():
            with pytest.raises(StateVersionConflictError):
                await subject.append_transition("m", "a", "go", "c", 0)
            await subject.append_transition("m", "b", "go", "c", 1)
        assert await subject.get_current_version("m") == 2

    async def test_a_table_may_have_another_name(self, subject):
        own = DatabaseStatePersistence(subject._db, "my_moves")
        await own.create_table()
        await own.create_table()
        await own.append_transition("m", "a", "go", "b", 0)
        assert await subject.get_current_version("m") == 0


class TestSqliteStatePersistence(OnSql):
    capabilities = frozenset(StatePersistenceCapability)

    @pytest.fixture
    async def subject(self, sqlite):
        return DatabaseStatePersistence(sqlite)


@pytest.mark.service("postgresql")
class TestPostgresStatePersistence(OnSql):
    capabilities = frozenset(StatePersistenceCapability)

    @pytest.fixture
    async def subject(self, postgres):
        return DatabaseStatePersistence(postgres)

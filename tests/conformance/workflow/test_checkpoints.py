"""One suite for every checkpoint store we ship: memory, SQLite, PostgreSQL."""

import pytest

from lexigram.contracts.workflow import CheckpointConflictError
from lexigram.sql import Database
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.checkpoints import (
    CheckpointCapability,
    CheckpointConformance,
    a_checkpoint,
    a_run,
    numbers,
)
from lexigram.workflow.checkpoint import InMemoryCheckpointStore, SqlCheckpointStore

TestInMemoryCheckpointStore = conformance_suite(
    CheckpointConformance,
    lambda: InMemoryCheckpointStore(max_runs=100),
    capabilities=set(CheckpointCapability) - {CheckpointCapability.SHARING},
)


class OnSql(CheckpointConformance):
    @pytest.fixture
    async def neighbour(self, subject):
        async with Database(subject._db.config) as other:
            yield SqlCheckpointStore(other)

    async def test_a_step_joins_the_transaction_of_its_task(self, subject):
        """With the user's own rows, or not at all."""
        await subject.create(a_run(), a_checkpoint(0))
        with pytest.raises(RuntimeError):
            async with subject._db.transaction():
                await subject.append(a_checkpoint(1))
                raise RuntimeError
        async with subject._db.transaction():
            await subject.append(a_checkpoint(1))
        with pytest.raises(CheckpointConflictError):
            await subject.append(a_checkpoint(1))
        assert numbers(await subject.history("r")) == [0, 1]


class TestSqliteCheckpointStore(OnSql):
    capabilities = frozenset(CheckpointCapability)

    @pytest.fixture
    async def subject(self, sqlite):
        return SqlCheckpointStore(sqlite)


@pytest.mark.service("postgresql")
class TestPostgresCheckpointStore(OnSql):
    capabilities = frozenset(CheckpointCapability)

    @pytest.fixture
    async def subject(self, postgres):
        return SqlCheckpointStore(postgres)

import pytest

from lexigram.tasks import (
    IdempotencyManager,
    InMemoryTaskQueue,
    JobDeadLetters,
    MemoryProgress,
    MemorySubmissions,
    ProgressTracker,
    SqlProgress,
    SqlSubmissions,
    SqlTaskQueue,
)
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.tasks import (
    DLQConformance,
    IdempotencyConformance,
    ProgressConformance,
)

TestDeadLettersInMemory = conformance_suite(
    DLQConformance, lambda: JobDeadLetters(InMemoryTaskQueue())
)
TestProgressInMemory = conformance_suite(
    ProgressConformance, lambda: ProgressTracker(MemoryProgress(poll=0.05))
)
TestProgressOfJobsInMemory = conformance_suite(
    ProgressConformance,
    lambda: ProgressTracker(MemoryProgress(poll=0.05), InMemoryTaskQueue(poll=0.05)),
)
TestIdempotencyInMemory = conformance_suite(
    IdempotencyConformance, lambda: IdempotencyManager(MemorySubmissions())
)


class TestDeadLettersInSqlite(DLQConformance):
    @pytest.fixture
    def subject(self, sqlite):
        return JobDeadLetters(SqlTaskQueue(sqlite))


class TestProgressInSqlite(ProgressConformance):
    @pytest.fixture
    def subject(self, sqlite):
        return ProgressTracker(SqlProgress(sqlite, poll=0.05), SqlTaskQueue(sqlite, poll=0.05))


class TestIdempotencyInSqlite(IdempotencyConformance):
    @pytest.fixture
    def subject(self, sqlite):
        return IdempotencyManager(SqlSubmissions(sqlite))


@pytest.mark.service("postgresql")
class TestDeadLettersInPostgres(DLQConformance):
    @pytest.fixture
    def subject(self, postgres):
        return JobDeadLetters(SqlTaskQueue(postgres))


@pytest.mark.service("postgresql")
class TestProgressInPostgres(ProgressConformance):
    @pytest.fixture
    def subject(self, postgres):
        return ProgressTracker(SqlProgress(postgres), SqlTaskQueue(postgres))


@pytest.mark.service("postgresql")
class TestIdempotencyInPostgres(IdempotencyConformance):
    @pytest.fixture
    def subject(self, postgres):
        return IdempotencyManager(SqlSubmissions(postgres))

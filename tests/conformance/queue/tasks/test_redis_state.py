"""The state of jobs in Redis alone, without a broker: the suites of the core's stores."""

import pytest

from lexigram.queue.tasks import RedisProgress, RedisSubmissions
from lexigram.tasks import IdempotencyManager, JobDeadLetters, ProgressTracker
from lexigram.tasks.queue import TaskQueue
from lexigram.testing.conformance.tasks import (
    DLQConformance,
    IdempotencyConformance,
    ProgressConformance,
    TaskQueueCapability,
    TaskQueueConformance,
)

pytestmark = pytest.mark.service("redis")


class TestJobsInRedis(TaskQueueConformance):
    capabilities = frozenset(TaskQueueCapability)

    @pytest.fixture
    def subject(self, make_redis_jobs):
        return TaskQueue(make_redis_jobs())

    @pytest.fixture
    def neighbour(self, subject, make_redis_jobs):
        return TaskQueue(make_redis_jobs())


class TestDeadLettersInRedis(DLQConformance):
    @pytest.fixture
    def subject(self, make_redis_jobs):
        return JobDeadLetters(TaskQueue(make_redis_jobs()))


class TestProgressInRedis(ProgressConformance):
    @pytest.fixture
    def subject(self, make_redis_jobs):
        jobs = make_redis_jobs()
        return ProgressTracker(RedisProgress(jobs), TaskQueue(jobs))


class TestIdempotencyInRedis(IdempotencyConformance):
    @pytest.fixture
    def subject(self, make_redis_jobs):
        return IdempotencyManager(RedisSubmissions(make_redis_jobs()))

"""Applications whose jobs go over live brokers, as their configuration says."""

import nats
import pytest
from redis.asyncio import Redis
from tests.integration.queue.rabbitmq_place import clear, own_vhost
from tests.names import unique_name

from lexigram.app import Application
from lexigram.contracts.infra.tasks import ProgressStatus, TaskQueueError
from lexigram.queue import QueueConfig, QueueModule
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.tasks import BusJobsConfig, BusJobsModule, RedisJobs
from lexigram.sql import Database, SqlConfig, SqlModule
from lexigram.tasks import JobContext, Jobs, ProgressTracker, TasksConfig, TasksModule, job
from lexigram.tasks.queue import TaskQueue

pytestmark = pytest.mark.anyio
GUARD = 30.0
NEVER = 1000.0  # seconds: a poll that finds nothing in time


@job("double")
async def double(number: int, context: JobContext) -> int:
    await context.progress(1, 2)
    return 2 * number


def application(backend, *modules, **jobs):
    config = QueueConfig.from_dict({"backends": [{"name": "events", **backend}]})
    return Application(
        modules=[
            QueueModule.configure(config),
            TasksModule.configure(TasksConfig(), handlers=[double]),
            BusJobsModule.configure(BusJobsConfig(backend="events", **jobs)),
            *modules,
        ]
    )


@pytest.fixture
async def redis(services):
    """The URL, and a prefix whose keys are removed."""
    url = f"redis://{services['redis'].address}/0"
    prefix = unique_name()
    yield url, prefix
    async with Redis.from_url(url) as client:
        async for key in client.scan_iter(f"{prefix}*", count=1000):
            await client.delete(key)


async def done(app):
    jobs = app.container.get(Jobs)
    job_id = await jobs.submit(double, number=21)
    assert await jobs.result(job_id, GUARD) == 42
    progress = await app.container.get(ProgressTracker).get(job_id)
    assert (progress.current, progress.status) == (1, ProgressStatus.COMPLETE)


@pytest.mark.quick
@pytest.mark.service("redis")
async def test_over_redis_with_the_state_in_redis(redis):
    url, prefix = redis
    backend = {"driver": "redis", "redis": {"url": url, "prefix": prefix}}
    place = {"redis_url": url, "prefix": prefix + ":{jobs}"}
    async with application(backend, poll=NEVER, **place) as app:
        await done(app)


@pytest.mark.quick
@pytest.mark.service("nats")
@pytest.mark.service("redis")
async def test_over_nats_with_the_state_in_redis(redis, services):
    url, prefix = redis
    address = f"nats://{services['nats'].address}"
    backend = {"driver": "nats", "nats": {"url": address, "stream": prefix}}
    place = {"redis_url": url, "prefix": prefix + ":{jobs}"}
    async with application(backend, poll=NEVER, **place) as app:
        await done(app)
    client = await nats.connect(address)
    for name in (prefix, f"{prefix}-records", f"{prefix}-dead"):
        await client.request(f"$JS.API.STREAM.DELETE.{name}")
    await client.close()


@pytest.mark.quick
@pytest.mark.service("rabbitmq")
async def test_over_rabbitmq_a_job_of_a_transaction_is_called_for_after_the_commit(
    services, sqlite_url
):
    with own_vhost(services["rabbitmq"]) as url:
        backend = {"driver": "rabbitmq", "rabbitmq": {"url": url}}
        database = SqlModule.configure(SqlConfig(url=sqlite_url))
        async with application(backend, database, poll=NEVER) as app:
            await done(app)
            jobs, db = app.container.get(Jobs), app.container.get(Database)
            async with db.transaction():
                job_id = await jobs.submit(double, number=4)
            assert await jobs.result(job_id, GUARD) == 8
        driver = RabbitMQDriver(url)
        await driver.connect()
        await clear(driver)


async def test_a_state_that_cannot_be_reached_is_an_error_of_the_queue():
    jobs = RedisJobs("redis://127.0.0.1:1/0", timeout=1.0)
    with pytest.raises(TaskQueueError, match="job store failed") as caught:
        await TaskQueue(jobs).get_task_count()
    assert "queue_jobs.redis_url" in caught.value.hint
    await jobs.aclose()

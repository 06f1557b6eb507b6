"""A worker whose PostgreSQL goes away while a job runs, and while it stops."""

import anyio
import pytest
from tests.doubles.proxy import proxy_to

from lexigram.contracts.infra.tasks import JobStatus
from lexigram.sql import Database, SqlConfig
from lexigram.tasks import PoolSettings, SqlTaskQueue, TaskWorker
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.service("postgresql")]


@pytest.fixture
async def proxy(services):
    async with proxy_to(services["postgresql"].address) as opened:
        yield opened


@pytest.fixture
async def through(postgres, postgres_url, proxy, services):
    """The queue as the worker sees it: through the proxy."""
    url = postgres_url.replace(services["postgresql"].address, proxy.address)
    config = SqlConfig(url=url, retry_attempts=1, connect_timeout=2.0)
    async with Database(config) as database:
        yield SqlTaskQueue(database, poll=0.1)


async def ended(queue, job_id):
    return (await queue.get_job(job_id)).status is JobStatus.COMPLETED


async def test_a_job_whose_end_could_not_be_written_within_the_lease_runs_again(
    postgres, through, proxy, caplog
):
    direct, attempts = SqlTaskQueue(postgres, poll=0.1), []

    async def work():
        attempts.append(None)
        if len(attempts) == 1:
            proxy.refuse()

    job_id = (await direct.enqueue({"name": "work"})).unwrap()
    worker = TaskWorker("w", through, {"work": work}, PoolSettings(concurrency=1, lease=1.0))
    await worker.start()
    await wait_until(lambda: "the end of a job could not be written" in caplog.text)
    assert "cannot renew leases" in caplog.text
    proxy.accept()
    await wait_until(lambda: ended(direct, job_id))
    assert len(attempts) == 2
    await worker.stop()


async def test_a_worker_cancelled_during_an_outage_leaves_its_job_to_the_next(
    postgres, through, proxy, caplog
):
    direct, begun = SqlTaskQueue(postgres, poll=0.1), anyio.Event()

    async def hang():
        begun.set()
        await anyio.sleep_forever()

    job_id = (await direct.enqueue({"name": "work"})).unwrap()
    worker = TaskWorker("w", through, {"work": hang}, PoolSettings(concurrency=1, lease=1.0))
    await worker.start()
    await begun.wait()
    proxy.refuse()
    with anyio.move_on_after(0) as scope:
        await worker.stop()
    assert scope.cancelled_caught
    await worker.wait()
    assert "jobs were not handed back" in caplog.text
    other = TaskWorker("o", direct, {"work": lambda: None}, PoolSettings(lease=1.0))
    await other.start()
    await wait_until(lambda: ended(direct, job_id))
    await other.stop()

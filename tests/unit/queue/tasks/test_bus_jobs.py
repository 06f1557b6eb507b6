"""Jobs over a broker that is away, forgets, or is asked for too much; all in memory."""

import anyio
import pytest

from lexigram import clock
from lexigram.app import Application
from lexigram.contracts.infra.tasks import EndKind, JobEnd, TaskQueueError
from lexigram.contracts.queue import QueueError
from lexigram.di.errors import ProviderError
from lexigram.queue import QueueModule
from lexigram.queue.backends.memory import MemoryBroker, MemoryDriver
from lexigram.queue.tasks import BusJobs, BusJobsConfig, BusJobsModule, BusTaskQueue
from lexigram.queue.tasks.store import GROUP, TOPIC
from lexigram.tasks import Jobs, TaskQueue, TasksConfig, TasksModule, TaskWorker, WorkerPools, job
from lexigram.tasks.config import PoolSettings
from lexigram.tasks.store_memory import MemoryStore

pytestmark = pytest.mark.anyio
GUARD = 20.0
NEVER = 1000.0  # seconds: a poll that finds nothing in time


class Flaky(MemoryDriver):
    """A driver whose broker can be away."""

    away = False

    def _check(self):
        super()._check()
        if self.away:
            raise QueueError("the broker is away", backend="memory")

    def publish_nowait(self, message):
        self._check()
        return super().publish_nowait(message)


@pytest.fixture
def broker():
    return MemoryBroker()


@pytest.fixture
async def driver(broker):
    made = Flaky(broker)
    await made.connect()
    yield made
    await made.close()


@job("double")
async def double(number: int) -> int:
    return 2 * number


async def test_a_call_wakes_one_worker(driver):
    queue = BusTaskQueue(driver, MemoryStore(), poll=NEVER)
    async with queue.listening("work") as news:
        await queue.claim("me", 1)
        (await queue.enqueue({"name": "double"})).unwrap()
        with anyio.fail_after(GUARD):
            while not await news.wait():
                pass


async def test_calls_of_claimed_jobs_are_taken_from_the_broker(driver):
    queue = BusTaskQueue(driver, MemoryStore())
    for _ in range(5):
        (await queue.enqueue({"name": "double"})).unwrap()
    topic = f"{TOPIC}.default"
    assert await driver.depth(topic, GROUP) == 5
    assert len(await queue.claim("me", 5)) == 5
    await queue.claim("me", 1)
    assert await driver.depth(topic, GROUP) == 0


async def test_jobs_are_accepted_and_done_while_the_broker_is_away(driver):
    queue = BusTaskQueue(driver, MemoryStore(poll=0.01), poll=0.01)
    driver.away = True
    job_id = (await queue.enqueue({"name": "double", "kwargs": {"number": 4}})).unwrap()
    worker = TaskWorker("w", queue, {"double": double})
    await worker.start()
    try:
        assert (await queue.wait(job_id, GUARD)).value == 8
    finally:
        await worker.stop()


async def test_workers_are_called_again_when_the_broker_is_back(driver):
    queue = BusTaskQueue(driver, MemoryStore(), poll=0.01)
    async with queue.listening("work") as news:
        await queue.claim("me", 1)
        driver.away = True
        assert await news.wait() is False
        driver.away = False
        (await queue.enqueue({"name": "double"})).unwrap()
        with anyio.fail_after(GUARD):
            while not await news.wait():
                pass


async def test_a_broker_that_failed_is_left_alone_for_a_moment_and_then_asked_again(
    driver, fake_clock
):
    queue, topic = BusTaskQueue(driver, MemoryStore()), f"{TOPIC}.default"
    with clock.use(fake_clock):
        (await queue.enqueue({"name": "double"})).unwrap()
        driver.away = True
        (await queue.enqueue({"name": "double"})).unwrap()
        driver.away = False
        (await queue.enqueue({"name": "double"})).unwrap()
        assert await driver.depth(topic, GROUP) == 1
        fake_clock.advance(5)
        (await queue.enqueue({"name": "double"})).unwrap()
        assert await driver.depth(topic, GROUP) == 2


async def test_a_failure_of_the_state_is_the_error_of_the_queue_also_for_a_busy_worker(driver):
    class Failing(MemoryStore):
        fails = False

        async def claim(self, *arguments):
            if self.fails:
                raise TaskQueueError("the job store failed")
            return await super().claim(*arguments)

    state = Failing()
    queue = BusTaskQueue(driver, state)
    (await queue.enqueue({"name": "double"})).unwrap()
    assert len(await queue.claim("me", 1)) == 1
    state.fails = True
    with pytest.raises(TaskQueueError):
        await queue.claim("me", 1)


async def test_a_job_whose_call_was_lost_is_handed_out(driver):
    queue = BusTaskQueue(driver, MemoryStore())
    job_id = (await queue.enqueue({"name": "double"})).unwrap()
    await driver.purge(f"{TOPIC}.default", GROUP)
    assert [claim.job.id for claim in await queue.claim("me", 1)] == [job_id]


async def test_a_call_without_a_job_is_thrown_away(driver):
    queue = BusTaskQueue(driver, MemoryStore(), poll=0.01)
    job_id = (await queue.enqueue({"name": "double"})).unwrap()
    await queue.cancel(job_id)
    async with queue.listening("work") as news:
        assert await news.wait() is True
        assert list(await queue.claim("me", 1)) == []
    assert await driver.depth(f"{TOPIC}.default", GROUP) == 0


async def test_a_job_handed_back_is_called_for_again(driver):
    queue = BusTaskQueue(driver, MemoryStore())
    (await queue.enqueue({"name": "double"})).unwrap()
    [claim] = await queue.claim("me", 1)
    await queue.claim("me", 1)
    assert await driver.depth(f"{TOPIC}.default", GROUP) == 0
    await queue.finish([JobEnd(claim=claim, kind=EndKind.RELEASED)])
    assert await driver.depth(f"{TOPIC}.default", GROUP) == 1


async def test_two_pools_of_a_process_hear_the_calls_of_each_other(driver):
    queue = BusTaskQueue(driver, MemoryStore(), poll=NEVER)
    pools = [
        TaskWorker(name, queue, {"double": double}, PoolSettings(queues=(name,)))
        for name in ("a", "b")
    ]
    for pool in pools:
        await pool.start()
    try:
        with anyio.fail_after(GUARD):
            for name in ("a", "b", "a", "b"):
                task = {"name": "double", "queue": name, "kwargs": {"number": 3}}
                job_id = (await queue.enqueue(task)).unwrap()
                assert (await queue.wait(job_id)).value == 6
    finally:
        for pool in pools:
            await pool.stop()


async def test_the_module_puts_the_jobs_of_the_core_on_the_bus():
    modules = [
        QueueModule.stub(),
        TasksModule.configure(TasksConfig(), handlers=[double]),
        BusJobsModule.stub(BusJobsConfig(state="memory", poll=NEVER)),
    ]
    async with Application(modules=modules) as app:
        assert isinstance((await app.container.resolve(TaskQueue)).store, BusJobs)
        jobs = await app.container.resolve(Jobs)
        assert await jobs.result(await jobs.submit(double, number=21), GUARD) == 42


async def test_a_backend_named_for_tasks_wins_over_the_bus():
    modules = [
        QueueModule.stub(),
        TasksModule.stub(handlers=[double]),
        BusJobsModule.stub(),
    ]
    async with Application(modules=modules) as app:
        assert isinstance((await app.container.resolve(TaskQueue)).store, MemoryStore)
        assert await (await app.container.resolve(WorkerPools)).drain() == 0


async def test_without_a_place_for_the_state_the_application_does_not_start():
    modules = [QueueModule.stub(), TasksModule, BusJobsModule.configure(BusJobsConfig())]
    with pytest.raises(ProviderError, match="queue_jobs.redis_url"):
        async with Application(modules=modules):
            pass


def test_a_state_in_redis_needs_an_address():
    with pytest.raises(ValueError, match="redis_url"):
        BusJobsConfig(state="redis")

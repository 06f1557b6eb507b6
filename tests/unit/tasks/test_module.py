from typing import ClassVar

import pytest

from lexigram.app import Application
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.infra.tasks import (
    DLQProtocol,
    IdempotencyManagerProtocol,
    JobEndedError,
    JobNotUniqueError,
    JobRefusedError,
    JobStatus,
    ProgressTrackerProtocol,
    TaskExecutorProtocol,
    TaskManagerProtocol,
    TaskQueueProtocol,
    TaskWorkerProtocol,
)
from lexigram.di import Module, Provider, module, scoped, singleton
from lexigram.di.errors import ProviderError
from lexigram.sql import Database, SqlModule
from lexigram.tasks import (
    JobContext,
    JobOptions,
    Jobs,
    PoolSettings,
    TaskQueue,
    TasksConfig,
    TasksModule,
    TaskWorker,
    WorkerPools,
    job,
)

pytestmark = pytest.mark.anyio
GUARD = 60.0


@singleton
class Mailer:
    def __init__(self):
        self.sent = []


@scoped
class Envelope:
    """One per job."""

    def __init__(self, context: JobContext):
        self.job_id = context.job.id


@job("mail", queue="post", max_retries=1, timeout=9)
async def mail(to: str, mailer: Mailer, envelope: Envelope, context: JobContext, copies: int = 1):
    assert envelope.job_id == context.job.id
    mailer.sent.append((to, copies, context.job.timeout))
    return copies


@module(imports=[TasksModule.scope(mail)], providers=[Mailer, Envelope])
class Post(Module):
    pass


def application(*modules, config=None):
    return Application(modules=[TasksModule.configure(config or TasksConfig()), *modules])


async def test_a_handler_of_a_feature_takes_services_and_the_running_job():
    async with application(Post) as app:
        jobs = app.container.get(Jobs)
        assert await jobs.result(await jobs.submit(mail, "a@b.c", copies=2), GUARD) == 2
        mailer = app.container.of(Post).get(Mailer)
        assert mailer.sent == [("a@b.c", 2, 9)]


async def test_what_the_handler_declares_holds_for_jobs_of_its_name_too():
    async with Application(modules=[TasksModule.stub(), Post]) as app:
        queue = app.container.get(TaskQueue)
        job_id = (await queue.enqueue({"name": "mail", "timeout": 3})).unwrap()
        found = await queue.get_job(job_id)
        assert (found.queue, found.max_retries, found.timeout) == ("post", 1, 3)


async def test_options_of_a_submission_win_over_the_handler():
    async with Application(modules=[TasksModule.stub(), Post]) as app:
        jobs = app.container.get(Jobs)
        options = JobOptions(id="mine", queue="fast", priority=3, max_retries=0, unique="k")
        assert await jobs.submit(mail, "x", options=options) == "mine"
        found = await jobs.get("mine")
        assert (found.queue, found.priority, found.max_retries) == ("fast", 3, 0)
        assert [item.id for item in await jobs.find(queue="fast")] == ["mine"]


async def test_a_refused_submission_raises_the_refusal_itself():
    async with Application(modules=[TasksModule.stub(), Post]) as app:
        jobs = app.container.get(Jobs)
        first = await jobs.submit(mail, "x", options=JobOptions(unique="k"))
        with pytest.raises(JobNotUniqueError) as caught:
            await jobs.submit(mail, "x", options=JobOptions(unique="k"))
        assert caught.value.job_id == first
        with pytest.raises(JobRefusedError):
            await jobs.submit_many([jobs.described(mail, "y"), {"name": ""}])
        assert len(await jobs.find()) == 2


async def test_a_stub_is_in_memory_and_does_jobs_when_told():
    async with Application(modules=[TasksModule.stub(), Post]) as app:
        jobs = app.container.get(Jobs)
        job_id = await jobs.submit(mail, "x")
        assert (await jobs.get(job_id)).status is JobStatus.PENDING
        assert await app.container.get(WorkerPools).drain() == 1
        assert await jobs.result(job_id, GUARD) == 1


async def test_a_failed_job_raises_when_its_result_is_asked_for():
    @job("bad", max_retries=0)
    async def bad():
        raise ValueError("no")

    async with Application(modules=[TasksModule.stub(handlers=[bad])]) as app:
        jobs = app.container.get(Jobs)
        job_id = await jobs.submit(bad)
        await app.container.get(WorkerPools).drain()
        with pytest.raises(JobEndedError, match="ValueError: no") as caught:
            await jobs.result(job_id, GUARD)
        assert caught.value.result.status is JobStatus.FAILED
        assert await jobs.retry(job_id) is True


async def test_every_contract_is_bound():
    async with Application(modules=[TasksModule.stub()]) as app:
        for contract in (
            TaskQueueProtocol,
            TaskWorkerProtocol,
            TaskExecutorProtocol,
            TaskManagerProtocol,
            DLQProtocol,
            IdempotencyManagerProtocol,
            ProgressTrackerProtocol,
        ):
            assert isinstance(app.container.get(contract), contract)
        assert app.container.get("TaskWorkerClass") is TaskWorker


async def test_a_database_of_the_application_keeps_the_jobs():
    async with Application(
        modules=[SqlModule.stub(), TasksModule.configure(TasksConfig()), Post]
    ) as app:
        jobs = app.container.get(Jobs)
        job_id = await jobs.submit(mail, "x")
        assert await jobs.result(job_id, GUARD) == 1
        rows = await app.container.get(Database).execute_query(
            "SELECT id, state FROM lexigram_jobs"
        )
        assert rows.rows == [{"id": job_id, "state": "completed"}]


async def test_sql_without_a_database_is_refused_with_a_fix():
    with pytest.raises(ProviderError, match="SqlModule") as caught:
        async with application(config=TasksConfig(backend="sql")):
            pass
    assert isinstance(caught.value.__cause__, ConfigurationError)


async def test_two_handlers_of_one_name_are_refused():
    @job("mail")
    async def other():
        return None

    with pytest.raises(ProviderError, match="two handlers are named 'mail'"):
        async with application(Post, TasksModule.scope(other)):
            pass


async def test_a_function_without_the_mark_is_no_handler():
    with pytest.raises(JobRefusedError, match="@job"):
        TasksModule.scope(print)


class CountingWorker:
    """A user's own worker: one job at a time, by the plain contract."""

    made: ClassVar[list] = []

    def __init__(self, worker_id, queue, handler_registry):
        self.worker_id, self.queue, self.handlers = worker_id, queue, handler_registry
        self.started = self.stopped = 0
        CountingWorker.made.append(self)

    async def start(self):
        self.started += 1

    async def stop(self):
        self.stopped += 1


class OwnWorker(Provider):
    name = "own-worker"

    async def register(self, container):
        container.bind("TaskWorkerClass", CountingWorker)


async def test_a_bound_worker_class_replaces_the_default():
    CountingWorker.made.clear()
    config = TasksConfig(pools={"own": PoolSettings(concurrency=2)})
    async with Application(
        modules=[TasksModule.configure(config), Post], providers=[OwnWorker()]
    ) as app:
        assert [worker.worker_id for worker in CountingWorker.made] == ["own-1", "own-2"]
        assert all(worker.started == 1 for worker in CountingWorker.made)
        assert CountingWorker.made[0].queue is app.container.get(TaskQueue)
        assert "mail" in CountingWorker.made[0].handlers
    assert all(worker.stopped == 1 for worker in CountingWorker.made)


async def test_health_is_good_while_workers_live_and_bad_when_one_died():
    async with application(Post) as app:
        assert (await app.health_check()).status is HealthStatus.HEALTHY
        pools = app.container.get(WorkerPools)
        worker = pools.workers["default"]
        await worker.stop()
        health = await app.health_check()
        found = next(part for part in health.components if part.component == "tasks")
        assert found.status is HealthStatus.UNHEALTHY
        assert "default" in found.message


async def test_background_coroutines_are_owned_and_cancelled_at_the_end():
    import anyio

    ended = []

    async def background(name, wait):
        try:
            await wait()
        finally:
            ended.append(name)

    async def fails():
        raise OSError("logged")

    async with Application(modules=[TasksModule.stub()]) as app:
        manager = app.container.get(TaskManagerProtocol)
        manager.track(background("short", anyio.lowlevel.checkpoint))
        manager.track_named("bad", fails())
        manager.track_named("long", background("long", anyio.sleep_forever))
        assert manager.pending_count == 3
        await manager.shutdown(timeout=0.05)
        assert manager.pending_count == 0
        with pytest.raises(Exception, match="shut down"):
            manager.track(fails())
    assert sorted(ended) == ["long", "short"]

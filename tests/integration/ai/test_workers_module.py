"""WorkersModule in an application on a database, beside jobs, bus, cache and schedules."""

from typing import Annotated

import pytest
from attrs import evolve

from lexigram.ai.workers import (
    BatchEmbeddingWorker,
    DeadLetterQueueWorker,
    DocumentIngestionWorker,
    MaintenanceWorker,
    WorkersModule,
)
from lexigram.ai.workers.batch_embedding import EmbeddingCache
from lexigram.ai.workers.maintenance import AgedCache
from lexigram.app import Application
from lexigram.cache import CacheModule
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.infra.tasks import DLQProtocol, TaskQueueProtocol, TaskWorkerProtocol
from lexigram.di import Named
from lexigram.queue import QueueModule
from lexigram.schedule import ScheduleModule, Scheduler
from lexigram.sql import SqlConfig, SqlModule
from lexigram.tasks import TasksModule, job
from lexigram.testing.waiting import wait_until

SMALL = WorkersModule.stub().providers[0].config


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def url(request):
    return request.getfixturevalue(f"{request.param}_url")


def application(url, config=SMALL, modules=()):
    sql = SqlModule.configure(SqlConfig(url=url))
    return Application("shop", modules=[sql, *modules, WorkersModule.configure(config)])


EVERYTHING = (TasksModule, CacheModule, QueueModule.stub(), ScheduleModule)


async def test_it_lives_beside_all_other_parts_and_uses_them(url):
    async with application(url, modules=EVERYTHING) as app:
        assert (await app.health_check()).status is HealthStatus.HEALTHY
        worker = app.container.get(BatchEmbeddingWorker)
        assert worker.queue is app.container.get(TaskQueueProtocol)
        assert app.container.get(DocumentIngestionWorker).queue is worker.queue
        job_id = await worker.embed_batch(["one", "two", "one"])
        await wait_until(lambda: worker.get_result(job_id), timeout=60)
        assert (await worker.get_result(job_id)).success
        assert app.container.get(EmbeddingCache) is worker.cache
        assert app.container.get(AgedCache).stored == 2
        names = [info.schedule.name for info in await app.container.get(Scheduler).schedules()]
        assert "ai_workers.index_optimization" in names
        letters = app.container.get(DeadLetterQueueWorker)
        assert set(letters._sources) == {"jobs", "bus", "added"}


async def test_without_a_job_module_jobs_are_kept_in_the_database_all_the_same(url):
    async with application(url) as app:
        worker = app.container.get(BatchEmbeddingWorker)
        await app.container.get(TaskWorkerProtocol).stop()
        job_id = await worker.embed_batch(["kept over the restart"])
    async with application(url) as app:
        worker = app.container.get(BatchEmbeddingWorker)
        await wait_until(lambda: worker.get_result(job_id), timeout=60)
        assert (await worker.get_result(job_id)).success


async def test_a_dead_job_of_the_application_is_recovered(url):
    config = evolve(
        SMALL,
        dlq_check_interval=1,
        dead_letters=evolve(SMALL.dead_letters, base_backoff=0.01),
    )
    calls = []

    @job("mail")
    async def mail(to: str) -> None:
        calls.append(to)
        if len(calls) == 1:
            raise ConnectionError("no route")

    tasks = TasksModule.configure(handlers=[mail])
    async with application(url, config, [tasks]) as app:
        queue = app.container.get(TaskQueueProtocol)
        (await queue.enqueue({"name": "mail", "kwargs": {"to": "ann"}, "max_retries": 0})).unwrap()
        await wait_until(lambda: len(calls) == 2, timeout=60)
        letters = app.container.get(DeadLetterQueueWorker)

        async def recovered():
            return (await letters.get_stats()).succeeded_count == 1

        await wait_until(recovered, timeout=60)
        assert await letters.get_items() == []
        jobs = app.container.get(Annotated[DLQProtocol, Named("jobs")])
        assert await jobs.size() == 0


async def test_a_maintenance_task_of_the_user_runs_on_the_schedules_of_the_application(url):
    from lexigram.ai.workers import MaintenanceTaskType

    runs = []

    async def sweep() -> int:
        runs.append(1)
        return 1

    async with application(url, modules=[ScheduleModule]) as app:
        worker = app.container.get(MaintenanceWorker)
        worker.register_task("mine", MaintenanceTaskType.CACHE_CLEANUP, sweep, interval_seconds=0.2)
        await wait_until(lambda: len(runs) >= 2, timeout=60)
        firings = await app.container.get(Scheduler).firings("ai_workers.mine")
        assert firings
    kept = len(runs)
    async with application(url, modules=[ScheduleModule]) as app:
        [last, *_] = await app.container.get(MaintenanceWorker).history("mine")
        assert last.items_processed == 1
    assert len(runs) == kept


async def test_one_source_only_when_the_settings_say_so(url):
    config = evolve(SMALL, dead_letters=evolve(SMALL.dead_letters, sources=("bus",)))
    async with application(url, config, [TasksModule, QueueModule.stub()]) as app:
        letters = app.container.get(DeadLetterQueueWorker)
        assert set(letters._sources) == {"bus", "added"}


async def test_an_unknown_source_fails_the_start(url):
    config = evolve(SMALL, dead_letters=evolve(SMALL.dead_letters, sources=("jobbs",)))
    with pytest.raises(Exception, match="sources: jobbs"):
        async with application(url, config):
            pass

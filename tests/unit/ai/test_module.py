"""WorkersModule: what is bound, what runs, what a stub leaves to the caller."""

import sys
from typing import Annotated, ClassVar

import anyio
import pytest
from attrs import evolve

from lexigram.ai.workers import (
    BatchEmbeddingWorker,
    DeadLetterQueueWorker,
    DocumentIngestionWorker,
    MaintenanceWorker,
    WorkerJobCompletedHook,
    WorkerJobFailedHook,
    WorkerJobStartedHook,
    WorkerMaintenanceRunHook,
    WorkersConfig,
    WorkersModule,
    WorkersProvider,
)
from lexigram.ai.workers.di.provider import _WORKER_TYPES
from lexigram.ai.workers.document_ingestion import UniversalDocumentParser
from lexigram.ai.workers.supervision import Supervisor
from lexigram.ai.workers.telemetry import Telemetry
from lexigram.ai.workers.types import MaintenanceTaskType
from lexigram.app import Application
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.vector import VectorStoreProtocol
from lexigram.contracts.infra.tasks.protocols import TaskQueueProtocol, TaskWorkerProtocol
from lexigram.contracts.observability import MetricsProtocol, TracerProtocol
from lexigram.di import Named, Provider
from lexigram.hooks import HookRegistry
from lexigram.tasks import InMemoryTaskQueue, TasksConfig, TasksModule, TaskWorker
from lexigram.testing.fakes import FakeMetrics, FakeTracer
from lexigram.testing.waiting import wait_until

SMALL = WorkersModule.stub().providers[0].config


def running(config=SMALL, **options):
    return WorkersModule.configure(config, **options)


async def tasks():
    await anyio.lowlevel.checkpoint()
    return {task.name for task in anyio.get_running_tasks()}


def named(kind):
    return f"worker.{kind.__name__}"


# --- what runs ------------------------------------------------------------------------------------


async def test_all_four_workers_run_as_named_tasks_until_the_application_stops():
    async with Application("shop", modules=[running()]) as app:
        assert {named(kind) for kind in _WORKER_TYPES} <= await tasks()
        health = await app.health_check()
        assert health.status is HealthStatus.HEALTHY
        [part] = [each for each in health.components if each.component == "workers"]
        assert set(part.details) == {kind.__name__ for kind in _WORKER_TYPES}
    assert not [name for name in await tasks() if name and name.startswith("worker.")]


async def test_the_worker_you_resolve_is_the_one_that_runs():
    async with Application("shop", modules=[running()]) as app:
        entries = app.container.get(Supervisor).entries
        assert [entry.worker for entry in entries] == [
            await app.container.resolve(kind) for kind in _WORKER_TYPES
        ]
        assert app.container.get(BatchEmbeddingWorker).is_alive


async def test_a_job_handed_to_the_worker_is_done_by_the_pool_that_runs():
    async with Application("shop", modules=[running()]) as app:
        worker = app.container.get(BatchEmbeddingWorker)
        job = await worker.embed_batch(["one", "two"], "notes")
        await wait_until(lambda: worker.get_result(job))
        assert (await worker.get_result(job)).success
        store = await app.container.resolve(VectorStoreProtocol)
        assert await (await store.get_collection("notes")).count() == 2


async def test_task_worker_protocol_is_bound_exported_and_stands_for_all_workers():
    async with Application("shop", modules=[running()]) as app:
        fleet = app.container.get(TaskWorkerProtocol)
        assert fleet is app.container.get(Annotated[TaskWorkerProtocol, Named("ai_workers")])
        await fleet.stop()
        assert not app.container.get(BatchEmbeddingWorker).is_alive


async def test_a_worker_that_dies_degrades_health_and_runs_again():
    async with Application("shop", modules=[running()]) as app:
        worker = app.container.get(BatchEmbeddingWorker)
        supervisor = app.container.get(Supervisor)
        [pool] = worker._pool.workers
        # The queue breaks under the pool: that ends its task.
        pool._task.host.get_loop().call_soon(pool._task.host.cancel)
        await wait_until(lambda: supervisor.entries[0].failures == 1)
        assert (await app.health_check()).status is HealthStatus.DEGRADED
        await wait_until(lambda: worker.is_alive)


# --- every setting is obeyed ----------------------------------------------------------------------


async def test_concurrency_and_interval_of_the_settings_reach_the_workers():
    config = evolve(
        SMALL,
        batch_embedding_concurrency=5,
        document_ingestion_concurrency=2,
        dlq_check_interval=7,
    )
    async with Application("shop", modules=[running(config)]) as app:
        embedding = app.container.get(BatchEmbeddingWorker)
        assert embedding.concurrency == 5
        assert embedding._pool.workers[0].config.concurrency == 5
        assert app.container.get(DocumentIngestionWorker).concurrency == 2
        assert app.container.get(DeadLetterQueueWorker).check_interval == 7


@pytest.mark.parametrize(
    ("config", "options"),
    [(evolve(SMALL, enable_maintenance=False), {}), (SMALL, {"enable_scheduler": False})],
    ids=["enable_maintenance", "enable_scheduler"],
)
async def test_maintenance_that_is_switched_off_does_not_start_and_can_be_run_by_hand(
    config, options
):
    async with Application("shop", modules=[running(config, **options)]) as app:
        assert named(MaintenanceWorker) not in await tasks()
        assert named(DeadLetterQueueWorker) in await tasks()
        worker = app.container.get(MaintenanceWorker)
        result = await worker.run_task_now("health_check")
        assert result.error is None
        assert (await app.health_check()).status is HealthStatus.HEALTHY


async def test_disabled_binds_and_starts_nothing():
    config = evolve(SMALL, enabled=False)
    async with Application("shop", modules=[running(config)]) as app:
        assert not [name for name in await tasks() if name and name.startswith("worker.")]
        for kind in (*_WORKER_TYPES, TaskWorkerProtocol):
            assert await app.container.resolve_optional(kind) is None
        health = await app.health_check()
        assert health.status is HealthStatus.HEALTHY
        assert "disabled" in health.components[0].message


async def test_built_in_tasks_without_a_time_are_not_registered():
    config = evolve(SMALL, maintenance=evolve(SMALL.maintenance, document_cleanup=""))
    async with Application("shop", modules=[running(config)]) as app:
        known = [task["name"] for task in app.container.get(MaintenanceWorker).get_all_tasks()]
        assert known == ["index_optimization", "cache_cleanup", "metrics_rollup", "health_check"]


async def test_an_application_without_background_work_starts_no_worker():
    app = Application("shop", modules=[running()], background=False)
    async with app:
        assert not [name for name in await tasks() if name and name.startswith("worker.")]
        assert not app.container.get(BatchEmbeddingWorker).is_alive
        assert (await app.health_check()).status is HealthStatus.HEALTHY


async def test_a_command_that_wants_no_worker_gets_none():
    app = Application("shop", modules=[running()])
    for provider in app.providers:
        provider.run_worker = False
    async with app:
        assert named(BatchEmbeddingWorker) not in await tasks()


# --- replaced parts -------------------------------------------------------------------------------


class OwnWorker:
    """What is bound as "TaskWorkerClass"."""

    made: ClassVar = []

    def __init__(self, worker_id, queue, handler_registry):
        self.worker_id, self.queue, self.handlers = worker_id, queue, handler_registry
        self.starts = self.stops = 0
        OwnWorker.made.append(self)

    async def start(self):
        self.starts += 1

    async def stop(self):
        self.stops += 1


class Binds(Provider):
    name = "binds"

    def __init__(self, **values):
        super().__init__()
        self.values = values

    async def register(self, container):
        for key, value in self.values.items():
            container.bind(key, value)


async def test_a_bound_task_worker_class_replaces_that_of_the_pools():
    OwnWorker.made.clear()
    app = Application("shop", modules=[running()], providers=[Binds(TaskWorkerClass=OwnWorker)])
    async with app:
        await wait_until(lambda: len(OwnWorker.made) == 6)
        await wait_until(lambda: all(worker.starts == 1 for worker in OwnWorker.made))
        assert {"batch_embed"} == set(OwnWorker.made[0].handlers)
        assert (await app.health_check()).status is HealthStatus.HEALTHY
    assert all(worker.stops == 1 for worker in OwnWorker.made)


class Mine:
    """A user's worker; its constructor is filled by the container."""

    def __init__(self, embedding: BatchEmbeddingWorker):
        self.embedding = embedding
        self.starts = self.stops = 0

    async def start(self):
        self.starts += 1

    async def stop(self):
        self.stops += 1


async def test_a_worker_type_of_the_user_is_supervised_with_the_others():
    async with Application("shop", modules=[running(worker_types=[Mine])]) as app:
        mine = app.container.get(Mine)
        await wait_until(lambda: mine.starts == 1)
        assert named(Mine) in await tasks()
        assert mine.embedding is app.container.get(BatchEmbeddingWorker)
    assert mine.stops == 1


async def test_a_bound_embedding_provider_and_store_are_used():
    class Constant:
        model_id, dimension = "constant", 2

        async def embed_texts(self, texts):
            return [[1.0, 0.0] for _ in texts]

    class Own(Provider):
        name = "own"

        async def register(self, container):
            container.singleton(EmbeddingProviderProtocol, Constant())

    async with Application("shop", modules=[running()], providers=[Own()]) as app:
        assert app.container.get(BatchEmbeddingWorker).embedding_provider.model_id == "constant"


async def test_a_bound_parser_is_the_one_that_reads_documents():
    own = UniversalDocumentParser()

    class Own(Provider):
        name = "own"

        async def register(self, container):
            container.singleton(UniversalDocumentParser, own)

    async with Application("shop", modules=[running()], providers=[Own()]) as app:
        assert app.container.get(DocumentIngestionWorker).document_parser is own


async def test_jobs_go_to_the_queue_of_the_application_and_its_pools_can_do_them():
    tasks_module = TasksModule.configure(TasksConfig(backend="memory"))
    async with Application("shop", modules=[tasks_module, running()]) as app:
        worker = app.container.get(BatchEmbeddingWorker)
        assert worker.queue is app.container.get(TaskQueueProtocol)
        await app.container.get(Supervisor).stop()
        job = await worker.embed_batch(["by the other pool"])
        await wait_until(lambda: worker.get_result(job))
        assert (await worker.get_result(job)).success


# --- hooks ----------------------------------------------------------------------------------------


async def test_hooks_are_emitted_for_jobs_and_maintenance():
    told = []
    app = Application("shop", modules=[running()])
    for kind in (WorkerJobStartedHook, WorkerJobCompletedHook, WorkerMaintenanceRunHook):
        app.hooks.on(kind, told.append)
    async with app:
        worker = app.container.get(BatchEmbeddingWorker)
        job = await worker.embed_batch(["text"])
        await wait_until(lambda: worker.get_result(job))
        await app.container.get(MaintenanceWorker).run_task_now("metrics_rollup")
    assert told[:2] == [
        WorkerJobStartedHook(job_type="batch_embed"),
        WorkerJobCompletedHook(job_type="batch_embed"),
    ]
    assert WorkerMaintenanceRunHook(task_type="metrics_rollup") in told


async def test_a_failed_job_is_reported_counted_and_traced():
    told, tracer, metrics = [], FakeTracer(), FakeMetrics()
    app = Application(
        "shop",
        modules=[running()],
        overrides={TracerProtocol: tracer, MetricsProtocol: metrics},
    )
    app.hooks.on(WorkerJobFailedHook, told.append)
    async with app:
        worker = app.container.get(DocumentIngestionWorker)
        job = await worker.ingest_document("gone", "/nowhere/gone.md", "docs")
        await wait_until(lambda: worker.get_result(job))
    [failed] = told
    assert (failed.job_type, failed.job_id) == ("ingest_document", job)
    assert failed.error_type == "DocumentMissingError"
    assert "/nowhere/gone.md" in failed.error
    assert metrics.counted("ai.jobs.finished", name="ingest_document", status="failed") == 1
    assert len(metrics.observed("ai.jobs.duration", name="ingest_document", status="failed")) == 1
    [span] = tracer.named("ai.jobs ingest_document")
    assert span.status == "error"


async def test_every_worker_has_spans_counters_and_durations():
    tracer, metrics = FakeTracer(), FakeMetrics()
    overrides = {TracerProtocol: tracer, MetricsProtocol: metrics}
    async with Application("shop", modules=[running()], overrides=overrides) as app:
        worker = app.container.get(BatchEmbeddingWorker)
        job = await worker.embed_batch(["text"])
        await wait_until(lambda: worker.get_result(job))
        await app.container.get(MaintenanceWorker).run_task_now("metrics_rollup")
        await app.container.get(DeadLetterQueueWorker).check()
    for kind, name in (
        ("jobs", "batch_embed"),
        ("maintenance", "metrics_rollup"),
        ("dead_letters", "check"),
    ):
        tags = {"name": name, "status": "completed"}
        assert metrics.counted(f"ai.{kind}.finished", **tags) >= 1
        assert metrics.observed(f"ai.{kind}.duration", **tags)
        assert all(span.ended for span in tracer.named(f"ai.{kind} {name}"))
    assert metrics.gauged("ai.dead_letters.waiting") == 0


async def test_a_maintenance_task_and_a_look_that_fail_are_measured_as_failed():
    tracer, metrics = FakeTracer(), FakeMetrics()

    def fail():
        raise ValueError("no room")

    class Away:
        name = "bus"

        async def failures(self, limit, offset):
            raise ConnectionError("no broker")

    worker = MaintenanceWorker(tracer=tracer, metrics=metrics)
    worker.register_task("tidy", MaintenanceTaskType.CACHE_CLEANUP, fail, interval_seconds=60)
    await worker.run_task_now("tidy")
    await DeadLetterQueueWorker(
        InMemoryTaskQueue(), sources=[Away()], tracer=tracer, metrics=metrics
    ).check()
    assert metrics.counted("ai.maintenance.finished", name="cache_cleanup", status="failed") == 1
    assert metrics.counted("ai.dead_letters.finished", name="check", status="failed") == 1
    assert "no room" in tracer.named("ai.maintenance cache_cleanup")[0].description
    assert "no broker" in tracer.named("ai.dead_letters check")[0].description


async def test_a_cancelled_job_is_no_failure():
    told, metrics, hooks = [], FakeMetrics(), HookRegistry()
    hooks.on(WorkerJobFailedHook, told.append)
    telemetry = Telemetry(hooks, None, metrics)
    with anyio.move_on_after(0):
        async with telemetry.job("embed"):
            await anyio.sleep_forever()
    assert metrics.counted("ai.jobs.finished", name="embed", status="cancelled") == 1
    assert told == []


class AwayModel:
    model_id, dimension = "away", 4
    answer: ClassVar = HealthCheckResult("embeddings", HealthStatus.UNHEALTHY, error="no route")

    async def embed_texts(self, texts):
        raise ConnectionError("no route")

    async def health_check(self, timeout):
        if self.answer is None:
            await anyio.sleep_forever()
        return self.answer


@pytest.mark.parametrize("answers", [True, False])
async def test_a_model_that_does_not_answer_degrades_health(answers):
    model = AwayModel()
    if not answers:
        model.answer = None
    overrides = {EmbeddingProviderProtocol: model}
    async with Application("shop", modules=[running()], overrides=overrides) as app:
        health = await app.health_check(timeout=0.2)
        [part] = [each for each in health.components if each.component == "workers"]
        assert part.status is HealthStatus.DEGRADED
        assert "embeddings: " in part.error
        result = await app.container.get(MaintenanceWorker).run_task_now("health_check")
        assert "embeddings" in result.error


# --- the stub -------------------------------------------------------------------------------------


async def test_a_stub_starts_nothing_and_builds_a_worker_for_each_who_asks():
    async with Application("shop", modules=[WorkersModule.stub()]) as app:
        assert not [name for name in await tasks() if name and name.startswith("worker.")]
        for kind in _WORKER_TYPES:
            assert app.container.get(kind) is not app.container.get(kind)
        health = await app.health_check()
        assert health.components[0].message == "no workers run in this process"


async def test_a_worker_of_a_stub_is_driven_by_hand():
    async with Application("shop", modules=[WorkersModule.stub()]) as app:
        worker = app.container.get(BatchEmbeddingWorker)
        job = await worker.embed_batch(["one", "two"])
        assert await worker.get_result(job) is None
        assert await worker.drain() == 1
        assert (await worker.get_result(job)).embeddings_generated == 2
        # Another one finds the same queue and the same store.
        assert (await app.container.get(BatchEmbeddingWorker).get_result(job)).success


async def test_a_worker_of_a_stub_can_be_started_and_stopped_by_hand():
    async with Application("shop", modules=[WorkersModule.stub()]) as app:
        worker = app.container.get(BatchEmbeddingWorker)
        await worker.start()
        job = await worker.embed_batch(["text"])
        await wait_until(lambda: worker.get_result(job))
        await worker.stop()
        assert not worker.is_alive


async def test_a_stub_loads_no_model_and_no_store():
    program = (
        "import anyio, sys\n"
        "from lexigram.ai.workers import WorkersModule, BatchEmbeddingWorker\n"
        "from lexigram.app import Application\n"
        "async def main():\n"
        "    async with Application('x', modules=[WorkersModule.stub()]) as app:\n"
        "        app.container.get(BatchEmbeddingWorker)\n"
        "    print([n for n in ('lancedb', 'wordllama', 'pyarrow', 'onnxruntime')"
        " if n in sys.modules])\n"
        "anyio.run(main)\n"
    )
    done = await anyio.run_process([sys.executable, "-c", program])
    assert done.stdout.decode().strip() == "[]"


# --- the provider by itself -----------------------------------------------------------------------


def test_the_provider_keeps_its_name_and_its_section():
    assert WorkersProvider.name == "workers"
    assert WorkersProvider.config_key == "ai_workers"
    assert WorkersProvider.config_model is WorkersConfig
    assert WorkersProvider.from_config(SMALL, enable_scheduler=False).config is SMALL


async def test_the_default_pool_worker_is_the_one_of_the_core():
    async with Application("shop", modules=[running()]) as app:
        assert app.container.get("TaskWorkerClass") is TaskWorker

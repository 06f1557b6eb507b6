"""Whatever code of others does inside the AI workers is a failure of that one call."""

import itertools

import anyio
import pytest
from tests.failures import (
    RAISING,
    TIME_LIMIT,
    WAYS_TO_FAIL,
    WAYS_TO_FAIL_IN_A_TASK,
    WAYS_TO_RAISE_NOW,
    block_the_loop,
    cancel_its_own_task,
    never_return,
)

from lexigram.ai.workers import BatchEmbeddingWorker, DeadLetterQueueWorker, MaintenanceWorker
from lexigram.ai.workers.adapters import RAGIngestionAdapter
from lexigram.ai.workers.dlq import MemoryDeadLetterStore
from lexigram.ai.workers.document_ingestion import DocumentIngestionWorker
from lexigram.ai.workers.embeddings.hashing import HashingEmbeddings
from lexigram.ai.workers.errors import MaintenanceError
from lexigram.ai.workers.maintenance.tasks import check_health
from lexigram.ai.workers.supervision import Supervisor
from lexigram.ai.workers.types import MaintenanceStatus, MaintenanceTaskType
from lexigram.ai.workers.vectors.memory import MemoryVectorStore
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.leasing.backoff import Backoff
from lexigram.tasks import InMemoryTaskQueue, JobRetry, PoolSettings, TaskWorker
from lexigram.testing.waiting import wait_until

pytestmark = pytest.mark.anyio

SOON = Backoff(first=0.001, cap=0.002)
NOW = JobRetry(base_delay=0.0)


class Failing(HashingEmbeddings):
    """A model that fails for texts with the word ``bad``."""

    def __init__(self, fail):
        super().__init__(64)
        self.fail, self.attempts = fail, 0

    async def embed_texts(self, texts):
        if any("bad" in text for text in texts):
            self.attempts += 1
            await self.fail()
        return await super().embed_texts(texts)


# --- the pools ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_an_embedding_job_whose_model_fails_is_tried_again_then_failed_and_others_are_done(
    fail,
):
    queue, model = InMemoryTaskQueue(), Failing(fail)
    worker = BatchEmbeddingWorker(MemoryVectorStore(), model, queue, retry=NOW, timeout=TIME_LIMIT)
    await worker.start()
    try:
        bad = await worker.embed_batch([{"text": "bad"}])
        good = await worker.embed_batch([{"text": "good"}])

        async def ended():
            return await worker.get_result(bad), await worker.get_result(good)

        async def both_ended():
            return all(await ended())

        await wait_until(both_ended)
        failed, done = await ended()
        assert (failed.success, done.success) == (False, True)
        assert worker.is_alive
        assert (await worker.health_check()).is_healthy()
    finally:
        await worker.stop()
    assert model.attempts == 4


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_document_whose_model_fails_is_tried_again_then_failed_and_others_are_done(
    fail, tmp_path
):
    for name in ("bad", "good"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nA {name} text.\n")
    queue, model = InMemoryTaskQueue(), Failing(fail)
    worker = DocumentIngestionWorker(
        MemoryVectorStore(),
        queue,
        embedding_provider=model,
        allowed_root=tmp_path,
        retry=NOW,
        timeout=5.0 if fail is not never_return else 1.0,
    )
    await worker.start()
    try:
        jobs = [
            await worker.ingest_document(name, tmp_path / f"{name}.md", "docs")
            for name in ("bad", "good")
        ]

        async def both_ended():
            return all([await worker.get_result(job_id) for job_id in jobs])

        await wait_until(both_ended)
        results = [await worker.get_result(job_id) for job_id in jobs]
        assert [result.success for result in results] == [False, True]
        assert worker.is_alive
    finally:
        await worker.stop()
    assert model.attempts == 4


async def test_a_model_that_blocks_the_loop_past_the_lease_of_its_job_loses_nothing():
    lease = 0.2

    async def block():
        block_the_loop(lease)

    queue = InMemoryTaskQueue()
    worker = BatchEmbeddingWorker(MemoryVectorStore(), Failing(block), queue)
    settings = PoolSettings(concurrency=2, lease=lease, queues=("ai.batch_embedding",))
    pool = TaskWorker("w", queue, worker.handlers, settings)
    jobs = [await worker.embed_batch([{"text": text}]) for text in ("bad", "good")]
    await pool.start()
    try:

        async def both_done():
            found = [await worker.get_result(job_id) for job_id in jobs]
            return all(result is not None and result.success for result in found)

        await wait_until(both_done)
        assert pool.is_alive
    finally:
        await pool.stop()


@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW)
async def test_a_document_that_cannot_be_cut_does_not_keep_the_others_back(fail):
    class Cutter:
        def chunk(self, content, metadata):
            if "bad" in content:
                fail()
            return []

    class Text:
        def __init__(self, content):
            self.content, self.metadata = content, {"id": content}

    store = MemoryVectorStore()
    worker = BatchEmbeddingWorker(store, HashingEmbeddings(64), InMemoryTaskQueue())
    adapter = RAGIngestionAdapter(Cutter(), worker, store)
    report = (await adapter.ingest_to_rag([Text("bad"), Text("good")])).unwrap()
    assert report.failed_ids == ("bad",)


# --- supervision ----------------------------------------------------------------------------------


class Worker:
    """Lives until it is stopped; in its first life it fails."""

    def __init__(self, fail, place):
        self.fail, self.place, self.starts = fail, place, 0
        self.stopped = anyio.Event()

    async def start(self):
        self.starts += 1
        self.stopped = anyio.Event()
        if self.place == "start" and self.starts == 1:
            await self.fail()

    async def wait(self):
        if self.place != "start" and self.starts == 1:
            if self.place == "stop":
                raise ValueError("dead")
            await self.fail()
        await self.stopped.wait()

    async def stop(self):
        self.stopped.set()
        if self.place == "stop" and self.starts == 1:
            await self.fail()


class Steady(Worker):
    def __init__(self):
        super().__init__(None, None)

    async def wait(self):
        await self.stopped.wait()


@pytest.mark.parametrize(
    ("place", "fail"),
    [
        *itertools.product(("start", "wait", "stop"), (*RAISING, cancel_its_own_task)),
        ("stop", never_return),
    ],
)
async def test_a_worker_that_fails_is_logged_shown_and_started_again_beside_others(
    fail, place, caplog
):
    broken, steady, deaths = Worker(fail, place), Steady(), []

    async def load():
        return [broken, steady]

    supervisor = Supervisor(
        load,
        on_failure=lambda worker, error: deaths.append((worker, error)),
        restart=SOON,
        stop_within=TIME_LIMIT,
    )
    async with anyio.create_task_group() as tasks:
        supervisor.open(tasks)
        await supervisor.start()
        await wait_until(lambda: broken.starts == 2)
        assert (await supervisor.health(1.0)).status is HealthStatus.DEGRADED
        await supervisor.stop()
        tasks.cancel_scope.cancel()
    [(worker, error)] = deaths
    assert worker is broken
    assert isinstance(error, Exception)
    assert steady.starts == 1
    assert ("stopping a failed worker failed" in caplog.text) is (place == "stop")


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_worker_whose_health_check_fails_is_degraded(fail):
    class Sick(Steady):
        async def health_check(self, timeout):
            await fail()

    async def load():
        return [Sick()]

    supervisor = Supervisor(load)
    async with anyio.create_task_group() as tasks:
        supervisor.open(tasks)
        await supervisor.start()
        assert (await supervisor.health(TIME_LIMIT)).status is HealthStatus.DEGRADED
        await supervisor.stop()
        tasks.cancel_scope.cancel()


# --- dead letters and maintenance -----------------------------------------------------------------


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_failing_notifier_or_source_is_called_again_and_blocks_no_dead_letter(fail, caplog):
    bad, told = [True], []

    class Broken:
        name = "broken"

        async def failures(self, limit, offset):
            await fail()

        async def notify(self, item):
            if bad:
                await fail()
            told.append(item.job_id)

    class Fine:
        name = "fine"

        async def notify(self, item):
            told.append(f"fine {item.job_id}")

    broken = Broken()
    worker = DeadLetterQueueWorker(
        InMemoryTaskQueue(),
        store=MemoryDeadLetterStore(),
        sources=[broken],
        notifiers=[broken, Fine()],
        notify_timeout=TIME_LIMIT,
        source_timeout=TIME_LIMIT,
        check_interval=0.05,
    )
    await worker.add_failed_job({"id": "j", "name": "n"}, "invalid input: no such field")
    await worker.start()
    try:
        await wait_until(lambda: told == ["fine j"])
        assert "notifier failed; the call is repeated at the next check" in caplog.text
        assert (await worker.health_check()).status is HealthStatus.DEGRADED
        bad.clear()
        await wait_until(lambda: told == ["fine j", "j"])
    finally:
        await worker.stop()


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_maintenance_task_that_fails_is_in_the_history_and_others_run(fail):
    async def bad():
        await fail()

    async def good():
        return 1

    worker = MaintenanceWorker()
    for name, handler in (("bad", bad), ("good", good)):
        worker.register_task(
            name, MaintenanceTaskType.CACHE_CLEANUP, handler, "0 3 * * *", timeout=TIME_LIMIT
        )
    failed = await worker.run_task_now("bad")
    done = await worker.run_task_now("good")
    assert failed.status is MaintenanceStatus.FAILED
    assert failed.error
    assert done.status is MaintenanceStatus.COMPLETED


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_part_whose_check_fails_is_named_by_the_sweep(fail):
    async def bad(timeout):
        await fail()

    async def good(timeout):
        return HealthCheckResult(component="good")

    with pytest.raises(MaintenanceError, match="unhealthy components: bad is unhealthy"):
        await check_health({"bad": bad, "good": good}, TIME_LIMIT)

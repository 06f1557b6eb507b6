"""BatchEmbeddingWorker with real task workers, on the queue in memory and in both databases."""

import anyio
import pytest

from lexigram.ai.workers.batch_embedding import (
    BatchEmbeddingWorker,
    EmbeddingCache,
    EmbeddingEnqueueError,
    EmbeddingQueueFullError,
    EmbeddingStatus,
)
from lexigram.ai.workers.batch_embedding.worker import QUEUE_NAME
from lexigram.ai.workers.embeddings import (
    EmbeddingInputError,
    EmbeddingsUnavailableError,
    HashingEmbeddings,
    ModelsMixedError,
)
from lexigram.ai.workers.hooks import WorkerJobCompletedHook, WorkerJobStartedHook
from lexigram.ai.workers.vectors.memory import MemoryVectorStore
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.data.vector import CollectionConfig
from lexigram.hooks import HookRegistry
from lexigram.sql import Database
from lexigram.tasks import (
    InMemoryTaskQueue,
    Job,
    JobDeadLetters,
    JobRetry,
    JobStatus,
    SqlTaskQueue,
    TaskWorker,
)
from lexigram.testing.waiting import wait_until

pytestmark = pytest.mark.anyio
GUARD = 60.0
NOW = JobRetry(base_delay=0.0)


class Model(HashingEmbeddings):
    """The hashing one, which fails when told, can be held, and remembers what it was asked."""

    def __init__(self, dimension=16):
        super().__init__(dimension)
        self.troubles = []
        self.asked = []
        self.gate = None

    async def embed_texts(self, texts):
        self.asked.append(list(texts))
        if self.gate is not None:
            await self.gate.wait()
        if self.troubles and (trouble := self.troubles.pop(0)) is not None:
            raise trouble
        return await super().embed_texts(texts)


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def url(request):
    return None if request.param == "memory" else request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def queue(url):
    if url is None:
        yield InMemoryTaskQueue(poll=0.05)
        return
    async with Database(url) as database:
        yield SqlTaskQueue(database, poll=0.05)


@pytest.fixture
def memory():
    return InMemoryTaskQueue(poll=0.05)


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def store():
    return MemoryVectorStore()


@pytest.fixture
async def worker(queue, model, store):
    made = BatchEmbeddingWorker(store, model, queue, retry=NOW)
    yield made
    await made.stop()


async def ended(worker, job_id):
    return await wait_until(lambda: worker.get_result(job_id), timeout=GUARD)


async def contents(store, name="docs"):
    found = await (await store.get_collection(name)).get(await ids(store, name))
    return sorted(record.content for record in found)


async def ids(store, name="docs"):
    return list((await store.get_collection(name))._records)


# --- on every queue -------------------------------------------------------------------------------


async def test_chunks_become_vectors_with_model_and_text(worker, store, model):
    await worker.start()
    chunks = [{"text": f"text {n}", "metadata": {"page": n}} for n in range(25)]
    job_id = await worker.embed_batch(chunks, "docs", batch_size=10)
    result = await ended(worker, job_id)
    assert (result.success, result.embeddings_generated, result.cache_hits) == (True, 25, 0)
    assert result.metadata["model_id"] == model.model_id
    assert [len(texts) for texts in model.asked] == [10, 10, 5]
    collection = await store.get_collection("docs")
    assert (collection.dimension, collection.model_id) == (16, model.model_id)
    assert await collection.count() == 25
    [record] = await collection.get([(await ids(store))[3]])
    assert record.metadata == {"page": 3, "model_id": model.model_id}
    assert record.content == "text 3"


async def test_a_job_that_fails_twice_is_tried_again_and_then_done(worker, model, store, queue):
    model.troubles = [RuntimeError("first"), EmbeddingsUnavailableError("second")]
    await worker.start()
    job_id = await worker.embed_batch(["a", "b"], "docs")
    result = await ended(worker, job_id)
    assert result.success
    assert (await queue.get_job(job_id)).retry_count == 2
    assert await contents(store) == ["a", "b"]
    progress = await worker.get_progress(job_id)
    assert (progress.status, progress.cache_misses) == (EmbeddingStatus.COMPLETED, 2)
    assert progress.progress_percent == 100.0


async def test_a_job_that_always_fails_ends_in_the_dead_letters(worker, model, store, queue):
    model.troubles = [RuntimeError("broken")] * 9
    await worker.start()
    job_id = await worker.embed_batch(["a", "b"], "docs")
    result = await ended(worker, job_id)
    assert not result.success
    assert "broken" in result.error
    assert result.metadata["reason"] == "exhausted"
    letters = JobDeadLetters(queue)
    letter = await letters.get(job_id)
    assert letter.attempts == 4
    assert len(model.asked) == 4
    assert (await worker.get_progress(job_id)).status is EmbeddingStatus.FAILED
    assert await (await store.get_collection("docs")).count() == 0
    # Mended, it goes on from the letter.
    model.troubles = []
    assert await letters.retry(job_id)
    await wait_until(lambda: _succeeded(worker, job_id), timeout=GUARD)
    assert await contents(store) == ["a", "b"]


async def _succeeded(worker, job_id):
    result = await worker.get_result(job_id)
    return result is not None and result.success


async def test_what_can_never_work_is_given_up_at_once(worker, model, store, queue):
    await store.create_collection(CollectionConfig("docs", 16, model_id="another model"))
    await worker.start()
    result = await ended(worker, await worker.embed_batch(["a"], "docs"))
    assert result.metadata["reason"] == "aborted"
    assert "another model" in result.error
    assert model.model_id in result.error
    assert model.asked == []


async def test_a_second_process_sees_how_a_job_ended(queue, model, store):
    """One hands in, another one works: what they share is the queue."""
    here = BatchEmbeddingWorker(store, model, queue)
    there = BatchEmbeddingWorker(store, model, queue)
    job_id = await here.embed_batch(["a", "b", "a"], "docs")
    assert (await here.get_progress(job_id)).status is EmbeddingStatus.PENDING
    assert await here.get_result(job_id) is None
    await there.drain()
    assert (await here.get_result(job_id)).embeddings_generated == 3
    progress = await here.get_progress(job_id)
    assert (progress.status, progress.texts_processed) == (EmbeddingStatus.COMPLETED, 3)
    unrelated = BatchEmbeddingWorker(store, model, queue)
    assert (await unrelated.get_progress(job_id)).total_texts == 3


async def test_the_job_of_a_worker_that_stops_is_handed_back(queue, model, store):
    first = BatchEmbeddingWorker(store, model, queue, retry=NOW)
    first._pool._settings = _impatient(first._pool._settings)
    model.gate = anyio.Event()
    await first.start()
    job_id = await first.embed_batch(["a"], "docs")
    await wait_until(lambda: model.asked, timeout=GUARD)
    await first.stop()
    assert (await first.get_progress(job_id)).status is EmbeddingStatus.PENDING
    model.gate.set()
    second = BatchEmbeddingWorker(store, model, queue, retry=NOW)
    await second.drain()
    assert (await second.get_result(job_id)).success


def _impatient(settings):
    from attrs import evolve

    return evolve(settings, drain_timeout=0.0)


# --- on the queue in memory -----------------------------------------------------------------------


async def test_the_pool_starts_without_bindings_and_health_is_correct(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory, "w1", concurrency=2)
    assert (await worker.health_check()).status is HealthStatus.UNHEALTHY
    await worker.start()
    await worker.start()
    health = await worker.health_check()
    assert (health.component, health.status) == ("worker.batch_embedding.w1", HealthStatus.HEALTHY)
    assert worker.get_stats() == {
        "worker_id": "w1",
        "running": True,
        "concurrency": 2,
        "active_workers": 2,
        "cache_size": 0,
        "cache_enabled": True,
        "active_jobs": 0,
        "jobs_by_status": {},
    }
    assert (await ended(worker, await worker.embed_batch(["a"], "docs"))).success
    await worker.stop()
    await worker.stop()
    assert (await worker.health_check()).status is HealthStatus.UNHEALTHY


async def test_a_class_of_the_application_makes_the_pool(memory, model, store):
    made = []

    class Mine(TaskWorker):
        def __init__(self, worker_id, queue, handler_registry):
            super().__init__(worker_id, queue, handler_registry)
            made.append(worker_id)

    worker = BatchEmbeddingWorker(store, model, memory, concurrency=2, task_worker_class=Mine)
    await worker.start()
    assert made == ["batch-embedding-1", "batch-embedding-2"]
    assert (await ended(worker, await worker.embed_batch(["a"], "docs"))).success
    await worker.stop()


async def test_no_more_jobs_at_a_time_than_concurrency(memory, model, store):
    model.gate = anyio.Event()
    worker = BatchEmbeddingWorker(store, model, memory, concurrency=2)
    await worker.start()
    jobs = [await worker.embed_batch([f"text {n}"], "docs") for n in range(5)]
    await wait_until(lambda: len(model.asked) == 2)
    assert worker.get_stats()["jobs_by_status"] == {"processing": 2, "pending": 3}
    model.gate.set()
    for job_id in jobs:
        assert (await ended(worker, job_id)).success
    await worker.stop()


async def test_two_jobs_of_equal_size_have_their_own_progress(memory, model, store):
    """The defect: the job was guessed by the number of its texts."""
    worker = BatchEmbeddingWorker(store, model, memory, concurrency=1)
    first = await worker.embed_batch(["a", "b"], "docs")
    second = await worker.embed_batch(["c", "d"], "docs")
    model.gate = anyio.Event()
    await worker.start()
    await wait_until(lambda: model.asked)
    statuses = [(await worker.get_progress(job_id)).status for job_id in (first, second)]
    assert statuses == [EmbeddingStatus.PROCESSING, EmbeddingStatus.PENDING]
    model.gate.set()
    assert (await ended(worker, second)).success
    await worker.stop()


async def test_an_empty_batch_is_done_and_stores_nothing(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory)
    job_id = await worker.embed_batch([], "docs")
    await worker.drain()
    result = await worker.get_result(job_id)
    assert (result.success, result.embeddings_generated) == (True, 0)
    assert (await worker.get_progress(job_id)).status is EmbeddingStatus.COMPLETED
    assert not await store.collection_exists("docs")


async def test_known_texts_are_not_computed_again_and_counted_once(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory)
    texts = [f"text {n}" for n in range(300)]
    first = await worker.embed_batch(texts, "docs")
    await worker.drain()
    progress = await worker.get_progress(first)
    assert (progress.cache_hits, progress.cache_misses) == (0, 300)
    second = await worker.embed_batch(texts, "other")
    await worker.drain()
    progress = await worker.get_progress(second)
    assert (progress.cache_hits, progress.cache_misses, progress.cache_hit_rate) == (300, 0, 100.0)
    assert sum(map(len, model.asked)) == 300
    assert worker.get_stats()["cache_size"] == 300
    third = await worker.embed_batch(texts[:2], "docs", use_cache=False)
    await worker.drain()
    assert (await worker.get_result(third)).cache_hits == 0
    await worker.clear_cache()
    assert worker.get_stats()["cache_size"] == 0


async def test_a_worker_without_a_cache_computes_all(memory, model, store):
    cache = EmbeddingCache()
    worker = BatchEmbeddingWorker(store, model, memory, enable_cache=False, cache=cache)
    await worker.embed_batch(["a"], "docs")
    await worker.drain()
    assert cache.size() == 0


async def test_done_twice_it_changes_nothing_and_equal_texts_stay_two(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory)
    chunks = [
        {"text": "same", "metadata": {"source": "a.md"}},
        {"text": "same", "metadata": {"source": "b.md"}},
        {"text": "same", "metadata": {"source": "b.md"}},
        {"text": "own id", "id": "my-id"},
    ]
    for _ in range(2):
        await worker.embed_batch(chunks, "docs")
        await worker.drain()
    assert await contents(store) == ["own id", "same", "same", "same"]
    assert "my-id" in await ids(store)


async def test_batches_of_one_call_keep_to_the_tokens(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory, max_batch_tokens=250)
    await worker.embed_batch([f"{n}" + "x" * 400 for n in range(5)], "docs")
    await worker.drain()
    assert [len(texts) for texts in model.asked] == [2, 2, 1]


async def test_nothing_is_stored_when_the_last_batch_fails(memory, model, store):
    model.troubles = [None, None, RuntimeError("broken")]
    worker = BatchEmbeddingWorker(store, model, memory, retry=JobRetry(base_delay=60))
    job_id = await worker.embed_batch([f"text {n}" for n in range(9)], "docs", batch_size=3)
    await worker.drain()
    assert (await memory.get_job(job_id)).status is JobStatus.RETRYING
    assert await (await store.get_collection("docs")).count() == 0
    progress = await worker.get_progress(job_id)
    assert (progress.status, progress.texts_processed) == (EmbeddingStatus.FAILED, 6)
    assert "broken" in progress.error


async def test_another_model_than_its_own_is_refused_before_a_job_exists(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory)
    with pytest.raises(ModelsMixedError, match="'hashing-for-tests-only-16', not 'other'"):
        await worker.embed_batch(["a"], "docs", model_name="other")
    assert await memory.get_task_count() == 0
    for name in (None, "text-embedding-ada-002", model.model_id):
        await worker.embed_batch(["a"], "docs", model_name=name)


async def test_a_job_for_another_model_is_not_done_by_this_one(memory, store):
    await BatchEmbeddingWorker(store, Model(8), memory).embed_batch(["a"], "docs")
    other = Model(16)
    worker = BatchEmbeddingWorker(store, other, memory)
    await worker.drain()
    [letter] = await JobDeadLetters(memory).list_failed()
    assert letter.reason == "aborted"
    assert other.asked == []
    assert not await store.collection_exists("docs")


async def test_a_collection_with_another_dimension_is_rejected_without_a_model_id(
    memory, model, store
):
    await store.create_collection(CollectionConfig("docs", 99))
    worker = BatchEmbeddingWorker(store, model, memory)
    job_id = await worker.embed_batch(["a"], "docs")
    await worker.drain()
    assert "(99)" in (await worker.get_result(job_id)).error


@pytest.mark.parametrize("chunk", ["", "  ", {"text": "\n"}])
async def test_an_empty_text_is_refused_before_a_job_exists(memory, model, store, chunk):
    with pytest.raises(EmbeddingInputError, match="text 1 of 2"):
        await BatchEmbeddingWorker(store, model, memory).embed_batch(["a", chunk], "docs")
    assert await memory.get_task_count() == 0


async def test_what_the_queue_does_not_take_is_an_error_with_the_reason(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory)
    with pytest.raises(EmbeddingEnqueueError, match="Failed to enqueue embedding job: ") as caught:
        await worker.embed_batch([{"text": "a", "metadata": {"x": object()}}], "docs")
    assert isinstance(caught.value, RuntimeError)
    assert worker.get_stats()["active_jobs"] == 0


async def test_a_full_queue_refuses_when_it_is_set_up_so(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory, max_queue_depth=2, when_full="refuse")
    for _ in range(2):
        await worker.embed_batch(["a"], "docs")
    with pytest.raises(
        EmbeddingQueueFullError, match="2 embedding jobs are pending, the limit is 2"
    ):
        await worker.embed_batch(["a"], "docs")
    assert await memory.count(QUEUE_NAME) == 2


async def test_a_full_queue_lets_callers_wait_and_is_never_deeper(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory, concurrency=1, max_queue_depth=3)
    accepted, deepest = [], 0

    async def hand_in():
        nonlocal deepest
        accepted.append(await worker.embed_batch(["a"], "docs"))
        deepest = max(deepest, await memory.count(QUEUE_NAME, JobStatus.PENDING))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(hand_in)
        await wait_until(lambda: len(accepted) == 3)
        await worker.start()
    assert len(accepted) == 10
    assert deepest <= 3
    await worker.stop()


async def test_waiting_for_room_ends(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory, max_queue_depth=1, queue_wait=0.05)
    await worker.embed_batch(["a"], "docs")
    with pytest.raises(EmbeddingQueueFullError):
        await worker.embed_batch(["a"], "docs")


async def test_hooks_are_emitted_for_each_attempt_and_the_end(memory, model, store):
    hooks, told = HookRegistry(), []
    hooks.on(WorkerJobStartedHook, told.append)
    hooks.on(WorkerJobCompletedHook, told.append)
    model.troubles = [RuntimeError("once")]
    worker = BatchEmbeddingWorker(store, model, memory, hooks=hooks, retry=NOW)
    await worker.embed_batch(["a"], "docs")
    await worker.drain()
    started, completed = (
        WorkerJobStartedHook(job_type="batch_embed"),
        WorkerJobCompletedHook(job_type="batch_embed"),
    )
    assert told == [started, started, completed]


async def test_jobs_of_others_on_the_same_queue_are_left_to_them(memory, model, store):
    await memory.enqueue({"name": "send_mail"})
    worker = BatchEmbeddingWorker(store, model, memory)
    await worker.embed_batch(["a"], "docs")
    assert await worker.drain() == 1
    assert await memory.count("default", JobStatus.PENDING) == 1


async def test_another_pool_can_run_the_jobs_with_its_handlers(memory, model, store):
    worker = BatchEmbeddingWorker(store, model, memory)
    job_id = await worker.embed_batch(["a"], "docs")
    await TaskWorker("other", memory, worker.handlers).drain()
    assert (await worker.get_result(job_id)).success


class PlainQueue:
    """Nothing but TaskQueueProtocol: no results, no leases, no names of queues."""

    def __init__(self):
        self.jobs, self.waiting, self.dead = {}, [], []

    async def enqueue(self, task):
        from lexigram.contracts.core.result import Ok

        job = Job(**{**task, "args": tuple(task["args"])})
        self.jobs[job.id] = job
        self.waiting.append(job.id)
        return Ok(job.id)

    async def dequeue(self):
        return self.jobs[self.waiting.pop(0)] if self.waiting else None

    async def ack(self, task_id): ...

    async def nack(self, task_id, requeue=True):
        (self.waiting if requeue else self.dead).append(task_id)

    async def get_job(self, job_id):
        return self.jobs.get(job_id)

    async def delete_job(self, job_id):
        return self.jobs.pop(job_id, None) is not None

    async def count(self, queue_name, status=None):
        return len(self.waiting)

    async def get_task_count(self):
        return len(self.waiting)

    async def clear(self):
        self.waiting.clear()

    async def close(self): ...


async def test_any_task_queue_will_do(model, store):
    queue = PlainQueue()
    worker = BatchEmbeddingWorker(store, model, queue, retry=NOW)
    model.troubles = [RuntimeError("once")]
    job_id = await worker.embed_batch(["a", "b"], "docs")
    assert await worker.get_result(job_id) is None
    await worker.start()
    assert (await ended(worker, job_id)).embeddings_generated == 2
    assert (await worker.get_progress(job_id)).status is EmbeddingStatus.COMPLETED
    await worker.stop()

"""The adapters on the real workers, queues and stores."""

import anyio
import pytest

from lexigram.ai.workers.adapters import (
    HAS_LEX_TASKS,
    JobAdapter,
    LexigramTasksAdapter,
    LoaderWorkerBridge,
    RAGIngestionAdapter,
)
from lexigram.ai.workers.batch_embedding import BatchEmbeddingWorker
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
from lexigram.ai.workers.document_ingestion.types import Document
from lexigram.ai.workers.document_ingestion.worker import DocumentIngestionWorker
from lexigram.ai.workers.embeddings import HashingEmbeddings
from lexigram.ai.workers.errors import JobNotTakenError, WorkerError
from lexigram.ai.workers.vectors.lancedb import LanceVectorStore
from lexigram.ai.workers.vectors.memory import MemoryVectorStore
from lexigram.contracts.ai import ChunkProtocol, RAGError
from lexigram.contracts.core.result import Err
from lexigram.contracts.data.vector import CollectionConfig
from lexigram.sql import Database
from lexigram.tasks import (
    InMemoryTaskQueue,
    JobStatus,
    MemoryProgress,
    ProgressTracker,
    SqlTaskQueue,
    TaskQueueError,
)

TEXT = """# Engines

## Steam

Steam engines turn heat into motion. They were the first of their kind.

## Diesel

Diesel engines burn oil under pressure. They need no spark.
"""


@pytest.fixture(params=["memory", "lancedb"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryVectorStore()
        return
    opened = LanceVectorStore(str(tmp_path / "db"))
    yield opened
    await opened.disconnect()


# --- the loader -----------------------------------------------------------------------------------


@pytest.fixture
async def ingestion(store):
    worker = DocumentIngestionWorker(
        store,
        InMemoryTaskQueue(),
        embedding_provider=HashingEmbeddings(),
        default_chunking_config={"chunk_size": 120, "chunk_overlap": 0, "unit": "characters"},
    )
    await worker.start()
    yield worker
    await worker.stop()


async def test_a_loaded_file_comes_back_as_the_chunks_that_are_stored(ingestion, tmp_path):
    path = tmp_path / "engines.md"
    path.write_text(TEXT)
    bridge = LoaderWorkerBridge(ingestion, poll_interval=0.01)
    chunks = await bridge.load(path, collection_name="engines")
    assert len(chunks) >= 2
    assert all(isinstance(chunk, ChunkProtocol) for chunk in chunks)
    joined = "\n".join(chunk.text for chunk in chunks)
    assert "turn heat into motion" in joined
    assert "need no spark" in joined
    assert [chunk.metadata["chunk_index"] for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert TEXT[chunk.metadata["start"] : chunk.metadata["end"]] == chunk.text
    # Unchanged the second time: nothing is embedded again, and the chunks are the same.
    again = await bridge.load(path, collection_name="engines")
    assert [chunk.text for chunk in again] == [chunk.text for chunk in chunks]


async def test_a_file_that_cannot_be_ingested_is_an_error_with_its_reason(ingestion, tmp_path):
    path = tmp_path / "empty.md"
    path.write_bytes(b"")
    with pytest.raises(RAGError, match="empty.md failed"):
        await LoaderWorkerBridge(ingestion, poll_interval=0.01).load(path)


async def test_a_load_without_a_running_worker_times_out(tmp_path):
    path = tmp_path / "x.md"
    path.write_text("text")
    idle = DocumentIngestionWorker(
        MemoryVectorStore(), InMemoryTaskQueue(), embedding_provider=HashingEmbeddings()
    )
    bridge = LoaderWorkerBridge(idle, timeout=0.05, poll_interval=0.01)
    with pytest.raises(RAGError, match=r"did not finish within 0\.05 s"):
        await bridge.load(path)


# --- retrieval ------------------------------------------------------------------------------------


class Refuses:
    """A chunker that cannot cut what says so."""

    def __init__(self, inner):
        self.inner = inner

    def chunk(self, text, metadata=None):
        if "unreadable" in text:
            raise ValueError("what is this?")
        return self.inner.chunk(text, metadata)


def rag(store, embedding=None):
    chunker = Refuses(DocumentChunker(ChunkingConfig(chunk_size=20, chunk_overlap=0)))
    worker = embedding or BatchEmbeddingWorker(store, HashingEmbeddings(), InMemoryTaskQueue())
    return RAGIngestionAdapter(chunker, worker, store), worker


async def test_documents_are_cut_embedded_and_stored(store):
    adapter, worker = rag(store)
    documents = [
        Document(TEXT, {"source": "engines.md"}),
        Document("unreadable", {"document_id": "bad"}),
        Document("A short note.", {}),
    ]
    report = (await adapter.ingest_to_rag(documents, collection="notes")).unwrap()
    assert (report.document_count, report.failed_ids) == (2, ("bad",))
    assert await worker.drain() == 1
    result = await worker.get_result(report.embedding_job_id)
    assert result.embeddings_generated == report.chunk_count
    collection = await store.get_collection("notes")
    assert await collection.count() == report.chunk_count
    # The same again changes nothing: ids come from the chunks.
    await adapter.ingest_to_rag(documents, collection="notes")
    await worker.drain()
    assert await collection.count() == report.chunk_count


async def test_no_documents_and_only_bad_ones():
    adapter, worker = rag(MemoryVectorStore())
    nothing = (await adapter.ingest_to_rag([])).unwrap()
    assert (nothing.document_count, nothing.chunk_count, nothing.embedding_job_id) == (0, 0, None)
    bad = await adapter.ingest_to_rag([Document("unreadable", {"document_id": "d"})])
    assert isinstance(bad, Err)
    assert bad.error.reason == "All documents failed chunking"
    assert bad.error.document_ids == ["d"]
    assert await worker.queue.get_task_count() == 0


async def test_a_collection_of_another_model_is_refused_before_chunks_are_submitted():
    store = MemoryVectorStore()
    await store.create_collection(CollectionConfig("notes", 3, model_id="another"))
    adapter, worker = rag(store)
    refused = await adapter.ingest_to_rag([Document("text", {})], collection="notes")
    assert "has vectors of model another" in refused.unwrap_err().reason
    assert await worker.queue.get_task_count() == 0


async def test_a_worker_that_does_not_take_the_job_is_a_worker_error():
    adapter, worker = rag(MemoryVectorStore())
    with pytest.raises(WorkerError, match="did not accept the chunks"):
        await adapter.ingest_to_rag([Document("text", {})], model_name="some-other-model")
    await worker.queue.close()
    with pytest.raises(WorkerError):
        await adapter.ingest_to_rag([Document("text", {})])


# --- jobs -----------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
def url(request):
    return None if request.param == "memory" else request.getfixturevalue("sqlite_url")


@pytest.fixture
async def queue(url):
    if url is None:
        yield InMemoryTaskQueue()
        return
    async with Database(url) as database:
        yield SqlTaskQueue(database)


async def test_jobs_are_enqueued_dequeued_by_queue_and_settled(queue):
    assert HAS_LEX_TASKS
    adapter = LexigramTasksAdapter(queue)
    low = await adapter.enqueue("mail", {"to": "ann"}, queue_name="mails")
    high = await adapter.enqueue("mail", {"to": "bob"}, priority=5, queue_name="mails")
    await adapter.enqueue("other", {})
    assert await adapter.count("mails") == 2
    first = await adapter.dequeue("mails", timeout=0.5)
    second = await adapter.dequeue("mails", timeout=0.5)
    assert [first.id, second.id] == [high, low]
    assert first.data == {"to": "bob"}
    assert await adapter.get_stats() == {"pending": 1, "processing": 2}
    assert await adapter.dequeue("mails", timeout=0.01) is None
    await first.update_status("running")
    await first.update_status("succeeded")
    await second.update_status("failed", "no such person")
    assert (await adapter.get_job(high)).status is JobStatus.COMPLETED
    failed = await adapter.get_job(low)
    assert (failed.status, failed.error) == (JobStatus.FAILED, "no such person")
    assert await adapter.count("mails", "done") == 1
    assert await adapter.delete_job(low)
    assert await adapter.get_job(low) is None


async def test_a_job_that_is_handed_back_can_be_dequeued_again(queue):
    adapter = LexigramTasksAdapter(queue)
    await adapter.enqueue("mail", {}, queue_name="mails")
    job = await adapter.dequeue("mails", timeout=0.5)
    await job.update_status("pending")
    assert (await adapter.dequeue("mails", timeout=0.5)).id == job.id


async def test_a_job_that_is_there_is_found_without_any_time_to_wait(queue):
    adapter = LexigramTasksAdapter(queue)
    assert await adapter.dequeue("mails", timeout=0) is None
    job_id = await adapter.enqueue("mail", {}, queue_name="mails")
    assert (await adapter.dequeue("mails", timeout=0)).id == job_id


async def test_a_dequeue_waits_for_a_job_that_comes_later(queue):
    adapter = LexigramTasksAdapter(queue)
    got = []

    async def wait():
        got.append(await adapter.dequeue("mails", timeout=20))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        await adapter.enqueue("mail", {"n": 1}, queue_name="mails")
    assert got[0].data == {"n": 1}


async def test_a_delayed_job_is_not_handed_out_before_its_time(queue):
    adapter = LexigramTasksAdapter(queue)
    await adapter.enqueue("mail", {}, delay_seconds=3600, queue_name="mails")
    assert await adapter.dequeue("mails", timeout=0.02) is None


async def test_progress_is_reported_in_percent():
    queue = InMemoryTaskQueue()
    progress = ProgressTracker(MemoryProgress(), queue)
    adapter = LexigramTasksAdapter(queue, progress=progress)
    job_id = await adapter.enqueue("mail", {}, queue_name="mails")
    job = await adapter.dequeue("mails", timeout=0.5)
    await job.update_progress(40, {"message": "half way"})
    snapshot = await progress.get(job_id)
    assert (snapshot.percent, snapshot.message) == (40.0, "half way")


async def test_a_refused_job_is_a_runtime_error_and_a_closed_queue_has_no_statistics(queue):
    adapter = LexigramTasksAdapter(queue)
    with pytest.raises(JobNotTakenError, match="did not accept the job") as caught:
        await adapter.enqueue("", {})
    assert isinstance(caught.value, RuntimeError)

    class Silent(InMemoryTaskQueue):
        async def get_task_count(self):
            raise TaskQueueError("away")

    assert await LexigramTasksAdapter(Silent()).get_stats() is None


def test_an_unknown_status_counts_as_waiting():
    class Raw:
        id, status = 7, "odd"

    job = JobAdapter(Raw())
    assert (job.id, job.status, job.data, job.created_at) == ("7", JobStatus.PENDING, {}, None)

"""The ingestion worker on real task queues in memory: what it stores, skips, refuses and retries."""

from pathlib import Path

import pytest
from tests.samples.make import lighthouse_pdf, pdf
from tests.unit.ai.test_documents import SAMPLES, Shouting, sealed

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.document_ingestion import errors
from lexigram.ai.workers.document_ingestion.config import IngestionConfig
from lexigram.ai.workers.document_ingestion.parser import UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.processor import DocumentProcessor
from lexigram.ai.workers.document_ingestion.progress import ProgressTracker
from lexigram.ai.workers.document_ingestion.types import (
    Document,
    DocumentIngestionJob,
    IngestionProgress,
    IngestionResult,
    IngestionStatus,
)
from lexigram.ai.workers.document_ingestion.worker import DocumentIngestionWorker
from lexigram.ai.workers.embeddings.hashing import HashingEmbeddings
from lexigram.ai.workers.hooks import WorkerJobCompletedHook, WorkerJobStartedHook
from lexigram.ai.workers.vectors.errors import CollectionMismatchError
from lexigram.ai.workers.vectors.memory import MemoryVectorStore
from lexigram.contracts.ai import ChunkProtocol
from lexigram.contracts.data.vector import SearchQuery, VectorRecord
from lexigram.contracts.infra.tasks import JobStatus
from lexigram.hooks import HookRegistry
from lexigram.tasks import InMemoryTaskQueue, JobRetry


class Counting(HashingEmbeddings):
    """Counts the texts it computed, and fails when told."""

    def __init__(self, dimension=64):
        super().__init__(dimension)
        self.texts = 0
        self.failures = 0

    async def embed_texts(self, texts):
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no answer")
        self.texts += len(texts)
        return await super().embed_texts(texts)


@pytest.fixture
def embeddings():
    return Counting()


@pytest.fixture
def store():
    return MemoryVectorStore()


@pytest.fixture
def make(store, embeddings):
    def made(**settings):
        settings = {"retry": None, **settings}
        return DocumentIngestionWorker(
            store, InMemoryTaskQueue(), embedding_provider=embeddings, **settings
        )

    return made


async def everything(store, name="docs"):
    collection = await store.get_collection(name)
    direction = [1.0] + [0.0] * (collection.dimension - 1)
    found = await collection.search(SearchQuery(vector=direction, top_k=1000, include_vectors=True))
    return sorted(found, key=lambda one: (one.metadata["document_id"], one.metadata["start"]))


async def ingested(worker, path, document_id="d1", **more):
    job_id = await worker.ingest_document(document_id, path, "docs", **more)
    await worker.drain()
    return job_id


async def test_chunks_are_stored_with_vectors_ids_and_where_they_stand(make, store):
    worker = make()
    job_id = await ingested(
        worker, SAMPLES / "lighthouse.pdf", metadata={"team": "sea"}, chunking_config=None
    )
    result = await worker.get_result(job_id)
    assert result.success
    assert result.chunks_created == 3
    assert result.metadata["total_pages"] == 2
    chunks = await everything(store)
    assert [chunk.metadata["heading_path"] for chunk in chunks] == [
        "Keeping a lighthouse",
        "Keeping a lighthouse > Oil",
        "Keeping a lighthouse > Fog",
    ]
    text = (await UniversalDocumentParser().parse(SAMPLES / "lighthouse.pdf")).content
    for number, chunk in enumerate(chunks):
        facts = chunk.metadata
        assert text[facts["start"] : facts["end"]] == chunk.content
        assert facts["chunk_index"] == number
        assert facts["team"] == "sea"
        assert facts["title"] == "Keeping a lighthouse"
        assert facts["mime_type"] == "application/pdf"
        assert facts["doc_hash"].startswith("sha256-")
        assert facts["model_id"] == "hashing-for-tests-only-64"
        assert any(chunk.vector)
    assert chunks[-1].metadata["page"] == 2


async def test_the_chunks_of_a_job_can_be_read_back(make):
    worker = make()
    job_id = await worker.ingest_document("d1", SAMPLES / "bicycle.md", "docs")
    assert await worker.get_chunks(job_id) == []
    await worker.drain()
    chunks = await worker.get_chunks(job_id)
    assert [chunk.heading_path[-1] for chunk in chunks] == [
        *("Repair a bicycle", "Flat tyre", "Brakes", "Cables")
    ]
    assert all(isinstance(chunk, ChunkProtocol) for chunk in chunks)
    assert await worker.get_chunks("unknown") == []


async def test_ingesting_again_changes_nothing_and_computes_nothing(make, store, embeddings):
    worker = make()
    await ingested(worker, SAMPLES / "bicycle.md")
    before, computed = await everything(store), embeddings.texts
    job_id = await ingested(make(cache=EmbeddingCache()), SAMPLES / "bicycle.md")
    assert job_id
    assert await everything(store) == before
    assert embeddings.texts == computed


async def test_unchanged_content_is_not_even_parsed(make, tmp_path):
    parsed = []

    class Loud(Shouting):
        async def parse(self, path):
            parsed.append(path)
            return await super().parse(path)

    path = tmp_path / "a.txt"
    path.write_text("hello")
    worker = make(document_parser=Loud())
    for _ in range(3):
        job_id = await ingested(worker, path)
    assert len(parsed) == 1
    assert (await worker.get_result(job_id)).metadata["skipped"]
    path.write_text("hello again")
    await ingested(worker, path)
    assert len(parsed) == 2


async def test_removed_parts_disappear_and_the_rest_keeps_its_ids(
    make, store, tmp_path, embeddings
):
    path = tmp_path / "a.md"
    path.write_text("# A\n\nfirst\n\n# B\n\nsecond\n\n# C\n\nthird")
    worker = make()
    await ingested(worker, path)
    before = {chunk.content: chunk.id for chunk in await everything(store)}
    computed = embeddings.texts
    path.write_text("# A\n\nfirst\n\n# C\n\nthird\n\n# D\n\nfourth")
    await ingested(worker, path)
    after = {chunk.content: chunk.id for chunk in await everything(store)}
    assert set(after) == {"# A\n\nfirst", "# C\n\nthird", "# D\n\nfourth"}
    assert all(after[text] == before[text] for text in set(before) & set(after))
    assert embeddings.texts == computed + 1  # the others were in the cache


async def test_what_a_cut_off_replacement_left_is_removed(make, store, tmp_path, embeddings):
    for count in (3, 100):  # fewer and more than one search gives
        path = tmp_path / f"{count}.md"
        path.write_text("\n\n".join(f"# Part {number}\n\ntext" for number in range(count)))
        worker = make()
        await ingested(worker, path, "d1")
        collection = await store.get_collection("docs")
        computed = embeddings.texts
        await ingested(worker, path, "d1")
        assert await collection.count() == count
        # a chunk of an earlier version, as a killed worker leaves it between writing and removing
        (old,) = await collection.get([(await everything(store))[0].id])
        facts = {**old.metadata, "doc_hash": "sha256-earlier"}
        await collection.upsert([VectorRecord("old", old.vector, facts, "old")])
        assert embeddings.texts == computed
        await ingested(make(), path, "d1")
        assert await collection.count() == count
        await collection.delete_by_filter({"document_id": "d1"})


async def test_other_metadata_of_the_same_content_is_stored(make, store):
    worker = make()
    await ingested(worker, SAMPLES / "plain.txt", metadata={"team": "sea"})
    await ingested(worker, SAMPLES / "plain.txt", metadata={"team": "land"})
    assert [chunk.metadata["team"] for chunk in await everything(store)] == ["land"]


async def test_equal_files_are_two_documents(make, store, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("the same")
    worker = make()
    await ingested(worker, tmp_path / "a.txt", "one")
    await ingested(worker, tmp_path / "b.txt", "two")
    assert [chunk.metadata["document_id"] for chunk in await everything(store)] == ["one", "two"]


async def test_a_custom_parser_and_chunking_are_obeyed(make, store, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("alpha beta gamma delta")
    worker = make(document_parser=Shouting())
    await ingested(
        worker,
        path,
        chunking_config={"chunk_size": 12, "chunk_overlap": 0, "unit": "characters"},
    )
    texts = [chunk.content for chunk in await everything(store)]
    assert len(texts) > 2
    assert all(len(text) <= 12 for text in texts)
    assert "ALPHA" in " ".join(texts)


async def test_a_parser_is_chosen_by_name(make, store, tmp_path):
    parser = UniversalDocumentParser()
    parser.register("shout", Shouting())
    path = tmp_path / "a.txt"
    path.write_text("hello")
    worker = make(document_parser=parser)
    await ingested(worker, path, parser="shout")
    assert "HELLO" in (await everything(store))[0].content
    with pytest.raises(errors.UnknownParserError):
        await worker.ingest_document("d", path, "docs", parser="whisper")


async def test_wrong_chunking_is_refused_before_it_is_queued(make):
    worker = make()
    with pytest.raises(errors.ChunkingConfigError, match="chunk_sze"):
        await worker.ingest_document("d", "a.txt", "docs", chunking_config={"chunk_sze": 3})
    assert await worker.queue.get_task_count() == 0


async def test_a_failure_of_the_model_is_tried_again_by_the_queue(make, store, embeddings):
    embeddings.failures = 2
    worker = make(retry=JobRetry(base_delay=0))
    job_id = await worker.ingest_document("d1", SAMPLES / "plain.txt", "docs")
    while (await worker.get_result(job_id)) is None:
        await worker.drain()
    assert (await worker.get_result(job_id)).success
    assert len(await everything(store)) == 1


async def test_a_bad_document_fails_at_once_and_is_a_dead_letter(make, tmp_path):
    worker = make()
    path = tmp_path / "zero.txt"
    path.touch()
    job_id = await ingested(worker, path)
    result = await worker.get_result(job_id)
    assert not result.success
    assert result.document_id == (await worker.get_progress(job_id)).document_id != ""
    assert "DocumentEmptyError" in result.error
    job = await worker.queue.get_job(job_id)
    assert job.status is JobStatus.FAILED
    assert job.retry_count == 0
    progress = await worker.get_progress(job_id)
    assert progress.status is IngestionStatus.FAILED
    assert "0 bytes" in progress.error


async def test_the_processor_raises_what_went_wrong(store, embeddings, tmp_path):
    processor = DocumentProcessor(store, embedding_provider=embeddings)
    with pytest.raises(errors.DocumentMissingError):
        await processor.process_document("d", tmp_path / "none.txt", "docs")
    embeddings.failures = 1
    with pytest.raises(ConnectionError):
        await processor.process_document("d", SAMPLES / "plain.txt", "docs")
    assert await everything(store) == []


async def test_vectors_of_two_models_are_not_mixed(make, store, embeddings):
    await ingested(make(), SAMPLES / "plain.txt")
    other = DocumentProcessor(store, embedding_provider=Counting(32))
    with pytest.raises(CollectionMismatchError, match="only-64.*only-32"):
        await other.process_document("d2", SAMPLES / "bicycle.md", "docs")


async def test_one_good_and_nine_bad_files_give_one_document_and_nine_reasons(
    store, embeddings, tmp_path
):
    root, outside = tmp_path / "root", tmp_path / "outside.txt"
    root.mkdir()
    outside.write_text("not yours")
    large = root / "large.txt"
    with large.open("wb") as file:
        file.truncate(100 * 1024 * 1024)  # sparse: costs no disk
    bad = {
        "zero.txt": (b"", errors.DocumentEmptyError),
        "wrong.pdf": (b"\x89PNG\r\n\x1a\n\0\0", errors.DocumentTypeMismatchError),
        "cut.pdf": (lighthouse_pdf()[:700], errors.DocumentBrokenError),
        "sealed.pdf": (sealed(pdf([[(11, "secret")]])), errors.DocumentEncryptedError),
        "large.txt": (None, errors.DocumentTooLargeError),
        "latin.csv": (b"name;town\nJos\xe9;C\x81rdoba\n", errors.DocumentCharsetError),
        "link.txt": (outside, errors.DocumentOutsideRootError),
        "closed.txt": ("folder", errors.DocumentUnreadableError),
        "binary.md": (b"\0\1\2\3" * 50, errors.DocumentBinaryError),
    }
    for name, (content, _) in bad.items():
        if isinstance(content, bytes):
            (root / name).write_bytes(content)
        elif isinstance(content, Path):
            (root / name).symlink_to(content)
        elif content == "folder":
            (root / name).mkdir()
    (root / "good.md").write_text("# Good\n\nThis one is indexed.")
    processor = DocumentProcessor(
        store, embedding_provider=embeddings, files=UniversalDocumentParser(root)
    )
    reasons = {}
    for path in sorted(root.iterdir()):
        try:
            await processor.process_document(path.name, path, "docs")
        except errors.IngestionInputError as error:
            reasons[path.name] = type(error)
    assert reasons == {name: kind for name, (_, kind) in bad.items()}
    assert len(set(reasons.values())) == 9
    assert [chunk.metadata["document_id"] for chunk in await everything(store)] == ["good.md"]


async def test_a_latin_1_table_is_read_and_says_how(make, store, tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes("name;town\nJosé;Mérida\n".encode("latin-1"))
    worker = make()
    job_id = await ingested(worker, path)
    assert (await worker.get_result(job_id)).metadata["charset"] == "cp1252"
    assert (await everything(store))[0].content == "name: José; town: Mérida"


async def test_hooks_are_emitted_for_jobs(store, embeddings):
    hooks, heard = HookRegistry(), []

    async def hear(payload):
        heard.append(type(payload))

    hooks.on(WorkerJobStartedHook, hear)
    hooks.on(WorkerJobCompletedHook, hear)
    worker = DocumentIngestionWorker(
        store, InMemoryTaskQueue(), embedding_provider=embeddings, hooks=hooks
    )
    await ingested(worker, SAMPLES / "plain.txt")
    assert heard == [WorkerJobStartedHook, WorkerJobCompletedHook]


async def test_the_pool_works_while_it_runs_and_health_tells(make, store):
    worker = make(concurrency=2)
    assert (await worker.health_check()).status.value == "unhealthy"
    await worker.start()
    try:
        health = await worker.health_check()
        assert health.component == "worker.document_ingestion.document-ingestion"
        assert health.status.value == "healthy"
        ids = [
            await worker.ingest_document(path.name, path, "docs")
            for path in sorted(SAMPLES.iterdir())
        ]
        for job_id in ids:
            assert (await worker.queue.wait(job_id, 30)).status is JobStatus.COMPLETED
            progress = await worker.get_progress(job_id)
            assert progress.status is IngestionStatus.COMPLETED
            assert progress.progress_percent == 100.0
        assert worker.get_stats()["completed_jobs"] == len(ids)
    finally:
        await worker.stop()
    assert {c.metadata["document_id"] for c in await everything(store)} == {
        path.name for path in SAMPLES.iterdir()
    }


async def test_progress_is_bounded_and_by_job():
    tracker = ProgressTracker(max_jobs=3)
    for number in range(10):
        await tracker.initialize_progress(f"job{number}", "same document")
    assert len(await tracker.get_all_progress()) == 3
    await tracker.update_progress(
        "same document", IngestionStatus.EMBEDDING, total_chunks=4, chunks_processed=1
    )
    progress = await tracker.get_progress("job9")
    assert (progress.status, progress.progress_percent) == (IngestionStatus.EMBEDDING, 25.0)
    assert (await tracker.get_progress("job8")).status is IngestionStatus.PENDING
    await tracker.update_progress("same document", error="broken", job_id="job8")
    assert tracker.get_stats() == {"active_jobs": 2, "completed_jobs": 0, "failed_jobs": 1}


def test_values_have_readable_representations():
    progress = IngestionProgress("d")
    assert progress.progress_percent == 0.0
    progress.update(error="broken")
    assert progress.to_dict()["status"] == "failed"
    done = IngestionResult.success_result("d", 3, 0.5, {"a": 1})
    assert IngestionResult(**done.to_dict()) == done
    assert not IngestionResult.failure_result("d", "broken", 0.1).success
    job = DocumentIngestionJob("d", Path("a.txt"), "docs", parser="text")
    assert job.to_job_kwargs()["parser_name"] == "text"
    assert Document("text").page_at(0) is None
    assert IngestionConfig().chunking.chunk_size == 512


async def test_a_chunker_of_the_application_is_used(store, embeddings):
    class Halves:
        def chunk(self, text, metadata=None):
            middle = len(text) // 2
            return [Piece(text[:middle]), Piece(text[middle:]), Piece("  ")]

    class Piece:
        score = None

        def __init__(self, text):
            self.text = text
            self.metadata = {}

    processor = DocumentProcessor(store, chunker=Halves(), embedding_provider=embeddings)
    result = await processor.process_document("d", SAMPLES / "plain.txt", "docs")
    assert result.chunks_created == 2
    first, second = await everything(store)
    assert first.metadata["end"] == second.metadata["start"]


async def test_a_chunker_of_the_application_may_make_no_chunk(store, embeddings):
    class Nothing:
        def chunk(self, text, metadata=None):
            return []

    processor = DocumentProcessor(store, chunker=Nothing(), embedding_provider=embeddings)
    result = await processor.process_document("d", SAMPLES / "plain.txt", "docs")
    assert result.success
    assert result.chunks_created == 0

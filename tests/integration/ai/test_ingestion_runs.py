"""Documents through the real engine, the shipped definitions and LanceDB."""

from pathlib import Path

import anyio
import pytest
from tests.unit.ai.test_documents import BAD, SAMPLES
from tests.unit.ai.test_ingestion import Counting, everything

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.document_ingestion.parser import UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.worker import DocumentIngestionWorker
from lexigram.ai.workers.vectors.checksum import checksum_file
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.ai.workers.vectors.config import VectorConfig
from lexigram.ai.workers.vectors.databases import VectorDatabases
from lexigram.ai.workers.vectors.memory import MemoryVectorStore
from lexigram.blobs.config import BlobConfig
from lexigram.blobs.store import BlobStore
from lexigram.contracts.ai import EmbeddingProviderProtocol
from lexigram.contracts.infra.tasks import JobStatus
from lexigram.contracts.workflow.durable import RunDocument
from lexigram.di import Container
from lexigram.sql import Database
from lexigram.tasks import JobDeadLetters, JobRetry, SqlTaskQueue
from lexigram.testing.waiting import wait_until
from lexigram.workflow.durable.definitions.catalog import HandlerCatalog
from lexigram.workflow.durable.definitions.registry import DefinitionFolders, DefinitionRegistry
from lexigram.workflow.durable.documents.artifacts import Artifacts
from lexigram.workflow.durable.documents.documents import Documents
from lexigram.workflow.durable.documents.runs import DurableRuns
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.worker import Worker, WorkerConfig

DEFINITIONS = "lexigram.ai.workers.definitions"


@pytest.fixture
async def database(sqlite_url):
    async with Database(sqlite_url) as opened:
        yield opened


SEED_BATCH = """\
id: seed_batch
name: Batch Workflow
meta: {}
item_steps:
  validate: {name: v, retries: 3, method: soliplex.ingester.lib.workflow.validate_document}
  parse: {name: p, retries: 3, method: soliplex.ingester.lib.workflow.parse_document}
  chunk: {name: c, retries: 3, method: soliplex.ingester.lib.workflow.chunk_document}
  embed: {name: e, retries: 3, method: soliplex.ingester.lib.workflow.embed_document}
  store: {name: s, retries: 3, method: soliplex.ingester.lib.workflow.save_to_rag}
"""
SEED_PARAMS = """\
id: seed_default
name: Default Parameters
meta: {}
config:
  parse: {format: markdown, ocr_enabled: true}
  chunk: {chunk_size: 512, chunk_overlap: 50, separator: "\\n\\n"}
  embed: {model: text-embedding-3-small, batch_size: 1000}
  store: {data_dir: lancedb, collection_name: documents}
"""


class Fleet:
    """All parts of durable runs, with the shipped definitions and services by type."""

    def __init__(self, database, blobs, folder: Path):
        self.embeddings = Counting()
        self.stores = VectorStores(VectorConfig(path=str(folder)))
        container = Container()
        container.singleton(EmbeddingProviderProtocol, self.embeddings)
        container.singleton(EmbeddingCache, EmbeddingCache())
        container.singleton(VectorStores, self.stores)
        container.singleton(UniversalDocumentParser, UniversalDocumentParser())
        container.freeze()
        engine = DurableEngine(database)
        artifacts = Artifacts(blobs)
        documents = Documents(database, artifacts, engine)
        handlers = HandlerCatalog({})
        self.registry = DefinitionRegistry(
            handlers,
            DefinitionFolders(workflow_dir=folder / "workflows", param_dir=folder / "params"),
            packages=(DEFINITIONS,),
            default_workflow_id="batch",
            default_param_id="default",
        )
        self.runs = DurableRuns(
            engine,
            self.registry,
            documents,
            make_worker=lambda consumers: Worker(
                WorkerConfig(consumers=consumers or {"*": 4}, poll_interval=0.05),
                engine,
                handlers,
                documents=documents.load,
                artifacts=artifacts,
                services=container,
            ),
        )

    async def ingested(self, documents, **more):
        group = await self.runs.submit(documents, **more)
        async with self.runs.working():
            async for stats in self.runs.watch(group):
                last = stats
        return group, last


@pytest.fixture
async def fleet(database, tmp_path):
    blobs = await BlobStore.open(BlobConfig(root=str(tmp_path / "blobs")))
    for kind, text in (("workflows", SEED_BATCH), ("params", SEED_PARAMS)):
        (tmp_path / "lancedb" / kind).mkdir(parents=True)
        (tmp_path / "lancedb" / kind / "seed.yaml").write_text(text)
    made = Fleet(database, blobs, tmp_path / "lancedb")
    yield made
    await made.stores.close()


def sample(path):
    return RunDocument(uri=str(path), source="samples", content=path.read_bytes())


async def test_shipped_workflows_load(fleet):
    ids = {definition.id for definition in await fleet.registry.list()}
    assert {"batch", "batch_split", "batch_split_vacuum", "interactive"} <= ids
    for workflow in ids:
        for params in ("default", "small_chunks", "seed_default"):
            plan = await fleet.registry.plan(workflow, params)
            assert [step.step_type for step in plan.steps] == [
                *("validate", "parse", "chunk", "embed", "store")
            ]


async def test_samples_of_every_kind_become_searchable_and_again_cost_nothing(fleet):
    samples = [sample(path) for path in sorted(SAMPLES.iterdir())]
    group, stats = await fleet.ingested(samples)
    assert stats.completed == len(samples), await fleet.runs.failures(group)
    chunks = await everything(fleet.stores.at("default"), "documents")
    assert {chunk.metadata["uri"] for chunk in chunks} == {one.uri for one in samples}
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    computed = fleet.embeddings.texts
    _, stats = await fleet.ingested(samples)
    assert stats.completed == len(samples)
    assert fleet.embeddings.texts == computed
    assert await everything(fleet.stores.at("default"), "documents") == chunks


async def test_bad_documents_fail_with_their_reason_and_do_not_stop_the_group(fleet):
    names = ("zero.txt", "picture.pdf", "cut.pdf", "sealed.pdf", "latin.csv", "noise.txt")
    bad = [RunDocument(uri=name, source="bad", content=BAD[name][0]) for name in names]
    group, stats = await fleet.ingested([sample(SAMPLES / "bicycle.md"), *bad])
    assert (stats.completed, stats.failed) == (1, len(bad))
    failures = await fleet.runs.failures(group)
    assert {one.uri: one.error_type for one in failures} == {
        name: BAD[name][1].__name__ for name in names
    }


async def test_the_end_of_a_group_vacuums_and_writes_the_checksum(fleet, tmp_path):
    await fleet.ingested([sample(SAMPLES / "lighthouse.pdf")], workflow_id="batch_split_vacuum")
    folder = tmp_path / "lancedb" / "default"
    async with fleet.runs.working():
        await wait_until(anyio.Path(checksum_file(folder)).exists, timeout=60)
    verified = await VectorDatabases(fleet.stores).verify("default")
    assert verified.ok, verified.reason


async def test_the_seeds_definitions_run_and_its_model_must_be_there(fleet):
    one = [sample(SAMPLES / "plain.txt")]
    group, stats = await fleet.ingested(one, workflow_id="seed_batch", param_id="seed_default")
    assert stats.failed == 1
    (failure,) = await fleet.runs.failures(group)
    assert (failure.step, failure.error_type) == ("e", "ModelNotBoundError")
    fleet.embeddings.model_id = "openai:text-embedding-3-small"
    _, stats = await fleet.ingested(one, workflow_id="seed_batch", param_id="seed_default")
    assert stats.completed == 1
    assert len(await everything(fleet.stores.at("lancedb"), "documents")) == 1


@pytest.fixture(
    params=["sqlite_url", pytest.param("postgres_url", marks=pytest.mark.service("postgresql"))]
)
def url(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def queue(url):
    async with Database(url) as opened:
        made = SqlTaskQueue(opened)
        await made.clear()
        yield made
        await made.close()


async def test_jobs_on_a_database_are_done_retried_and_kept_as_dead_letters(queue, tmp_path):
    embeddings, store = Counting(), MemoryVectorStore()
    worker = DocumentIngestionWorker(
        store, queue, embedding_provider=embeddings, retry=JobRetry(base_delay=0.01)
    )
    embeddings.failures = 2
    (tmp_path / "broken.json").write_bytes(b'{"a": ')
    good = await worker.ingest_document("good", SAMPLES / "honey.docx", "docs")
    await worker.start()
    try:
        assert (await queue.wait(good, 30)).status is JobStatus.COMPLETED
        bad = await worker.ingest_document("bad", tmp_path / "broken.json", "docs")
        ended = await queue.wait(bad, 30)
    finally:
        await worker.stop()
    assert ended.status is JobStatus.FAILED
    assert "DocumentBrokenError" in ended.error
    assert (await JobDeadLetters(queue).get(bad)).message_id == bad
    assert len(await everything(store)) == 2

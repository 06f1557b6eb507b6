"""The durable steps by themselves: what each reads, writes, refuses and skips."""

import io
import json

import attrs
import numpy as np
import pytest
from tests.samples.make import pdf
from tests.unit.ai.test_documents import SAMPLES
from tests.unit.ai.test_ingestion import Counting, everything

from lexigram.ai.workers import steps
from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.document_ingestion import errors
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
from lexigram.ai.workers.embeddings.errors import (
    EmbeddingEndpointError,
    EmbeddingMismatchError,
    EmbeddingsUnavailableError,
)
from lexigram.ai.workers.statistics import IngestionStatistics
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.ai.workers.vectors.config import VectorConfig
from lexigram.ai.workers.vectors.memory import MemoryVectorStore
from lexigram.contracts.data.blobs import BlobNotFoundError
from lexigram.contracts.workflow.durable import ArtifactType, RunDocumentRecord
from lexigram.contracts.workflow.errors import StepRefusedError


class Artifact:
    def __init__(self, blobs, path):
        self.blobs, self.path = blobs, path

    async def exists(self):
        return self.path in self.blobs

    async def read(self):
        if self.path not in self.blobs:
            raise BlobNotFoundError(self.path)
        return self.blobs[self.path]

    async def write(self, data):
        self.blobs[self.path] = data
        return self.path


class Context:
    """What a step sees of its run."""

    attempt = 1
    cancelled = False

    def __init__(self, content, key="k", blobs=None):
        self.blobs = {} if blobs is None else blobs
        self.key = key
        self.told = []
        self.blobs[self.artifact(ArtifactType.DOC).path] = content

    def artifact(self, kind, name=None):
        return Artifact(self.blobs, f"{kind.value}/{self.key}/doc")

    async def heartbeat(self):
        return True

    async def progress(self, current, total, message=""):
        self.told.append((current, total))


def record(uri="notes/bicycle.md", content=b"", mime_type="text/markdown", **more):
    return RunDocumentRecord(
        hash=f"sha256-{hash(content)}",
        mime_type=mime_type,
        file_size=len(content),
        uri=uri,
        source="folder",
        **more,
    )


@pytest.fixture
def embeddings():
    return Counting()


async def worked(ctx, doc, embeddings, stores, chunk=None):
    """All steps of the shipped workflows."""
    await steps.validate_document(doc, {}, ctx)
    await steps.parse_document(doc, {}, ctx)
    await steps.chunk_document(chunk or {}, ctx)
    await steps.embed_document({}, ctx, embeddings)
    return await steps.save_to_rag(doc, {}, ctx, stores, embeddings=embeddings)


def memory_stores():
    return VectorStores(VectorConfig(provider="memory"))


async def test_a_document_goes_through_all_steps(embeddings):
    content = (SAMPLES / "lighthouse.pdf").read_bytes()
    ctx, stores = Context(content), memory_stores()
    doc = record("lighthouse.pdf", content, "application/pdf", metadata={"team": "sea"})
    assert await steps.validate_document(doc, {}, ctx) == {"parser": "pdf", "file_size": 1447}
    parsed = await steps.parse_document(doc, {"ocr_enabled": False, "format": "markdown"}, ctx)
    assert parsed["total_pages"] == 2
    markdown = ctx.blobs["parsed_md/k/doc"].decode()
    blocks = json.loads(ctx.blobs["parsed_json/k/doc"])["blocks"]
    fog = next(block for block in blocks if block.get("title") == "Fog")
    assert markdown[fog["start"] : fog["end"]] == "## Fog"
    assert (fog["page"], fog["level"]) == (2, 2)
    seed = {"chunk_size": 512, "chunk_overlap": 50, "separator": "\n\n"}
    assert await steps.chunk_document(seed, ctx) == {"chunks": 3}
    done = await steps.embed_document({"batch_size": 2}, ctx, embeddings)
    assert done == {"model_id": embeddings.model_id, "vectors": 3, "cache_hits": 0}
    assert ctx.told == [(2, 3), (3, 3)]
    packed = ctx.blobs["embeddings/k/doc"]
    with np.load(io.BytesIO(packed), allow_pickle=False) as found:
        assert found["vectors"].dtype == np.float32
        assert str(found["model_id"]) == embeddings.model_id
    told = await steps.save_to_rag(
        doc, {"data_dir": "db", "collection_name": "docs"}, ctx, stores, embeddings=embeddings
    )
    assert told["chunks"] == 3
    assert json.loads(ctx.blobs["rag/k/doc"])["document_id"] == told["document_id"]
    chunks = await everything(stores.at("db"))
    assert [chunk.metadata["page"] for chunk in chunks] == [1, 1, 2]
    assert chunks[0].metadata["team"] == "sea"
    assert markdown[chunks[1].metadata["start"] :].startswith(chunks[1].content)


async def test_storing_again_is_skipped_until_something_changed(embeddings):
    content = (SAMPLES / "bicycle.md").read_bytes()
    blobs, stores, doc = {}, memory_stores(), record(content=content)
    assert "skipped" not in await worked(Context(content, blobs=blobs), doc, embeddings, stores)
    assert (await worked(Context(content, blobs=blobs), doc, embeddings, stores))["skipped"]
    # somebody removed it from the store
    collection = await stores.at("default").get_collection("documents")
    await collection.delete_by_filter({"uri": doc.uri})
    assert "skipped" not in await worked(Context(content, blobs=blobs), doc, embeddings, stores)
    assert await collection.count() == 4
    # other settings make other chunks, in place of the old ones
    small = {"chunk_size": 15, "chunk_overlap": 0}
    told = await worked(Context(content, "small", blobs), doc, embeddings, stores, small)
    assert await collection.count() == told["chunks"] > 4
    # and back again: the artifact of then is there, the records are not
    assert "skipped" not in await worked(Context(content, blobs=blobs), doc, embeddings, stores)
    assert await collection.count() == 4


async def test_one_content_at_two_places_is_two_documents(embeddings):
    content = (SAMPLES / "plain.txt").read_bytes()
    blobs, stores = {}, memory_stores()
    for uri in ("a.txt", "b.txt"):
        doc = record(uri, content, "text/plain")
        await worked(Context(content, blobs=blobs), doc, embeddings, stores)
    found = await everything(stores.at("default"), "documents")
    assert sorted(chunk.metadata["uri"] for chunk in found) == ["a.txt", "b.txt"]


async def test_a_long_pdf_in_parts_gives_the_same_artifacts():
    content = pdf([[(20, f"Part {n}"), (11, f"The text of page {n} goes on.")] for n in range(5)])
    doc = record("long.pdf", content, "application/pdf")
    whole, parts = Context(content), Context(content)
    await steps.parse_document(doc, {}, whole)
    await steps.split_parse_document(doc, {"pages_at_once": 2}, parts)
    assert parts.blobs == whole.blobs
    assert parts.told == [(2, 5), (4, 5), (5, 5)]


async def test_scanned_pages_are_listed_in_the_status():
    content = pdf([[(11, "Text on one page.")], []], images=[1])
    ctx = Context(content)
    done = await steps.parse_document(record("scan.pdf", content, "application/pdf"), {}, ctx)
    assert done["pages_needing_ocr"] == [2]


async def test_vectors_that_are_cached_are_not_computed_again(embeddings):
    content = (SAMPLES / "bicycle.md").read_bytes()
    cache, doc = EmbeddingCache(), record(content=content)
    for expected in (0, 4):
        ctx = Context(content)
        await steps.parse_document(doc, {}, ctx)
        await steps.chunk_document({}, ctx)
        done = await steps.embed_document({}, ctx, embeddings, cache)
        assert done["cache_hits"] == expected
    assert embeddings.texts == 4


async def test_vectors_of_an_earlier_model_are_computed_anew(embeddings):
    content = (SAMPLES / "bicycle.md").read_bytes()
    ctx, doc = Context(content), record(content=content)
    await steps.parse_document(doc, {}, ctx)
    await steps.chunk_document({}, ctx)
    await steps.embed_document({}, ctx, Counting(32))
    stores = memory_stores()
    figures = IngestionStatistics()
    told = await steps.save_to_rag(doc, {}, ctx, stores, embeddings=embeddings, statistics=figures)
    assert told["model_id"] == embeddings.model_id
    assert figures.embedded == figures.stored == told["chunks"]
    # where the collection has the other model, storing is refused and not tried again
    with pytest.raises(StepRefusedError, match="only-64.*only-32"):
        await steps.embed_document({}, ctx, Counting(32))
        await steps.save_to_rag(doc, {}, ctx, stores, embeddings=Counting(32))


async def test_a_model_that_is_not_bound_is_refused_by_both_names(embeddings):
    ctx = Context(b"x")
    with pytest.raises(errors.ModelNotBoundError) as caught:
        await steps.embed_document({"model": "text-embedding-3-small"}, ctx, embeddings)
    assert "'text-embedding-3-small'" in str(caught.value)
    assert embeddings.model_id in str(caught.value)
    assert isinstance(caught.value, StepRefusedError)


async def test_what_an_endpoint_refuses_is_not_tried_again_by_its_step(embeddings):
    content = (SAMPLES / "bicycle.md").read_bytes()
    ctx, doc = Context(content), record(content=content)
    await steps.parse_document(doc, {}, ctx)
    await steps.chunk_document({}, ctx)

    async def refuse(texts):
        raise EmbeddingEndpointError("refused: 401")

    embeddings.embed_texts = refuse
    with pytest.raises(StepRefusedError) as caught:
        await steps.embed_document({}, ctx, embeddings)
    assert caught.value.code == EmbeddingEndpointError.code
    # what another attempt may help is left to it
    assert not issubclass(EmbeddingsUnavailableError, StepRefusedError)
    assert not issubclass(EmbeddingMismatchError, StepRefusedError)


async def test_a_bad_document_is_refused_and_not_tried_again():
    for uri, content, kind in (
        ("zero.txt", b"", errors.DocumentEmptyError),
        ("a.pdf", b"%PDF-1.4 and nothing", errors.DocumentBrokenError),
        ("a.mp4", b"\0film", errors.UnsupportedDocumentError),
    ):
        doc = record(uri, content, "application/octet-stream")
        with pytest.raises(kind) as caught:
            await steps.validate_document(doc, {}, Context(content))
        assert isinstance(caught.value, StepRefusedError)


@pytest.mark.parametrize(
    ("handler", "params"),
    [
        (steps.parse_document, {"formt": "markdown"}),
        (steps.parse_document, {"format": "docbook"}),
        (steps.chunk_document, {"chunk_size": "many"}),
        (steps.embed_document, {"batch_size": 0}),
        (steps.save_to_rag, {"collection": "x"}),
    ],
)
async def test_unknown_and_wrong_parameters_are_refused(handler, params, embeddings):
    given = {"step_params": params, "ctx": Context(b"x"), "doc": record()}
    wanted = handler.__code__.co_varnames[: handler.__code__.co_argcount]
    more = {"embeddings": embeddings} if handler is steps.embed_document else {}
    given = {name: value for name, value in given.items() if name in wanted}
    with pytest.raises(StepRefusedError):
        await handler(**given, **more)


def test_every_key_of_the_seed_is_a_parameter_of_its_step():
    seed = {
        steps.parse_document: ("format", "ocr_enabled"),
        steps.chunk_document: ("chunk_size", "chunk_overlap", "separator"),
        steps.embed_document: ("model", "batch_size"),
        steps.save_to_rag: ("data_dir", "collection_name"),
    }
    for handler, keys in seed.items():
        assert set(keys) <= set(attrs.fields_dict(handler.__step_params__))
    assert steps.chunk_document.__step_params__ is ChunkingConfig


async def test_an_application_with_one_store_of_its_own_uses_that(embeddings):
    content = (SAMPLES / "plain.txt").read_bytes()
    ctx, store, doc = Context(content), MemoryVectorStore(), record("a.txt", content, "text/plain")
    await steps.parse_document(doc, {}, ctx)
    await steps.chunk_document({}, ctx)
    await steps.embed_document({}, ctx, embeddings)
    await steps.save_to_rag(doc, {}, ctx, vector_store=store)
    assert len(await everything(store, "documents")) == 1
    with pytest.raises(StepRefusedError, match="no vector store"):
        await steps.save_to_rag(doc, {}, ctx)


async def test_the_end_of_a_run_needs_no_vacuum_in_memory():
    done = await steps.run_end({"data_dir": "x"}, None, memory_stores())
    assert done["databases"]["x"]["vacuumed"] is False
    assert await steps.log_event({"message": "hello"}) == {"message": "hello"}

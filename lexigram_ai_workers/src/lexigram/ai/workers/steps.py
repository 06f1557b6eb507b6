"""The steps of durable ingestion, called by the shipped workflows for every document."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, cast

import anyio.to_thread
import numpy as np
from attrs import evolve, field, frozen
from attrs.validators import ge, min_len
from numpy.typing import NDArray

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.constants import DEFAULT_COLLECTION
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
from lexigram.ai.workers.document_ingestion.errors import (
    IngestionInputError,
    ModelNotBoundError,
)
from lexigram.ai.workers.document_ingestion.parser import UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.stages import (
    DocumentFacts,
    build_records,
    chunk_document_text,
    document_id_of,
    embed_chunks,
    ensure_collection,
    parsing_notes,
)
from lexigram.ai.workers.document_ingestion.types import (
    Block,
    BlockKind,
    Document,
    DocumentChunk,
)
from lexigram.ai.workers.statistics import IngestionStatistics
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.ai.workers.vectors.errors import VectorDatabaseNotFoundError
from lexigram.config.structure import structure
from lexigram.config.tree import ConfigTrace
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.data.blobs import BlobNotFoundError
from lexigram.contracts.data.locks import ResourceLockKind
from lexigram.contracts.data.vector import (
    VectorMaintenanceProtocol,
    VectorStoreProtocol,
)
from lexigram.contracts.infra.cache import CacheBackendProtocol
from lexigram.contracts.workflow.durable import (
    ArtifactType,
    RunDocumentRecord,
    StepContextProtocol,
    step_params,
)
from lexigram.contracts.workflow.errors import StepRefusedError
from lexigram.observability import get_logger
from lexigram.processes import ProcessPool
from lexigram.processes.child import return_free_memory

logger = get_logger(__name__)

_LARGE_DOCUMENT_CHUNKS = 1000

T = TypeVar("T")


# --- parameters --------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ValidateParams:
    """Parameters of ``validate_document``."""

    # name of a registered parser; None: by document type
    parser: str | None = None


@frozen(kw_only=True)
class ParseParams:
    """Parameters of ``parse_document``."""

    # format of PARSED_MD
    format: Literal["markdown"] = "markdown"
    # use a Docling server, if configured, for scanned pages
    ocr_enabled: bool = True
    parser: str | None = None


@frozen(kw_only=True)
class SplitParseParams(ParseParams):
    """Parameters of ``split_parse_document``."""

    # for PDF only
    pages_at_once: int = field(default=50, validator=ge(1))


@frozen(kw_only=True)
class EmbedParams:
    """Parameters of ``embed_document``."""

    # id of the bound model, or its last part; None: the bound model
    model: str | None = None
    batch_size: int = field(default=1000, validator=ge(1))


@frozen(kw_only=True)
class StoreParams:
    """Parameters of ``save_to_rag``."""

    # database below ai_workers.vectors.path
    data_dir: str = field(default="default", validator=min_len(1))
    collection_name: str = field(default=DEFAULT_COLLECTION, validator=min_len(1))


@frozen(kw_only=True)
class LogParams:
    """Parameters of ``log_event``."""

    message: str = ""


@frozen(kw_only=True)
class RunEndParams:
    """Parameters of ``run_end``."""

    # None: the databases of the store steps of the plan
    data_dir: str | None = None
    # seconds to wait for the lock; None: no limit
    max_wait: float | None = 600.0


# --- steps -------------------------------------------------------------------------------------------


@step_params(ValidateParams)
async def validate_document(
    doc: RunDocumentRecord,
    step_params: Mapping[str, Any],
    ctx: StepContextProtocol,
    document_parser: UniversalDocumentParser | None = None,
    workers_config: WorkersConfig | None = None,
    processes: ProcessPool | None = None,
) -> dict[str, Any]:
    """Reject unreadable documents before they are parsed."""
    params = _read_params(ValidateParams, step_params)
    data = await ctx.artifact(ArtifactType.DOC).read()
    parser = _get_parser(document_parser, workers_config, processes)
    name = await parser.validate(data, doc.uri, mime_type=doc.mime_type, parser=params.parser)
    return {"parser": name, "file_size": len(data)}


@step_params(ParseParams)
async def parse_document(
    doc: RunDocumentRecord,
    step_params: Mapping[str, Any],
    ctx: StepContextProtocol,
    document_parser: UniversalDocumentParser | None = None,
    workers_config: WorkersConfig | None = None,
    processes: ProcessPool | None = None,
) -> dict[str, Any]:
    """Parse DOC to PARSED_MD and PARSED_JSON."""
    return await _parse(
        doc,
        _read_params(ParseParams, step_params),
        ctx,
        _get_parser(document_parser, workers_config, processes),
    )


@step_params(SplitParseParams)
async def split_parse_document(
    doc: RunDocumentRecord,
    step_params: Mapping[str, Any],
    ctx: StepContextProtocol,
    document_parser: UniversalDocumentParser | None = None,
    workers_config: WorkersConfig | None = None,
    processes: ProcessPool | None = None,
) -> dict[str, Any]:
    """Parse long PDFs some pages at a time; the result is the same as of parse_document."""
    params = _read_params(SplitParseParams, step_params)
    parser = _get_parser(document_parser, workers_config, processes)
    return await _parse(doc, params, ctx, parser, pages_at_once=params.pages_at_once)


@step_params(ChunkingConfig)
async def chunk_document(
    step_params: Mapping[str, Any],
    ctx: StepContextProtocol,
    document_parser: UniversalDocumentParser | None = None,
    workers_config: WorkersConfig | None = None,
    processes: ProcessPool | None = None,
) -> dict[str, Any]:
    """Split PARSED_MD and PARSED_JSON into CHUNKS."""
    chunker = DocumentChunker(_read_params(ChunkingConfig, step_params))
    document = await _read_document(ctx)
    isolation = _get_parser(document_parser, workers_config, processes).isolation
    chunks = await chunk_document_text(document, chunker, isolation, "the parsed text")
    title = str(document.metadata.get("title") or "")
    data = await anyio.to_thread.run_sync(_chunks_to_json, chunks, title)
    await ctx.artifact(ArtifactType.CHUNKS).write(data)
    duplicates = sum(chunk.duplicate_of is not None for chunk in chunks)
    return {"chunks": len(chunks), **({"near_duplicates": duplicates} if duplicates else {})}


@step_params(EmbedParams)
async def embed_document(
    step_params: Mapping[str, Any],
    ctx: StepContextProtocol,
    embeddings: EmbeddingProviderProtocol,
    embedding_cache: EmbeddingCache | None = None,
    cache_backend: CacheBackendProtocol | None = None,
    statistics: IngestionStatistics | None = None,
) -> dict[str, Any]:
    """Embed CHUNKS to EMBEDDINGS, using the cache."""
    params = _read_params(EmbedParams, step_params)
    _check_model(params.model, embeddings)
    cache = _get_cache(embedding_cache, cache_backend)
    chunks = await _read_chunks(ctx)
    vectors, known = await _embed_chunks(
        ctx, chunks, embeddings, cache, params.batch_size, statistics
    )
    return {"model_id": embeddings.model_id, "vectors": len(vectors), "cache_hits": known}


@step_params(StoreParams)
async def save_to_rag(
    doc: RunDocumentRecord,
    step_params: Mapping[str, Any],
    ctx: StepContextProtocol,
    vector_stores: VectorStores | None = None,
    vector_store: VectorStoreProtocol | None = None,
    embeddings: EmbeddingProviderProtocol | None = None,
    embedding_cache: EmbeddingCache | None = None,
    cache_backend: CacheBackendProtocol | None = None,
    statistics: IngestionStatistics | None = None,
) -> dict[str, Any]:
    """Store EMBEDDINGS in the vector store, replacing the document; RAG records the location.

    A document that is already stored unchanged is skipped. Vectors of another model than the
    bound one are computed again.
    """
    params = _read_params(StoreParams, step_params)
    store = _get_store(vector_stores, vector_store, params.data_dir)
    facts = _document_facts(doc, ctx)
    model = None if embeddings is None else embeddings.model_id
    if (saved := await _find_saved(ctx, store, params, facts, model)) is not None:
        if statistics is not None:
            statistics.unchanged += 1
        return {**saved, "skipped": True}
    chunks = await _read_chunks(ctx)
    cache = _get_cache(embedding_cache, cache_backend)
    vectors, model_id = await _vectors(ctx, chunks, embeddings, cache, statistics)
    facts = evolve(facts, title=chunks.title or facts.title)
    dimension = vectors.shape[1]
    records = build_records(facts, chunks.chunks, vectors, model_id)
    del chunks, vectors  # for a large document each is as large as its text
    await _return_free_memory(len(records))
    collection = await ensure_collection(
        store, params.collection_name, model_id=model_id, dimension=dimension
    )
    await collection.replace({"document_id": facts.document_id}, records)
    summary = {
        "document_id": facts.document_id,
        "data_dir": params.data_dir,
        "collection_name": params.collection_name,
        "model_id": model_id,
        "chunks": len(records),
    }
    ends = {"first": records[0].id, "last": records[-1].id}
    await ctx.artifact(ArtifactType.RAG).write(json.dumps({**summary, **ends}).encode())
    if statistics is not None:
        statistics.stored += len(records)
    return summary


# --- lifecycle events ----------------------------------------------------------------------------


@step_params(LogParams)
async def log_event(
    step_params: Mapping[str, Any], event: Any = None, run_group: Any = None
) -> dict[str, Any]:
    """Log an event of a run or a group."""
    message = _read_params(LogParams, step_params).message or "workflow event"
    logger.info(
        message,
        event=str(getattr(event, "kind", "")),
        group=getattr(event, "group_id", None),
        run=getattr(event, "run_id", None),
        status=str(getattr(run_group, "status", "")),
    )
    return {"message": message}


@step_params(RunEndParams)
async def run_end(
    step_params: Mapping[str, Any],
    plan: Any = None,
    vector_stores: VectorStores | None = None,
    vector_store: VectorStoreProtocol | None = None,
) -> dict[str, Any]:
    """Vacuum the databases of a group and write ``{db_name}.sha256`` for each, under the lock."""
    params = _read_params(RunEndParams, step_params)
    names = [params.data_dir] if params.data_dir is not None else _list_databases(plan)
    done: dict[str, Any] = {}
    for name in names:
        done[name] = await _vacuum_database(name, params.max_wait, vector_stores, vector_store)
    return {"databases": done}


# --- parsing -----------------------------------------------------------------------------------------


def _get_parser(
    bound: UniversalDocumentParser | None,
    config: WorkersConfig | None,
    processes: ProcessPool | None,
) -> UniversalDocumentParser:
    """Return the parser of the application, else create one with its settings."""
    if bound is not None:
        return bound
    limits = None if config is None else config.ingestion
    return UniversalDocumentParser(config=limits, processes=processes)


async def _parse(
    doc: RunDocumentRecord,
    params: ParseParams,
    ctx: StepContextProtocol,
    parser: UniversalDocumentParser,
    pages_at_once: int | None = None,
) -> dict[str, Any]:
    async def progress(done: int, total: int) -> None:
        await ctx.progress(done, total, "pages")

    data = await ctx.artifact(ArtifactType.DOC).read()
    document = await parser.parse_bytes(
        data,
        doc.uri,
        mime_type=doc.mime_type,
        parser=params.parser,
        ocr=params.ocr_enabled,
        pages_at_once=pages_at_once,
        progress=progress,
    )
    await ctx.artifact(ArtifactType.PARSED_JSON).write(_document_to_json(document))
    text = document.content.encode("utf-8", "surrogatepass")
    await ctx.artifact(ArtifactType.PARSED_MD).write(text)
    title = document.metadata.get("title")
    named = {} if title is None else {"title": title}
    return {"characters": len(document.content), **parsing_notes(document), **named}


class _BlockJson(TypedDict):
    kind: str
    start: int
    end: int
    # of headings
    level: NotRequired[int]
    title: NotRequired[str]
    page: NotRequired[int]


class _ParsedJson(TypedDict, total=False):
    """PARSED_JSON; custom parse steps may omit fields."""

    metadata: dict[str, Any]
    page_starts: list[int]
    blocks: list[_BlockJson]


async def _read_document(ctx: StepContextProtocol) -> Document:
    """Read the parsed document; custom parse steps may omit PARSED_JSON."""
    content = (await ctx.artifact(ArtifactType.PARSED_MD).read()).decode("utf-8", "surrogatepass")
    try:
        data = json.loads(await ctx.artifact(ArtifactType.PARSED_JSON).read())
    except BlobNotFoundError:
        return Document(content)
    if not isinstance(data, dict) or "blocks" not in data:
        return Document(content)
    parsed = cast("_ParsedJson", data)
    blocks = [
        Block(
            BlockKind(block["kind"]),
            block["start"],
            block["end"],
            block.get("level", 0),
            block.get("title", ""),
        )
        for block in parsed.get("blocks", ())
    ]
    return Document(content, parsed.get("metadata", {}), blocks, parsed.get("page_starts", []))


def _document_to_json(document: Document) -> bytes:
    blocks: list[_BlockJson] = []
    for block in document.blocks or ():
        entry = _BlockJson(kind=block.kind.value, start=block.start, end=block.end)
        if block.kind is BlockKind.HEADING:
            entry["level"], entry["title"] = block.level, block.title
        if (page := document.page_at(block.start)) is not None:
            entry["page"] = page
        blocks.append(entry)
    parsed = _ParsedJson(metadata=dict(document.metadata), page_starts=list(document.page_starts))
    if document.blocks is not None:  # else the chunker scans for them
        parsed["blocks"] = blocks
    return json.dumps(parsed, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")


# --- chunks and vectors --------------------------------------------------------------------------


def _chunks_to_json(chunks: Sequence[DocumentChunk], title: str) -> bytes:
    entries = [
        {
            "text": chunk.text,
            "start": chunk.start,
            "end": chunk.end,
            "heading_path": chunk.heading_path,
            "page": chunk.page,
            "duplicate_of": chunk.duplicate_of,
        }
        for chunk in chunks
    ]
    data = json.dumps({"title": title, "chunks": entries}, ensure_ascii=False)
    return data.encode("utf-8", "surrogatepass")


@frozen
class _Chunks:
    """The CHUNKS of a document; ``digest`` ties the vectors to them."""

    chunks: Sequence[DocumentChunk]
    title: str
    digest: str


async def _read_chunks(ctx: StepContextProtocol) -> _Chunks:
    data = await ctx.artifact(ArtifactType.CHUNKS).read()
    chunks = await anyio.to_thread.run_sync(_chunks_from_json, data)
    del data
    await _return_free_memory(len(chunks.chunks))
    return chunks


async def _return_free_memory(count: int) -> None:
    """Give back what was freed with so many chunks: 190 MB while 50 MB of text are ingested."""
    if count >= _LARGE_DOCUMENT_CHUNKS:  # it takes some milliseconds
        await anyio.to_thread.run_sync(return_free_memory)


def _chunks_from_json(data: bytes) -> _Chunks:
    found = json.loads(data.decode("utf-8", "surrogatepass"))
    chunks = [_chunk(index, data) for index, data in enumerate(found["chunks"])]
    return _Chunks(chunks, found["title"], hashlib.sha256(data).hexdigest())


def _chunk(index: int, data: Mapping[str, Any]) -> DocumentChunk:
    path: Sequence[str] = data["heading_path"]
    facts: dict[str, Any] = {**data, "heading_path": tuple(path)}
    return DocumentChunk(**facts, index=index)


async def _vectors(
    ctx: StepContextProtocol,
    chunks: _Chunks,
    embeddings: EmbeddingProviderProtocol | None,
    cache: EmbeddingCache | None,
    statistics: IngestionStatistics | None,
) -> tuple[NDArray[np.float32], str]:
    """Return vectors and model of the artifact; outdated vectors are computed again."""
    packed = await ctx.artifact(ArtifactType.EMBEDDINGS).read()
    vectors, model_id, digest = _unpack_vectors(packed)
    if digest == chunks.digest and (embeddings is None or model_id == embeddings.model_id):
        return vectors, model_id
    if embeddings is None:
        raise IngestionInputError(
            "the embeddings artifact does not belong to the chunks artifact",
            hint="run the workflow again with force",
        )
    size = EmbedParams().batch_size
    computed, _ = await _embed_chunks(ctx, chunks, embeddings, cache, size, statistics)
    return computed, embeddings.model_id


def _pack_vectors(vectors: NDArray[np.float32], model_id: str, digest: str) -> bytes:
    """Encode vectors as 4-byte numbers, with the model and the digest of the chunks."""
    out = io.BytesIO()
    np.savez(
        out,
        vectors=vectors,
        model_id=np.asarray(model_id),
        chunks=np.asarray(digest),
    )
    return out.getvalue()


def _unpack_vectors(data: bytes) -> tuple[NDArray[np.float32], str, str]:
    """Decode vectors, model and the digest of the chunks."""
    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        return found["vectors"], str(found["model_id"]), str(found["chunks"])


async def _embed_chunks(
    ctx: StepContextProtocol,
    chunks: _Chunks,
    embeddings: EmbeddingProviderProtocol,
    cache: EmbeddingCache | None,
    batch_size: int,
    statistics: IngestionStatistics | None,
) -> tuple[NDArray[np.float32], int]:
    """Compute and store the vectors; returns them and the number of cache hits."""
    vectors, known = await embed_chunks(
        chunks.chunks, embeddings, cache, batch_size=batch_size, progress=ctx.progress
    )
    packed = _pack_vectors(vectors, embeddings.model_id, chunks.digest)
    await ctx.artifact(ArtifactType.EMBEDDINGS).write(packed)
    if statistics is not None:
        statistics.embedded += len(vectors)
        statistics.cache_hits += known
    return vectors, known


def _get_cache(
    cache: EmbeddingCache | None, backend: CacheBackendProtocol | None
) -> EmbeddingCache | None:
    return EmbeddingCache(backend) if cache is None and backend is not None else cache


def _check_model(requested: str | None, embeddings: EmbeddingProviderProtocol) -> None:
    bound = embeddings.model_id
    if requested is not None and requested != bound and requested not in _short_model_names(bound):
        raise ModelNotBoundError(requested, bound)


def _short_model_names(model_id: str) -> tuple[str, ...]:
    """Return the model name without a prefix such as ``openai:``."""
    return tuple(model_id.rpartition(sign)[2] for sign in ":/")


# --- storing -----------------------------------------------------------------------------------------


def _get_store(
    stores: VectorStores | None, store: VectorStoreProtocol | None, data_dir: str
) -> VectorStoreProtocol:
    """Return the store of a database; an application with a single store has only that."""
    if stores is not None:
        return stores.at(data_dir)
    if store is not None:
        return store
    raise StepRefusedError(
        "the application has no vector store",
        hint="add WorkersModule to its modules, or bind a VectorStoreProtocol",
    )


def _document_facts(doc: RunDocumentRecord, ctx: StepContextProtocol) -> DocumentFacts:
    # The path contains the hash of the settings of all steps up to the chunks.
    settings_key = json.dumps(
        [ctx.artifact(ArtifactType.CHUNKS).path, dict(doc.metadata)], sort_keys=True, default=str
    )
    return DocumentFacts(
        document_id=document_id_of(doc.source, doc.uri),
        doc_hash=doc.hash,
        config_key=hashlib.sha256(settings_key.encode()).hexdigest()[:16],
        source=doc.source,
        uri=doc.uri,
        title=doc.uri.rstrip("/").rpartition("/")[2],
        mime_type=doc.mime_type,
        metadata=doc.metadata,
    )


async def _find_saved(
    ctx: StepContextProtocol,
    store: VectorStoreProtocol,
    params: StoreParams,
    facts: DocumentFacts,
    model: str | None,
) -> dict[str, Any] | None:
    """Return the summary of the stored document if it is up to date, else None.

    The artifact shows that storing finished; the first and last record show that the chunks are
    still stored and were not replaced since.
    """
    try:
        summary = json.loads(await ctx.artifact(ArtifactType.RAG).read())
    except BlobNotFoundError:
        return None
    # Documents with the same content share the artifact.
    is_this = summary.get("document_id") == facts.document_id and (
        model is None or summary.get("model_id") == model
    )
    if not is_this or not await store.collection_exists(params.collection_name):
        return None
    collection = await store.get_collection(params.collection_name)
    wanted = {str(summary.pop("first", "")), str(summary.pop("last", ""))}
    found = await collection.get(sorted(wanted))
    is_there = len(found) == len(wanted) and all(
        record.metadata.get(key) == value
        for record in found
        for key, value in facts.fingerprint.items()
    )
    return summary if is_there else None


def _list_databases(plan: Any) -> list[str]:
    """Return the databases of the store steps of a plan."""
    default = StoreParams().data_dir
    steps = [step for step in getattr(plan, "steps", ()) if step.step_type == "store"]
    return list(dict.fromkeys(str(step.params.get("data_dir", default)) for step in steps))


async def _vacuum_database(
    name: str,
    max_wait: float | None,
    stores: VectorStores | None,
    store: VectorStoreProtocol | None,
) -> dict[str, Any]:
    if stores is not None and stores.config.provider == "lancedb":
        from lexigram.ai.workers.vectors.databases import VectorDatabases

        databases = VectorDatabases(stores)
        try:
            done = await databases.vacuum(name, kind=ResourceLockKind.LIFECYCLE, max_wait=max_wait)
        except VectorDatabaseNotFoundError:
            return {"vacuumed": False, "reason": "the database does not exist"}
        return {"vacuumed": True, "freed_bytes": done.freed_bytes, "sha256": done.checksum}
    chosen = _get_store(stores, store, name)
    if not isinstance(chosen, VectorMaintenanceProtocol):
        return {"vacuumed": False, "reason": "the store does not support vacuum"}
    freed = await chosen.vacuum()
    return {"vacuumed": True, "freed_bytes": freed, "sha256": await chosen.checksum()}


def _read_params(model: type[T], params: Mapping[str, Any]) -> T:
    """Convert parameters to their class; definitions were already checked when loaded."""
    made, problems = structure(model, dict(params), (), ConfigTrace())
    if made is None:
        raise StepRefusedError(
            "; ".join(f"{problem.key}: {problem.message}" for problem in problems),
            hint="correct the parameters of the step",
        )
    return made

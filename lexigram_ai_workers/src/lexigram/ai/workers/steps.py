"""The steps of durable ingestion: what the shipped workflows call, document by document."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, cast

import numpy as np
from attrs import evolve, field, frozen
from attrs.validators import ge, min_len
from numpy.typing import NDArray

from lexigram.ai.workers.batch_embedding.cache import EmbeddingCache
from lexigram.ai.workers.config import WorkersConfig
from lexigram.ai.workers.document_ingestion.chunker import DocumentChunker
from lexigram.ai.workers.document_ingestion.config import ChunkingConfig
from lexigram.ai.workers.document_ingestion.errors import (
    IngestionInputError,
    ModelNotBoundError,
)
from lexigram.ai.workers.document_ingestion.parser import UniversalDocumentParser
from lexigram.ai.workers.document_ingestion.stages import (
    DocumentFacts,
    chunks_of,
    collection_for,
    document_id_of,
    notes_of,
    records_of,
    vectors_of,
)
from lexigram.ai.workers.document_ingestion.types import (
    Block,
    BlockKind,
    Document,
    DocumentChunk,
)
from lexigram.ai.workers.figures import IngestionFigures
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

logger = get_logger(__name__)

T = TypeVar("T")


# --- parameters --------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ValidateParams:
    """Parameters of ``validate_document``."""

    # the name of a registered parser; None: by the type of the document
    parser: str | None = None


@frozen(kw_only=True)
class ParseParams:
    """Parameters of ``parse_document``."""

    # what PARSED_MD is written in
    format: Literal["markdown"] = "markdown"
    # let a Docling server, where there is one, read scanned pages
    ocr_enabled: bool = True
    parser: str | None = None


@frozen(kw_only=True)
class SplitParseParams(ParseParams):
    """Parameters of ``split_parse_document``."""

    # of a PDF; other documents are read in one go
    pages_at_once: int = field(default=50, validator=ge(1))


@frozen(kw_only=True)
class EmbedParams:
    """Parameters of ``embed_document``."""

    # the id of the bound model, or its last part; None: whichever is bound
    model: str | None = None
    batch_size: int = field(default=1000, validator=ge(1))


@frozen(kw_only=True)
class StoreParams:
    """Parameters of ``save_to_rag``."""

    # the database below ai_workers.vectors.path
    data_dir: str = field(default="default", validator=min_len(1))
    collection_name: str = field(default="documents", validator=min_len(1))


@frozen(kw_only=True)
class LogParams:
    """Parameters of ``log_event``."""

    message: str = ""


@frozen(kw_only=True)
class RunEndParams:
    """Parameters of ``run_end``."""

    # None: the databases that the store steps of the plan write to
    data_dir: str | None = None
    # seconds to wait for who writes there; None: for ever
    max_wait: float | None = 600.0


# --- steps -------------------------------------------------------------------------------------------


@step_params(ValidateParams)
async def validate_document(
    doc: RunDocumentRecord,
    step_params: Mapping[str, Any],
    ctx: StepContextProtocol,
    document_parser: UniversalDocumentParser | None = None,
    workers_config: WorkersConfig | None = None,
) -> dict[str, Any]:
    """Refuse what can be seen to be unreadable, before anything is spent on it."""
    params = _read(ValidateParams, step_params)
    data = await ctx.artifact(ArtifactType.DOC).read()
    parser = _parser(document_parser, workers_config)
    name = await parser.validate(data, doc.uri, mime_type=doc.mime_type, parser=params.parser)
    return {"parser": name, "file_size": len(data)}


@step_params(ParseParams)
async def parse_document(
    doc: RunDocumentRecord,
    step_params: Mapping[str, Any],
    ctx: StepContextProtocol,
    document_parser: UniversalDocumentParser | None = None,
    workers_config: WorkersConfig | None = None,
) -> dict[str, Any]:
    """DOC to PARSED_MD and PARSED_JSON."""
    return await _parse(
        doc, _read(ParseParams, step_params), ctx, _parser(document_parser, workers_config)
    )


@step_params(SplitParseParams)
async def split_parse_document(
    doc: RunDocumentRecord,
    step_params: Mapping[str, Any],
    ctx: StepContextProtocol,
    document_parser: UniversalDocumentParser | None = None,
    workers_config: WorkersConfig | None = None,
) -> dict[str, Any]:
    """The same for long PDFs: some pages at a time; the result does not differ."""
    params = _read(SplitParseParams, step_params)
    parser = _parser(document_parser, workers_config)
    return await _parse(doc, params, ctx, parser, pages_at_once=params.pages_at_once)


@step_params(ChunkingConfig)
async def chunk_document(
    step_params: Mapping[str, Any], ctx: StepContextProtocol
) -> dict[str, Any]:
    """PARSED_MD and PARSED_JSON to CHUNKS."""
    chunker = DocumentChunker(_read(ChunkingConfig, step_params))
    document = await _parsed(ctx)
    chunks = await chunks_of(document, chunker)
    data = _chunks_to_json(chunks, str(document.metadata.get("title") or ""))
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
    figures: IngestionFigures | None = None,
) -> dict[str, Any]:
    """CHUNKS to EMBEDDINGS; a text that has a vector in the cache is not computed again."""
    params = _read(EmbedParams, step_params)
    _check_model(params.model, embeddings)
    cache = _cache(embedding_cache, cache_backend)
    data = await ctx.artifact(ArtifactType.CHUNKS).read()
    vectors, known = await _embedded(ctx, data, embeddings, cache, params.batch_size, figures)
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
    figures: IngestionFigures | None = None,
) -> dict[str, Any]:
    """EMBEDDINGS to the vector store, in place of what it had of the document; RAG says where.

    A document that is stored as it is now is left alone. Vectors of another model than the one
    bound now are computed anew: the artifact is older than the change.
    """
    params = _read(StoreParams, step_params)
    store = _store(vector_stores, vector_store, params.data_dir)
    facts = _facts(doc, ctx)
    model = None if embeddings is None else embeddings.model_id
    if (saved := await _saved(ctx, store, params, facts, model)) is not None:
        if figures is not None:
            figures.unchanged += 1
        return {**saved, "skipped": True}
    data = await ctx.artifact(ArtifactType.CHUNKS).read()
    chunks, title = _chunks_from_json(data)
    cache = _cache(embedding_cache, cache_backend)
    vectors, model_id = await _vectors(ctx, data, embeddings, cache, figures)
    facts = evolve(facts, title=title or facts.title)
    records = records_of(facts, chunks, vectors.tolist(), model_id)
    collection = await collection_for(
        store, params.collection_name, model_id=model_id, dimension=vectors.shape[1]
    )
    await collection.replace({"document_id": facts.document_id}, records)
    told = {
        "document_id": facts.document_id,
        "data_dir": params.data_dir,
        "collection_name": params.collection_name,
        "model_id": model_id,
        "chunks": len(chunks),
    }
    ends = {"first": records[0].id, "last": records[-1].id}
    await ctx.artifact(ArtifactType.RAG).write(json.dumps({**told, **ends}).encode())
    if figures is not None:
        figures.stored += len(chunks)
    return told


# --- lifecycle events ----------------------------------------------------------------------------


@step_params(LogParams)
async def log_event(
    step_params: Mapping[str, Any], event: Any = None, run_group: Any = None
) -> dict[str, Any]:
    """Write a line to the log when something happens to a run or a group."""
    message = _read(LogParams, step_params).message or "workflow event"
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
    """Vacuum the databases of a group and write ``{db_name}.sha256`` beside each, under the lock."""
    params = _read(RunEndParams, step_params)
    names = [params.data_dir] if params.data_dir is not None else _databases(plan)
    done: dict[str, Any] = {}
    for name in names:
        done[name] = await _vacuumed(name, params.max_wait, vector_stores, vector_store)
    return {"databases": done}


# --- parsing -----------------------------------------------------------------------------------------


def _parser(
    bound: UniversalDocumentParser | None, config: WorkersConfig | None
) -> UniversalDocumentParser:
    """The one of the application, else one with its limits."""
    if bound is not None:
        return bound
    return UniversalDocumentParser(config=None if config is None else config.ingestion)


async def _parse(
    doc: RunDocumentRecord,
    params: ParseParams,
    ctx: StepContextProtocol,
    parser: UniversalDocumentParser,
    pages_at_once: int | None = None,
) -> dict[str, Any]:
    async def tell(done: int, total: int) -> None:
        await ctx.progress(done, total, "pages")

    data = await ctx.artifact(ArtifactType.DOC).read()
    document = await parser.parse_bytes(
        data,
        doc.uri,
        mime_type=doc.mime_type,
        parser=params.parser,
        ocr=params.ocr_enabled,
        pages_at_once=pages_at_once,
        progress=tell,
    )
    await ctx.artifact(ArtifactType.PARSED_JSON).write(_document_to_json(document))
    text = document.content.encode("utf-8", "surrogatepass")
    await ctx.artifact(ArtifactType.PARSED_MD).write(text)
    title = document.metadata.get("title")
    named = {} if title is None else {"title": title}
    return {"characters": len(document.content), **notes_of(document), **named}


class _BlockJson(TypedDict):
    kind: str
    start: int
    end: int
    # of headings
    level: NotRequired[int]
    title: NotRequired[str]
    page: NotRequired[int]


class _ParsedJson(TypedDict, total=False):
    """PARSED_JSON; a parse step of the application may leave things out."""

    metadata: dict[str, Any]
    page_starts: list[int]
    blocks: list[_BlockJson]


async def _parsed(ctx: StepContextProtocol) -> Document:
    """What the parse step wrote; one of the application may have left out the JSON."""
    content = (await ctx.artifact(ArtifactType.PARSED_MD).read()).decode("utf-8", "surrogatepass")
    try:
        data = json.loads(await ctx.artifact(ArtifactType.PARSED_JSON).read())
    except BlobNotFoundError:
        return Document(content)
    if not isinstance(data, dict) or "blocks" not in data:
        return Document(content)
    told = cast("_ParsedJson", data)
    blocks = [
        Block(
            BlockKind(one["kind"]),
            one["start"],
            one["end"],
            one.get("level", 0),
            one.get("title", ""),
        )
        for one in told.get("blocks", ())
    ]
    return Document(content, told.get("metadata", {}), blocks, told.get("page_starts", []))


def _document_to_json(document: Document) -> bytes:
    blocks: list[_BlockJson] = []
    for block in document.blocks or ():
        told = _BlockJson(kind=block.kind.value, start=block.start, end=block.end)
        if block.kind is BlockKind.HEADING:
            told["level"], told["title"] = block.level, block.title
        if (page := document.page_at(block.start)) is not None:
            told["page"] = page
        blocks.append(told)
    made = _ParsedJson(metadata=dict(document.metadata), page_starts=list(document.page_starts))
    if document.blocks is not None:  # else the chunker looks for them
        made["blocks"] = blocks
    return json.dumps(made, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")


# --- chunks and vectors --------------------------------------------------------------------------


def _chunks_to_json(chunks: Sequence[DocumentChunk], title: str) -> bytes:
    made = [
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
    data = json.dumps({"title": title, "chunks": made}, ensure_ascii=False)
    return data.encode("utf-8", "surrogatepass")


def _chunks_from_json(data: bytes) -> tuple[list[DocumentChunk], str]:
    found = json.loads(data.decode("utf-8", "surrogatepass"))
    chunks = [_chunk(index, told) for index, told in enumerate(found["chunks"])]
    return chunks, found["title"]


def _chunk(index: int, told: Mapping[str, Any]) -> DocumentChunk:
    path: Sequence[str] = told["heading_path"]
    facts: dict[str, Any] = {**told, "heading_path": tuple(path)}
    return DocumentChunk(**facts, index=index)


async def _vectors(
    ctx: StepContextProtocol,
    chunks_json: bytes,
    embeddings: EmbeddingProviderProtocol | None,
    cache: EmbeddingCache | None,
    figures: IngestionFigures | None,
) -> tuple[NDArray[np.float32], str]:
    """The vectors of the artifact and their model; computed anew when they are outdated."""
    packed = await ctx.artifact(ArtifactType.EMBEDDINGS).read()
    vectors, model_id, is_of_chunks = _unpacked(packed, chunks_json)
    if is_of_chunks and (embeddings is None or model_id == embeddings.model_id):
        return vectors, model_id
    if embeddings is None:
        raise IngestionInputError(
            "the vectors are not those of the chunks",
            hint="run the workflow again with force: the artifacts were made by two versions",
        )
    size = EmbedParams().batch_size
    computed, _ = await _embedded(ctx, chunks_json, embeddings, cache, size, figures)
    return np.asarray(computed, dtype=np.float32), embeddings.model_id


def _packed(vectors: Sequence[Sequence[float]], model_id: str, chunks: bytes) -> bytes:
    """Vectors as 4-byte numbers, whose they are, and of which chunks."""
    out = io.BytesIO()
    np.savez(
        out,
        vectors=np.asarray(vectors, dtype=np.float32),
        model_id=np.asarray(model_id),
        chunks=np.asarray(hashlib.sha256(chunks).hexdigest()),
    )
    return out.getvalue()


def _unpacked(data: bytes, chunks: bytes) -> tuple[NDArray[np.float32], str, bool]:
    """The vectors, their model, and whether they are of these chunks."""
    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        is_of_chunks = str(found["chunks"]) == hashlib.sha256(chunks).hexdigest()
        return found["vectors"], str(found["model_id"]), is_of_chunks


async def _embedded(
    ctx: StepContextProtocol,
    chunks_json: bytes,
    embeddings: EmbeddingProviderProtocol,
    cache: EmbeddingCache | None,
    batch_size: int,
    figures: IngestionFigures | None,
) -> tuple[list[list[float]], int]:
    """Compute and keep the vectors; how many were in the cache."""
    chunks, _ = _chunks_from_json(chunks_json)
    vectors, known = await vectors_of(
        chunks, embeddings, cache, batch_size=batch_size, tell=ctx.progress
    )
    packed = _packed(vectors, embeddings.model_id, chunks_json)
    await ctx.artifact(ArtifactType.EMBEDDINGS).write(packed)
    if figures is not None:
        figures.embedded += len(vectors)
        figures.cache_hits += known
    return vectors, known


def _cache(
    cache: EmbeddingCache | None, backend: CacheBackendProtocol | None
) -> EmbeddingCache | None:
    return EmbeddingCache(backend) if cache is None and backend is not None else cache


def _check_model(asked: str | None, embeddings: EmbeddingProviderProtocol) -> None:
    bound = embeddings.model_id
    if asked is not None and asked != bound and asked not in _last_parts(bound):
        raise ModelNotBoundError(asked, bound)


def _last_parts(model_id: str) -> tuple[str, ...]:
    """``text-embedding-3-small`` is meant by ``openai:text-embedding-3-small`` and the like."""
    return tuple(model_id.rpartition(sign)[2] for sign in ":/")


# --- storing -----------------------------------------------------------------------------------------


def _store(
    stores: VectorStores | None, store: VectorStoreProtocol | None, data_dir: str
) -> VectorStoreProtocol:
    """The database of that name; an application with one store of its own has just that."""
    if stores is not None:
        return stores.at(data_dir)
    if store is not None:
        return store
    raise StepRefusedError(
        "no vector store is bound",
        hint="add WorkersModule to the application, or bind a VectorStoreProtocol",
    )


def _facts(doc: RunDocumentRecord, ctx: StepContextProtocol) -> DocumentFacts:
    # The path names the settings of all steps up to the chunks.
    made_by = json.dumps(
        [ctx.artifact(ArtifactType.CHUNKS).path, dict(doc.metadata)], sort_keys=True, default=str
    )
    return DocumentFacts(
        document_id=document_id_of(doc.source, doc.uri),
        doc_hash=doc.hash,
        config_key=hashlib.sha256(made_by.encode()).hexdigest()[:16],
        source=doc.source,
        uri=doc.uri,
        title=doc.uri.rstrip("/").rpartition("/")[2],
        mime_type=doc.mime_type,
        metadata=doc.metadata,
    )


async def _saved(
    ctx: StepContextProtocol,
    store: VectorStoreProtocol,
    params: StoreParams,
    facts: DocumentFacts,
    model: str | None,
) -> dict[str, Any] | None:
    """What was stored, when it is what would be stored now.

    The artifact says that storing came to its end; two records, that they are still there, and
    that nothing else was stored for the document since.
    """
    try:
        told = json.loads(await ctx.artifact(ArtifactType.RAG).read())
    except BlobNotFoundError:
        return None
    # Another document with the same content writes the same artifact.
    is_this = told.get("document_id") == facts.document_id and (
        model is None or told.get("model_id") == model
    )
    if not is_this or not await store.collection_exists(params.collection_name):
        return None
    collection = await store.get_collection(params.collection_name)
    wanted = {str(told.pop("first", "")), str(told.pop("last", ""))}
    found = await collection.get(sorted(wanted))
    is_there = len(found) == len(wanted) and all(
        record.metadata.get(key) == value
        for record in found
        for key, value in facts.is_like.items()
    )
    return told if is_there else None


def _databases(plan: Any) -> list[str]:
    """Where the store steps of a plan write to."""
    default = StoreParams().data_dir
    steps = [step for step in getattr(plan, "steps", ()) if step.step_type == "store"]
    return list(dict.fromkeys(str(step.params.get("data_dir", default)) for step in steps))


async def _vacuumed(
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
            return {"vacuumed": False, "reason": "nothing was stored there"}
        return {"vacuumed": True, "freed_bytes": done.freed_bytes, "sha256": done.checksum}
    chosen = _store(stores, store, name)
    if not isinstance(chosen, VectorMaintenanceProtocol):
        return {"vacuumed": False, "reason": "this store needs no vacuum"}
    freed = await chosen.vacuum()
    return {"vacuumed": True, "freed_bytes": freed, "sha256": await chosen.checksum()}


def _read(model: type[T], params: Mapping[str, Any]) -> T:
    """The parameters as their class; definitions were checked against it when they were loaded."""
    made, problems = structure(model, dict(params), (), ConfigTrace())
    if made is None:
        raise StepRefusedError(
            "; ".join(f"{problem.key}: {problem.message}" for problem in problems),
            hint="correct the parameters of the step",
        )
    return made

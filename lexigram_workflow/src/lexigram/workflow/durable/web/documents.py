"""``/document`` and ``/source-status``: bring documents, compare them with a source, remove them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from lexigram.contracts.workflow.durable import RunDocument
from lexigram.web import Inject
from lexigram.workflow.durable.documents.documents import DocumentState, DocumentUri, SourceStatus
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.store.overview import moment
from lexigram.workflow.durable.web.answers import PREFIX, RESPONSES, Durable
from lexigram.workflow.durable.web.bodies import Upload, body_docs, body_of, json_object
from lexigram.workflow.durable.web.fields import Id, Limit, Name, Offset, Uri

Fleet = Annotated[DurableFleet, Inject()]


class Ingest(BaseModel):
    """A document: its bytes, or the place this machine reads them from."""

    model_config = ConfigDict(extra="ignore")

    file: Upload | None = Field(default=None, json_schema_extra={"format": "binary"})
    input_uri: Uri | None = Field(
        default=None, description="A file below workflow.durable.input_dirs, or blob:path."
    )
    source_uri: Uri = Field(description="What names the document in its source.")
    source: Name
    batch_id: Id
    mime_type: Name | None = None
    doc_meta: dict[str, Any] = Field(default={}, description="JSON.")

    _parsed = field_validator("doc_meta", mode="before")(json_object)

    @model_validator(mode="after")
    def _one_of_them(self) -> Ingest:
        if (self.file is None) == (self.input_uri is None):
            raise ValueError("give file or input_uri")
        return self


class IngestForm(BaseModel):
    """The same for OpenAPI: ``file`` is the part with the bytes."""

    file: bytes | None = None
    input_uri: Uri | None = None
    source_uri: Uri
    source: Name
    batch_id: Id
    mime_type: Name | None = None
    doc_meta: str = "{}"


class SourceHashes(BaseModel):
    """What a source has now."""

    model_config = ConfigDict(extra="ignore")

    source: Name
    hashes: dict[Uri, Name] = Field(description="URI -> sha256; JSON.")
    delete_stale: bool = Field(default=False, description="Remove what the source has no more.")

    _parsed = field_validator("hashes", mode="before")(json_object)


class Ingested(BaseModel):
    """A document that is stored."""

    batch_id: int
    document_uri: str
    document_hash: str
    source: str
    uri_id: int
    version: int
    action: Literal["create", "update", "unchanged"]


class UriRecord(BaseModel):
    """A name of a document."""

    id: int
    uri: str
    source: str
    doc_hash: str
    version: int
    batch_id: int | None
    mime_type: str
    file_size: int
    doc_meta: dict[str, Any]
    updated_date: str


class VersionRecord(BaseModel):
    """A content that a URI had."""

    version: int
    hash: str
    action: str
    batch_id: int | None
    process_date: str


class UriStatus(BaseModel):
    """A URI of a source: new, matched or mismatch."""

    status: Literal["new", "matched", "mismatch"]
    hash: str | None = None
    source_hash: str | None = None
    stored_hash: str | None = None


class SourceSwept(BaseModel):
    """The same, and how many URIs the source has no more."""

    status: dict[str, UriStatus]
    deleted_count: int


class Removed(BaseModel):
    """What was removed."""

    message: str
    uri: str
    source: str
    statistics: dict[str, int]


class Cleaned(BaseModel):
    """What was removed."""

    message: str
    statistics: dict[str, int]


def documents() -> APIRouter:
    """The routes."""
    router = APIRouter(prefix=PREFIX, route_class=Durable, responses=RESPONSES, tags=["documents"])

    @router.get(
        "/document/", response_model=list[UriRecord], summary="List the URIs of a source or batch"
    )
    async def list_documents(
        fleet: Fleet,
        source: Name | None = None,
        batch_id: Id | None = None,
        limit: Limit = 1000,
        offset: Offset = 0,
    ) -> Any:
        if batch_id is not None:
            await fleet.documents.batch(batch_id)
        found = await fleet.documents.list(
            source=source, batch_id=batch_id, limit=limit, offset=offset
        )
        return [_uri(one) for one in found]

    @router.post(
        "/document/ingest-document",
        status_code=201,
        response_model=Ingested,
        summary="Ingest a document into a batch",
        openapi_extra=body_docs(IngestForm, parts=True),
    )
    async def ingest(fleet: Fleet, body: Annotated[Ingest, Depends(body_of(Ingest))]) -> Any:
        made = await _ingest(fleet, body)
        return {
            "batch_id": made.batch_id,
            "document_uri": made.uri,
            "document_hash": made.document_hash,
            "source": made.source,
            "uri_id": made.uri_id,
            "version": made.version,
            "action": made.action,
        }

    @router.post(
        "/document/cleanup-orphans",
        response_model=Cleaned,
        summary="Delete documents without a URI",
    )
    async def cleanup(fleet: Fleet) -> Any:
        statistics = await fleet.documents.cleanup_orphans()
        return {"message": "orphans are gone", "statistics": statistics}

    @router.delete("/document/by-uri", response_model=Removed, summary="Delete a URI")
    async def delete(fleet: Fleet, uri: Uri, source: Name) -> Any:
        statistics = await fleet.documents.delete_uri(uri, source)
        return {"message": f"{uri} is gone", "uri": uri, "source": source, "statistics": statistics}

    @router.get(
        "/document/history",
        response_model=list[VersionRecord],
        summary="List the versions of a URI",
    )
    async def history(fleet: Fleet, uri: Uri, source: Name) -> Any:
        return [
            {
                "version": one.version,
                "hash": one.doc_hash,
                "action": one.action,
                "batch_id": one.batch_id,
                "process_date": moment(one.created_at),
            }
            for one in await fleet.documents.history(uri, source)
        ]

    @router.post(
        "/source-status",
        response_model=SourceSwept | dict[str, UriStatus],
        response_model_exclude_unset=True,
        summary="Compare a source with its stored documents",
        openapi_extra=body_docs(SourceHashes),
    )
    async def source_status(
        fleet: Fleet, body: Annotated[SourceHashes, Depends(body_of(SourceHashes))]
    ) -> Any:
        found = await fleet.documents.source_status(
            body.source, body.hashes, delete_stale=body.delete_stale
        )
        statuses = {uri: _status(one) for uri, one in found.items() if uri in body.hashes}
        if not body.delete_stale:
            return statuses
        gone = sum(one.status is DocumentState.DELETED for one in found.values())
        return {"status": statuses, "deleted_count": gone}

    return router


async def _ingest(fleet: DurableFleet, body: Ingest) -> Any:
    metadata: Mapping[str, Any] = body.doc_meta
    if body.file is not None:
        document = RunDocument(
            uri=body.source_uri,
            source=body.source,
            content=body.file.content,
            mime_type=body.mime_type or body.file.content_type,
            metadata=metadata,
        )
        return await fleet.documents.ingest(document, body.batch_id)
    assert body.input_uri is not None
    document = RunDocument(
        uri=body.source_uri,
        source=body.source,
        content=await fleet.uploads.read(body.input_uri),
        mime_type=body.mime_type,
        metadata=metadata,
    )
    return await fleet.documents.ingest(document, body.batch_id)


def _uri(one: DocumentUri) -> dict[str, Any]:
    return {
        "id": one.id,
        "uri": one.uri,
        "source": one.source,
        "doc_hash": one.doc_hash,
        "version": one.version,
        "batch_id": one.batch_id,
        "mime_type": one.mime_type,
        "file_size": one.file_size,
        "doc_meta": dict(one.metadata),
        "updated_date": moment(one.updated_at),
    }


def _status(one: SourceStatus) -> dict[str, Any]:
    """The terms of Soliplex Ingester: new, matched, mismatch."""
    if one.status is DocumentState.UNCHANGED:
        return {"hash": one.source_hash, "status": "matched"}
    if one.status is DocumentState.CHANGED:
        return {
            "source_hash": one.source_hash,
            "stored_hash": one.stored_hash,
            "status": "mismatch",
        }
    return {"hash": one.source_hash, "status": "new"}

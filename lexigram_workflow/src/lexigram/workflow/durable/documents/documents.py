"""Documents by their content, the URIs that name them, and the batches that bring them."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import anyio
import orjson
from anyio import to_thread
from attrs import evolve, field, frozen

from lexigram.contracts.data.blobs import BlobError, BlobInfo, BlobStoreProtocol
from lexigram.contracts.workflow.durable import RunDocument, RunDocumentRecord
from lexigram.contracts.workflow.errors import InvalidRunError, StepRefusedError
from lexigram.contracts.workflow.limits import (
    check_id,
    check_name,
    check_optional_ids,
    check_optional_names,
    check_page,
    check_text,
)
from lexigram.observability import get_logger
from lexigram.sql.database import Database
from lexigram.workflow.durable.documents.artifacts import Artifacts
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import (
    DocumentNotFoundError,
    DocumentSourceError,
    PlanInvalidError,
)
from lexigram.workflow.durable.models import WorkflowRun
from lexigram.workflow.durable.plan import RunPlan, json_text
from lexigram.workflow.durable.store.documents import Added, BlobsGone, DocumentStore, NewDocument
from lexigram.workflow.durable.store.records import Row

logger = get_logger(__name__)

HASH_PREFIX: Final = "sha256-"
_UNKNOWN_TYPE: Final = "application/octet-stream"
_AT_ONCE = 16  # blobs that are written at the same time
_TRIES = 3  # when another process removes the same content meanwhile
_ORPHAN_SECONDS = 3600.0  # a submission between its blobs and its rows is done by then
_SWEPT = 500  # blobs looked at with one query


class DocumentState(StrEnum):
    """How a document of a source compares with the stored one."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    # stored, and the source has it no more
    DELETED = "deleted"


@frozen(kw_only=True)
class SourceStatus:
    """One URI of a source."""

    status: DocumentState
    source_hash: str | None
    stored_hash: str | None


@frozen(kw_only=True)
class Batch:
    """Documents that came together. Times are seconds since 1970."""

    id: int
    name: str | None
    source: str
    params: Mapping[str, Any]
    created_at: float
    # set while it has runs and all of them are final
    completed_at: float | None
    document_count: int

    @property
    def duration(self) -> float | None:
        """Seconds until it was completed."""
        return None if self.completed_at is None else self.completed_at - self.created_at


@frozen(kw_only=True)
class DocumentUri:
    """A name of a document, and the content it has now."""

    id: int
    uri: str
    source: str
    doc_hash: str
    version: int
    batch_id: int | None
    mime_type: str
    file_size: int
    metadata: Mapping[str, Any]
    updated_at: float


@frozen(kw_only=True)
class UriVersion:
    """The content that a URI had since then."""

    version: int
    doc_hash: str
    # create or update
    action: str
    batch_id: int | None
    created_at: float


@frozen(kw_only=True)
class Ingested:
    """The result of ingesting a document."""

    document_hash: str
    uri: str
    source: str
    uri_id: int
    version: int
    batch_id: int
    # create, update, or unchanged: the URI had this content before
    action: str


@frozen(kw_only=True)
class Prepared:
    """Documents whose blobs are there and whose rows are not."""

    documents: Sequence[NewDocument]
    # contents whose blobs were written just now
    uploaded: frozenset[str]
    # what the documents were made of, to write a blob again
    given: Mapping[str, RunDocument] = field(repr=False)


class Documents:
    """Documents, URIs and batches on a database and a blob store.

    The blob of a document is written before its row, and the row is removed before the blob: a
    crash leaves no row without its bytes, and what it leaves in the blob store is swept.
    ``input_dirs`` are the folders that documents without content are read from, for callers who
    may not read everything; None is every file and every blob.
    """

    def __init__(
        self,
        database: Database,
        artifacts: Artifacts,
        engine: DurableEngine,
        *,
        input_dirs: Sequence[Path] | None = None,
    ) -> None:
        self.store = DocumentStore(database)
        self.artifacts = artifacts
        self._engine = engine
        self._inputs = _Inputs(artifacts.blobs, input_dirs)

    # --- batches --------------------------------------------------------------------------------

    async def create_batch(
        self, source: str, name: str | None = None, params: Mapping[str, Any] | None = None
    ) -> int:
        """A batch to bring documents into; its id."""
        check_name("source", source)
        check_optional_names(name=name)
        json_text("params", dict(params or {}))
        return await self.store.add_batch(name, source, params or {})

    async def batch(self, batch_id: int) -> Batch:
        """One batch; raises DocumentNotFoundError."""
        check_id("batch_id", batch_id)
        return _batch(await self.store.batch(batch_id))

    async def batches(self, *, limit: int = 100, offset: int = 0) -> tuple[Sequence[Batch], int]:
        """Batches, the newest first, and how many there are."""
        check_page(limit, offset)
        rows, total = await self.store.batches(limit, offset)
        return [_batch(row) for row in rows], total

    async def group_ended(self, group_id: int) -> None:
        """Mark the batch of a group as completed, if it is; a second call changes nothing.

        ``batch`` computes this while the groups exist; retention removes them.
        """
        await self.store.settle_batch(group_id)

    # --- in -------------------------------------------------------------------------------------

    async def ingest(self, document: RunDocument, batch_id: int) -> Ingested:
        """Bring one document into a batch; see ``ingest_many``."""
        return (await self.ingest_many([document], batch_id))[0]

    async def ingest_many(
        self, documents: Sequence[RunDocument], batch_id: int
    ) -> Sequence[Ingested]:
        """Bring documents into a batch, in one transaction.

        A URI with a new content gets a new version. One with the same content is in the batch
        all the same. Raises DocumentNotFoundError for an unknown batch, BatchCompletedError,
        DocumentSourceError.
        """
        await self.batch(batch_id)
        prepared = await self.prepare(documents)
        added = await self.add(prepared, batch_id, is_open=False)
        return [
            Ingested(
                document_hash=one.hash,
                uri=document.uri,
                source=document.source,
                uri_id=one.uri_id,
                version=one.version,
                batch_id=batch_id,
                action=one.action,
            )
            for document, one in zip(prepared.documents, added, strict=True)
        ]

    async def read(self, uri: str) -> bytes:
        """The bytes of a file or blob that may be read; raises DocumentSourceError."""
        return await self._inputs.read(uri)

    async def prepare(self, documents: Sequence[RunDocument]) -> Prepared:
        """Read and hash documents and write the blobs that are missing; nothing is in the tables.

        The same URI twice is one document when the content is the same, else PlanInvalidError.
        """
        found = await self._describe(documents)
        known = await self.store.sizes(sorted({one.hash for one in found.values()}))
        given = {found[key].hash: document for key, document in _by_key(documents).items()}
        missing = {h: document for h, document in given.items() if h not in known}
        await self._upload(missing)
        return Prepared(documents=list(found.values()), uploaded=frozenset(missing), given=given)

    async def add(
        self, prepared: Prepared, batch_id: int, *, is_open: bool = True
    ) -> Sequence[Added]:
        """Store the rows; ``is_open``: the batch is known to accept documents."""
        for _ in range(_TRIES):
            try:
                return await self.store.run_in_transaction(
                    lambda ready=prepared: self._add(ready, batch_id, is_open=is_open)  # type: ignore[misc]
                )
            except BlobsGone as gone:
                prepared = await self.upload_again(prepared, gone.hashes)
        raise DocumentSourceError("documents are removed as fast as they are stored")

    async def _add(self, prepared: Prepared, batch_id: int, *, is_open: bool) -> Sequence[Added]:
        if not is_open:
            await self.store.open_batch(batch_id)
        return await self.store.add(prepared.documents, batch_id, prepared.uploaded)

    async def upload_again(self, prepared: Prepared, hashes: Sequence[str]) -> Prepared:
        """Write the blobs of contents that were removed meanwhile."""
        await self._upload({h: prepared.given[h] for h in hashes})
        return evolve(prepared, uploaded=prepared.uploaded | frozenset(hashes))

    async def _describe(self, documents: Sequence[RunDocument]) -> dict[str, NewDocument]:
        found: dict[str, NewDocument] = {}
        given = {n: one.content for n, one in enumerate(documents) if one.content is not None}
        hashes = await to_thread.run_sync(_hashes, given)
        for number, document in enumerate(documents):
            if number not in hashes:
                # Read again for its blob: many large files do not fit into memory at once.
                content = await self._inputs.read(document.uri)
                hashes |= await to_thread.run_sync(_hashes, {number: content})
            one = _new(document, *hashes[number])
            other = found.setdefault(one.key, one)
            if other.hash != one.hash:
                raise PlanInvalidError(
                    f"{one.uri!r} of {one.source!r} is there twice, with different contents",
                    details={"uri": one.uri, "source": one.source},
                    hint="submit one after the other: the second is a new version",
                )
        types = await to_thread.run_sync(_types, documents)
        return {
            key: evolve(one, mime_type=types[one.uri]) if not one.mime_type else one
            for key, one in found.items()
        }

    async def _upload(self, documents: Mapping[str, RunDocument]) -> None:
        limit = anyio.CapacityLimiter(_AT_ONCE)

        async def one(doc_hash: str, document: RunDocument) -> None:
            async with limit:
                content = document.content
                if content is None:
                    content = await self._inputs.read(document.uri)
                    found = await to_thread.run_sync(_hashes, {0: content})
                    if found[0][0] != doc_hash:
                        raise DocumentSourceError(
                            f"{document.uri} changed while it was read", hint="submit it again"
                        )
                await self.artifacts.document(doc_hash).write(content)

        try:
            async with anyio.create_task_group() as tasks:
                for doc_hash, document in documents.items():
                    tasks.start_soon(one, doc_hash, document)
        except BaseExceptionGroup as group:
            raise _first(group) from group

    # --- to look at -----------------------------------------------------------------------------

    async def document(self, doc_hash: str) -> RunDocumentRecord:
        """A stored document, under the URI that was seen last; raises DocumentNotFoundError."""
        check_name("doc_id", doc_hash)
        row = await self.store.document(doc_hash)
        uris = await self.store.uris_of(doc_hash)
        if row is None:
            raise DocumentNotFoundError(
                f"there is no document {doc_hash!r}", details={"hash": doc_hash}
            )
        last = max(uris, key=lambda one: (one["updated_at"], one["id"]), default=None)
        return _record(row, last["uri"] if last else "", last["source"] if last else "")

    async def list(
        self,
        *,
        source: str | None = None,
        batch_id: int | None = None,
        limit: int = 1000,
        offset: int = 0,
    ) -> Sequence[DocumentUri]:
        """The URIs of a source, or of a batch."""
        check_optional_names(source=source)
        check_optional_ids(batch_id=batch_id)
        check_page(limit, offset)
        if (source is None) == (batch_id is None):
            raise PlanInvalidError("source or batch_id is required", hint="give one of the two")
        rows = await self.store.uris(source=source, batch_id=batch_id, limit=limit, offset=offset)
        return [_uri(row) for row in rows]

    async def uri(self, uri: str, source: str) -> DocumentUri:
        """What a URI of a source names now; raises DocumentNotFoundError."""
        row = await self.store.uri(uri_key(uri, source))
        if row is None:
            raise _no_uri(uri, source)
        return _uri(row)

    async def history(self, uri: str, source: str) -> Sequence[UriVersion]:
        """The contents that a URI had, oldest first; raises DocumentNotFoundError."""
        found = await self.uri(uri, source)
        return [UriVersion(**row) for row in await self.store.history(found.id)]

    async def load(self, workflow_run: WorkflowRun) -> RunDocumentRecord | None:
        """The document of a run, as its handlers get it; a Worker takes it as ``documents``.

        Raises StepRefusedError when the document was deleted.
        """
        if workflow_run.doc_id is None:
            return None
        uri = str(workflow_run.run_params.get("uri", ""))
        source = str(workflow_run.run_params.get("source", ""))
        row = await self.store.document_of_run(workflow_run.doc_id, uri_key(uri, source))
        if row is None:
            raise StepRefusedError(
                f"the document {workflow_run.doc_id} was deleted",
                details={"hash": workflow_run.doc_id, "uri": uri},
            )
        return _record(row, uri, source)

    async def stored(self, doc_hash: str) -> Sequence[BlobInfo]:
        """The blobs of a document: its bytes first, then what steps made of it."""
        return [info async for info in self.artifacts.list(doc_hash, await self._plans())]

    async def source_status(
        self, source: str, hashes: Mapping[str, str], *, delete_stale: bool = False
    ) -> Mapping[str, SourceStatus]:
        """Compare what a source has (URI -> sha256) with what is stored of it.

        Hashes may begin with ``sha256-`` or ``sha256:``. ``delete_stale`` removes what the source
        has no more; a document in use by runs stays and is reported as DELETED next time too.
        """
        check_name("source", source)
        stored = await self.store.hashes_of_source(source)
        found: dict[str, SourceStatus] = {}
        for uri, given in hashes.items():
            wanted, known = full_hash(given), stored.get(uri)
            state = DocumentState.NEW if known is None else DocumentState.CHANGED
            state = DocumentState.UNCHANGED if known == wanted else state
            found[uri] = SourceStatus(status=state, source_hash=wanted, stored_hash=known)
        for uri in stored.keys() - hashes.keys():
            found[uri] = SourceStatus(
                status=DocumentState.DELETED, source_hash=None, stored_hash=stored[uri]
            )
            if delete_stale:
                await self.delete_uri(uri, source)
        return found

    # --- out ------------------------------------------------------------------------------------

    async def delete_uri(self, uri: str, source: str) -> Mapping[str, int]:
        """Remove a URI, and with the last one its document, runs, and artifacts; how many.

        Raises DocumentNotFoundError, and DocumentInUseError while runs are not final.
        """
        began = datetime.now(UTC)
        removed = await self.store.remove_uri(uri_key(uri, source))
        if removed is None:
            raise _no_uri(uri, source)
        for group_id in removed.groups:
            await self._engine.store.reconcile(group_id)
        blobs = 0
        if removed.hash is not None:
            blobs = await self._delete_blobs(removed.hash, began)
        return {
            "deleted_uris": 1,
            "deleted_history": removed.history,
            "deleted_documents": int(removed.hash is not None),
            "deleted_runs": removed.runs,
            "deleted_attempts": removed.attempts,
            "deleted_artifacts": blobs,
        }

    async def delete_artifacts(self, doc_hash: str) -> int:
        """Remove what steps made of a document, so that it is made again; how many blobs."""
        own = self.artifacts.document(doc_hash).path
        made = [info for info in await self.stored(doc_hash) if info.path != own]
        for info in made:
            await self.artifacts.blobs.delete(info.path)
        return len(made)

    async def cleanup_orphans(self, *, older_than: float = _ORPHAN_SECONDS) -> Mapping[str, int]:
        """Remove documents that no URI has, older than so many seconds; how many."""
        began = datetime.now(UTC)
        documents = blobs = 0
        while gone := await self.store.remove_orphans(older_than):
            documents += len(gone)
            for doc_hash in gone:
                blobs += await self._delete_blobs(doc_hash, began)
        return {"deleted_documents": documents, "deleted_artifacts": blobs}

    async def sweep(self, *, older_than: float = _ORPHAN_SECONDS) -> int:
        """Remove blobs without a document row, left by a crash; how many.

        Also marks completed batches, before retention removes their groups. A worker need not
        run; call it from time to time in one process.
        """
        await self.store.settle_batches()
        removed = 0
        some: list[tuple[str, BlobInfo]] = []
        async for found in self.artifacts.stored():
            some.append(found)
            if len(some) == _SWEPT:
                removed += await self._sweep_blobs(some, older_than)
                some = []
        return removed + await self._sweep_blobs(some, older_than)

    async def _sweep_blobs(self, found: Sequence[tuple[str, BlobInfo]], older_than: float) -> int:
        now = datetime.now(UTC)
        old = [
            (doc_hash, info.path)
            for doc_hash, info in found
            if info.modified_at is None or (now - info.modified_at).total_seconds() > older_than
        ]
        known = await self.store.sizes(sorted({doc_hash for doc_hash, _ in old}))
        paths = [path for doc_hash, path in old if doc_hash not in known]
        for path in paths:
            await self.artifacts.blobs.delete(path)
        return len(paths)

    async def _delete_blobs(self, doc_hash: str, began: datetime) -> int:
        """Remove the blobs of a document whose row is gone, unless it is submitted again."""
        removed = 0
        for info in await self.stored(doc_hash):
            if info.modified_at is not None and info.modified_at >= began:
                continue  # written since: by a submission that stores its row next
            if await self.store.sizes([doc_hash]):
                return removed
            removed += await self.artifacts.blobs.delete(info.path)
        return removed

    async def _plans(self) -> Sequence[RunPlan]:
        return [RunPlan.from_body(body) for body in await self.store.plan_bodies()]


class _Inputs:
    """Reads documents that are given by URI: files and blobs."""

    def __init__(self, blobs: BlobStoreProtocol, folders: Sequence[Path] | None) -> None:
        self._blobs = blobs
        self._folders = folders

    async def read(self, uri: str) -> bytes:
        """The bytes; raises DocumentSourceError."""
        parts = urlsplit(uri)
        try:
            if parts.scheme == "blob" and self._folders is None:
                return await self._blobs.download(f"{parts.netloc}{parts.path}".lstrip("/"))
            # One letter is the drive of a path.
            if parts.scheme in ("", "file") or len(parts.scheme) == 1:
                path = unquote(parts.path) if parts.scheme == "file" else uri
                return await to_thread.run_sync(self._file, Path(path))
        except BlobError as error:
            raise _unreadable(uri, error.message) from error
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a link loop
            raise _unreadable(uri, getattr(error, "strerror", None) or str(error)) from error
        raise _unreadable(uri, f"there is no reader for {parts.scheme}:")

    def _file(self, path: Path) -> bytes:
        real = path.resolve()
        folders = self._folders
        if folders is not None and not any(real.is_relative_to(f.resolve()) for f in folders):
            raise ValueError(
                "it is outside the folders that documents may be read from (input_dirs)"
            )
        return real.read_bytes()


def uri_key(uri: str, source: str) -> str:
    """What names a URI of a source; both may be longer than an index can hold."""
    return hashlib.sha256(f"{source}\0{uri}".encode("utf-8", "surrogatepass")).hexdigest()


def full_hash(text: str) -> str:
    """A sha256 as documents have it, whatever stands before its digits."""
    return HASH_PREFIX + text.rpartition("-")[2].rpartition(":")[2].lower()


def _new(document: RunDocument, digest: str, size: int) -> NewDocument:
    check_name("source", document.source)
    if not document.uri:
        raise InvalidRunError(
            "uri is empty", details={"field": "uri"}, hint="name the document in its source"
        )
    check_text("uri", document.uri)
    check_optional_names(mime_type=document.mime_type or None)
    metadata = dict(document.metadata)
    json_text("metadata", metadata)
    return NewDocument(
        hash=digest,
        mime_type=document.mime_type or "",
        file_size=size,
        uri=document.uri,
        source=document.source,
        key=uri_key(document.uri, document.source),
        metadata=metadata,
    )


def _by_key(documents: Sequence[RunDocument]) -> Mapping[str, RunDocument]:
    return {uri_key(document.uri, document.source): document for document in documents}


def _hashes(contents: Mapping[int, bytes]) -> dict[int, tuple[str, int]]:
    """In a thread: many small ones are one hop."""
    return {
        number: (HASH_PREFIX + hashlib.sha256(data).hexdigest(), len(data))
        for number, data in contents.items()
    }


def _types(documents: Sequence[RunDocument]) -> Mapping[str, str]:
    """In a thread: the first guess reads files of the system."""
    return {one.uri: mimetypes.guess_type(one.uri)[0] or _UNKNOWN_TYPE for one in documents}


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of one document; the others fail for the same reason or were cut off."""
    error = group.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", error))
    return error


def _unreadable(uri: str, reason: str) -> DocumentSourceError:
    return DocumentSourceError(
        f"{uri} cannot be read: {reason}",
        details={"uri": uri},
        hint="give the bytes, a path, a file:// URI, or blob:path of the blob store",
    )


def _no_uri(uri: str, source: str) -> DocumentNotFoundError:
    return DocumentNotFoundError(
        f"the source {source!r} has no document {uri!r}", details={"uri": uri, "source": source}
    )


def _batch(row: Row) -> Batch:
    return Batch(**{**row, "params": orjson.loads(row["params"])})


def _uri(row: Row) -> DocumentUri:
    return DocumentUri(**{**row, "metadata": orjson.loads(row["metadata"])})


def _record(row: Row, uri: str, source: str) -> RunDocumentRecord:
    metadata = orjson.loads(row.get("uri_metadata") or row["metadata"])
    return RunDocumentRecord(
        hash=row["hash"],
        mime_type=row["mime_type"],
        file_size=row["file_size"],
        uri=uri,
        source=source,
        metadata=metadata,
    )

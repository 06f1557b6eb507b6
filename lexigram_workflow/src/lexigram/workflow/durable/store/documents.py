"""Documents, URIs and batches in SQL; every method is one transaction, or joins that of the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
import orjson
from attrs import frozen

from lexigram.contracts.data.sql.database import QueryResult
from lexigram.leasing import Backoff
from lexigram.sql.database import Database
from lexigram.sql.leasing import lease_now
from lexigram.sql.steps import Steps
from lexigram.workflow.durable.errors import (
    BatchCompletedError,
    DocumentInUseError,
    DocumentNotFoundError,
    DurableError,
    is_outage,
)
from lexigram.workflow.durable.store import _document_statements as sql
from lexigram.workflow.durable.store._document_statements import statement_for
from lexigram.workflow.durable.store.base import translate_errors
from lexigram.workflow.durable.store.records import Row

T = TypeVar("T")

_TRIES = 4  # of a transaction: a deadlock or a restarted server
_AGAIN = Backoff(first=0.05, cap=1.0)


@frozen(kw_only=True)
class NewDocument:
    """A document whose bytes are in the blob store."""

    hash: str
    mime_type: str
    file_size: int
    uri: str
    source: str
    # names source and URI
    key: str
    metadata: Mapping[str, Any]


@frozen(kw_only=True)
class Added:
    """What became of one document: ``action`` is create, update or unchanged."""

    uri_id: int
    key: str
    hash: str
    version: int
    action: str


@frozen(kw_only=True)
class Removed:
    """What removing a URI took with it."""

    # None: another URI still has the content
    hash: str | None
    runs: int = 0
    attempts: int = 0
    groups: Sequence[int] = ()
    history: int = 0


class BlobsGone(Exception):
    """Rows for these contents were removed since their blobs were looked for; nothing was stored."""

    def __init__(self, hashes: Sequence[str]) -> None:
        super().__init__(hashes)
        self.hashes = hashes


class DocumentStore:
    """The rows of documents, URIs and batches."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = partial(statement_for, database.dialect)

    async def run_in_transaction(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do several calls in one transaction; again when it failed for the moment.

        ``work`` does nothing but calls of stores. Inside a transaction of the caller it joins
        that, and a failure is the caller's to repeat.
        """
        for attempt in range(1, _TRIES):
            try:
                return await translate_errors(lambda: self._run_in_transaction(work))
            except DurableError as error:
                if not is_outage(error) or self._db.in_transaction:
                    raise
            await anyio.sleep(_AGAIN.delay(attempt))
        return await translate_errors(lambda: self._run_in_transaction(work))

    async def _run_in_transaction(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._db.transaction():
            return await work()

    # --- in -------------------------------------------------------------------------------------

    async def add_batch(self, name: str | None, source: str, params: Mapping[str, Any]) -> int:
        def steps() -> Steps[int]:
            now = yield from lease_now(self._db.dialect)
            values = (name, source, orjson.dumps(params).decode(), now)
            return int((yield sql.ADD_BATCH, values).rows[0]["id"])

        return await self._steps(steps)

    async def drop_batch(self, batch_id: int) -> None:
        """A batch that no run belongs to."""

        def steps() -> Steps[None]:
            yield sql.DROP_MEMBERS_OF_BATCH, (batch_id,)
            yield sql.FORGET_BATCH_OF_URIS, (batch_id,)
            yield sql.DROP_BATCH, (batch_id,)

        await self._steps(steps)

    async def add(
        self, documents: Sequence[NewDocument], batch_id: int, uploaded: frozenset[str]
    ) -> Sequence[Added]:
        """Store documents that have different keys; the answers are in their order.

        ``uploaded`` are the contents whose blobs were written for this call: only rows for
        these may be new. Raises BlobsGone otherwise.
        """
        return await self._steps(lambda: self._add(documents, batch_id, uploaded))

    def _add(
        self, documents: Sequence[NewDocument], batch_id: int, uploaded: frozenset[str]
    ) -> Steps[Sequence[Added]]:
        render = self._sql
        now = yield from lease_now(self._db.dialect)
        contents = {one.hash: one for one in documents}
        rows = [_document_row(one) for one in contents.values()]
        stored = yield render(sql.ADD_DOCUMENTS), (now, _json(rows))
        missing = [
            row["hash"]
            for row in stored.rows
            if row["created_at"] == now and row["hash"] not in uploaded
        ]
        if missing:
            raise BlobsGone(missing)
        keys = _json([one.key for one in documents])
        known = {row["key"]: row for row in (yield render(sql.KNOWN_URIS), (keys,)).rows}
        uris = yield (
            render(sql.ADD_URIS),
            (batch_id, now, _json([_uri_row(one) for one in documents])),
        )
        by_key = {row["key"]: row for row in uris.rows}
        added = [_compare(one, by_key[one.key], known.get(one.key)) for one in documents]
        changes = [_change_row(one) for one in added if one.action != "unchanged"]
        if changes:
            yield render(sql.ADD_HISTORY), (batch_id, now, _json(changes))
        members = [{"uri_id": one.uri_id, "doc_hash": one.hash} for one in added]
        yield render(sql.ADD_MEMBERS), (batch_id, _json(members))
        return added

    async def open_batch(self, batch_id: int) -> Row:
        """The batch; locked until the transaction ends. Raises when unknown or completed."""

        def steps() -> Steps[Row]:
            yield self._sql(sql.LOCK_BATCH), (batch_id,)
            row = (yield sql.BATCH, (batch_id,)).first()
            if row is None:
                raise _no_batch(batch_id)
            if row["completed_at"] is not None:
                raise BatchCompletedError(
                    f"all runs of batch {batch_id} are final: it takes no more documents",
                    details={"batch_id": batch_id},
                    hint="make a new batch",
                )
            return row

        return await self._steps(steps)

    # --- to look at -----------------------------------------------------------------------------

    async def batch(self, batch_id: int) -> Row:
        row = (await self._query(sql.BATCH, (batch_id,))).first()
        if row is None:
            raise _no_batch(batch_id)
        return row

    async def batches(self, limit: int, offset: int) -> tuple[Sequence[Row], int]:
        rows = (await self._query(sql.BATCHES, (limit, offset))).rows
        return rows, (await self._query(sql.COUNT_BATCHES, ())).rows[0]["n"]

    async def members(self, batch_id: int) -> Sequence[Row]:
        return (await self._query(sql.MEMBERS, (batch_id,))).rows

    async def find_completed(
        self, hashes: Sequence[str], workflow_id: str, param_id: str | None
    ) -> frozenset[str]:
        """Those of the contents that a run of the workflow with the parameters completed."""
        values = (_json(hashes), workflow_id, param_id or "")
        found = await self._query(self._sql(sql.DONE_BEFORE), values)
        return frozenset(row["doc_hash"] for row in found.rows)

    async def document(self, doc_hash: str) -> Row | None:
        return (await self._query(sql.DOCUMENT, (doc_hash,))).first()

    async def document_of_run(self, doc_hash: str, key: str) -> Row | None:
        return (await self._query(sql.DOCUMENT_OF_RUN, (key, doc_hash))).first()

    async def uris_of(self, doc_hash: str) -> Sequence[Row]:
        return (await self._query(sql.DOCUMENT_URIS, (doc_hash,))).rows

    async def uri(self, key: str) -> Row | None:
        return (await self._query(sql.URI, (key,))).first()

    async def history(self, uri_id: int) -> Sequence[Row]:
        return (await self._query(sql.HISTORY, (uri_id,))).rows

    async def uris(
        self, *, source: str | None, batch_id: int | None, limit: int, offset: int
    ) -> Sequence[Row]:
        if source is not None:
            return (await self._query(sql.URIS_OF_SOURCE, (source, limit, offset))).rows
        return (await self._query(sql.URIS_OF_BATCH, (batch_id, limit, offset))).rows

    async def hashes_of_source(self, source: str) -> Mapping[str, str]:
        """URI -> content, read page by page."""
        found: dict[str, str] = {}
        after = 0
        while rows := (await self._query(sql.HASHES_OF_SOURCE, (source, after))).rows:
            found |= {row["uri"]: row["doc_hash"] for row in rows}
            after = rows[-1]["id"]
        return found

    async def sizes(self, hashes: Sequence[str]) -> Mapping[str, int]:
        """Those of the contents that have a row, with their sizes."""
        found = await self._query(self._sql(sql.SIZES), (_json(hashes),))
        return {row["hash"]: row["file_size"] for row in found.rows}

    async def plan_bodies(self) -> Sequence[str]:
        return [row["body"] for row in (await self._query(sql.PLANS, ())).rows]

    async def find_group(self, key: str) -> int | None:
        row = (await self._query(sql.FIND_GROUP, (key,))).first()
        return None if row is None else int(row["id"])

    # --- out ------------------------------------------------------------------------------------

    async def remove_uri(self, key: str) -> Removed | None:
        """Remove a sql.URI, and with the last one its document and runs; None when there is none.

        Raises DocumentInUseError while runs of the document are not final.
        """
        return await self._steps(lambda: self._remove_uri(key))

    def _remove_uri(self, key: str) -> Steps[Removed | None]:
        render = self._sql
        row = (yield sql.URI_AT_HAND, (key,)).first()
        # The document first: submissions lock in this order too.
        while row is not None:
            yield render(sql.LOCK_DOCUMENT), (row["doc_hash"],)
            seen, row = row, (yield render(sql.FIND_URI), (key,)).first()
            if row is not None and row["doc_hash"] == seen["doc_hash"]:
                break
        if row is None:
            return None
        is_last = (yield sql.OTHER_URIS, (row["doc_hash"], row["id"])).rows[0]["n"] == 0
        removed = Removed(hash=None)
        if is_last:
            removed = yield from self._remove_runs(row["doc_hash"])
        yield sql.DROP_MEMBERS, (row["id"],)
        history = (yield sql.DROP_URI_HISTORY, (row["id"],)).row_count
        yield sql.DROP_URI, (row["id"],)
        if is_last:
            yield sql.DROP_MEMBERS_OF_DOCUMENT, (row["doc_hash"],)
            yield sql.DROP_DOCUMENT, (row["doc_hash"],)
        return Removed(
            hash=removed.hash,
            runs=removed.runs,
            attempts=removed.attempts,
            groups=removed.groups,
            history=history,
        )

    def _remove_runs(self, doc_hash: str) -> Steps[Removed]:
        render = self._sql
        runs = (yield sql.RUNS_OF_DOCUMENT, (doc_hash, doc_hash)).rows
        busy = [row["id"] for row in runs if row["completed_at"] is None]
        if busy:
            raise DocumentInUseError(
                f"runs of the document {doc_hash} are not final: {', '.join(map(str, busy[:10]))}",
                details={"hash": doc_hash, "runs": busy},
                hint="cancel them or let them end, then delete it",
            )
        if not runs:
            return Removed(hash=doc_hash)
        ids = _json([row["id"] for row in runs])
        groups = sorted({row["group_id"] for row in runs})
        yield render(sql.DROP_LIFECYCLE), (_json(groups), ids)
        yield render(sql.DROP_EVENTS), (_json(groups), ids)
        attempts = (yield render(sql.DROP_ATTEMPTS), (ids,)).row_count
        yield render(sql.DROP_RUNS), (ids,)
        return Removed(hash=doc_hash, runs=len(runs), attempts=attempts, groups=groups)

    async def remove_orphans(self, older_than: float) -> Sequence[str]:
        """Remove some documents that no URI has; their hashes. Those that runs need stay."""

        def steps() -> Steps[Sequence[str]]:
            now = yield from lease_now(self._db.dialect)
            found = yield self._sql(sql.ORPHANS), (now - older_than,)
            gone: list[str] = []
            for row in found.rows:
                try:
                    yield from self._remove_runs(row["hash"])
                except DocumentInUseError:
                    continue
                yield sql.DROP_MEMBERS_OF_DOCUMENT, (row["hash"],)
                yield sql.DROP_DOCUMENT, (row["hash"],)
                gone.append(row["hash"])
            return gone

        return await self._steps(steps)

    async def settle_batch(self, group_id: int) -> None:
        await self._steps(lambda: _alone(sql.SETTLE_ONE, (group_id,)))

    async def settle_batches(self) -> None:
        """Keep what the groups of batches tell, before retention removes them."""
        await self._steps(lambda: _alone(sql.SETTLE, ()))

    async def _steps(self, steps: Callable[[], Steps[T]]) -> T:
        return await translate_errors(lambda: self._db.run_steps(steps))

    async def _query(self, statement: str, params: Sequence[Any]) -> QueryResult:
        return await translate_errors(lambda: self._db.execute_query(statement, params))


def _alone(statement: str, params: Sequence[Any]) -> Steps[QueryResult]:
    return (yield statement, params)


def _no_batch(batch_id: int) -> DocumentNotFoundError:
    return DocumentNotFoundError(f"there is no batch {batch_id}", details={"batch_id": batch_id})


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _document_row(one: NewDocument) -> dict[str, Any]:
    return {
        "hash": one.hash,
        "mime_type": one.mime_type,
        "file_size": one.file_size,
        "metadata": _json(one.metadata),
    }


def _uri_row(one: NewDocument) -> dict[str, Any]:
    return {
        "key": one.key,
        "uri": one.uri,
        "source": one.source,
        "doc_hash": one.hash,
        "metadata": _json(one.metadata),
    }


def _change_row(one: Added) -> dict[str, Any]:
    return {
        "uri_id": one.uri_id,
        "version": one.version,
        "doc_hash": one.hash,
        "action": one.action,
    }


def _compare(one: NewDocument, row: Row, known: Row | None) -> Added:
    action = "update"
    if known is not None and known["version"] == row["version"]:
        action = "unchanged"
    elif row["version"] == 1:
        action = "create"
    return Added(
        uri_id=row["id"], key=one.key, hash=one.hash, version=row["version"], action=action
    )

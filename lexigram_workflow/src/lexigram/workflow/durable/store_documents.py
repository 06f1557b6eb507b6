"""Documents, URIs and batches in SQL; every method is one transaction, or joins that of the caller.

Many rows go in as one JSON parameter. Rows are written in the order of their keys, so that two
submissions of the same documents wait for each other instead of blocking each other.
"""

# ruff: noqa: S608 - statements are put together from pieces of this file only

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import anyio
import orjson
from attrs import frozen

from lexigram.contracts.data.sql.database import DatabaseError, QueryResult
from lexigram.sql.database import Database
from lexigram.sql.errors import is_transient
from lexigram.sql.leasing import Backoff, lease_now
from lexigram.sql.steps import Steps
from lexigram.sql.url import Dialect
from lexigram.workflow.durable.errors import (
    BatchCompletedError,
    DocumentInUseError,
    DocumentNotFoundError,
    DurableError,
)
from lexigram.workflow.durable.store import Row
from lexigram.workflow.durable.store_base import translated

T = TypeVar("T")

_TRIES = 4  # of a transaction: a deadlock or a restarted server
_AGAIN = Backoff(first=0.05, cap=1.0)
_BATCH = 500  # rows that one transaction of a sweep looks at

_DOCUMENT: Final = {
    "hash": "text",
    "mime_type": "text",
    "file_size": "bigint",
    "metadata": "text",
}
_URI: Final = {
    "key": "text",
    "uri": "text",
    "source": "text",
    "doc_hash": "text",
    "metadata": "text",
}
_CHANGE: Final = {"uri_id": "bigint", "version": "int", "doc_hash": "text", "action": "text"}
_MEMBER: Final = {"uri_id": "bigint", "doc_hash": "text"}

# Primary key. An update that changes nothing: it locks the row, so that nobody removes the
# document before it is referred to, and it gives back when the document came.
ADD_DOCUMENTS = """
INSERT INTO lexigram_durable_documents (hash, mime_type, file_size, metadata, created_at)
SELECT hash, mime_type, file_size, metadata, {float} FROM {rows} WHERE true ORDER BY hash
ON CONFLICT (hash) DO UPDATE SET file_size = excluded.file_size RETURNING hash, created_at"""

# The unique key; row locks. A new content is a new version.
ADD_URIS = """
INSERT INTO lexigram_durable_document_uris
    (key, uri, source, doc_hash, version, batch_id, metadata, updated_at)
SELECT key, uri, source, doc_hash, 1, {int}, metadata, {float} FROM {rows} WHERE true ORDER BY key
ON CONFLICT (key) DO UPDATE SET
    version = lexigram_durable_document_uris.version + CASE
        WHEN lexigram_durable_document_uris.doc_hash = excluded.doc_hash THEN 0 ELSE 1 END,
    doc_hash = excluded.doc_hash, batch_id = excluded.batch_id, metadata = excluded.metadata,
    updated_at = excluded.updated_at
RETURNING id, key, version"""
# The unique key.
KNOWN_URIS = """
SELECT id, key, doc_hash, version FROM lexigram_durable_document_uris WHERE key IN {list}"""
ADD_HISTORY = """
INSERT INTO lexigram_durable_uri_history (uri_id, version, doc_hash, action, batch_id, created_at)
SELECT uri_id, version, doc_hash, action, {int}, {float} FROM {rows} WHERE true
ON CONFLICT DO NOTHING"""
ADD_MEMBERS = """
INSERT INTO lexigram_durable_batch_documents (batch_id, uri_id, doc_hash)
SELECT {int}, uri_id, doc_hash FROM {rows} WHERE true ORDER BY uri_id
ON CONFLICT (batch_id, uri_id) DO UPDATE SET doc_hash = excluded.doc_hash"""

ADD_BATCH = """
INSERT INTO lexigram_durable_batches (name, source, params, created_at) VALUES (?, ?, ?, ?)
RETURNING id"""
DROP_MEMBERS_OF_BATCH = "DELETE FROM lexigram_durable_batch_documents WHERE batch_id = ?"
FORGET_BATCH_OF_URIS = """
UPDATE lexigram_durable_document_uris SET batch_id = NULL WHERE batch_id = ?"""
DROP_BATCH = "DELETE FROM lexigram_durable_batches WHERE id = ?"

# A batch is completed while it has groups and none of them is open; ix_lexigram_durable_groups_batch.
_COMPLETED = """
CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g WHERE g.batch_id = b.id) THEN
    CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g
                      WHERE g.batch_id = b.id AND g.completed_at IS NULL) THEN NULL
         ELSE (SELECT max(g.completed_at) FROM lexigram_durable_groups g WHERE g.batch_id = b.id)
    END ELSE b.completed_at END"""
_BATCH_ROW = f"""
SELECT b.id, b.name, b.source, b.params, b.created_at, {_COMPLETED} AS completed_at,
    (SELECT count(*) FROM lexigram_durable_batch_documents d WHERE d.batch_id = b.id)
        AS document_count
FROM lexigram_durable_batches b"""
BATCH = f"{_BATCH_ROW} WHERE b.id = ?"
BATCHES = f"{_BATCH_ROW} ORDER BY b.id DESC LIMIT ? OFFSET ?"
COUNT_BATCHES = "SELECT count(*) AS n FROM lexigram_durable_batches"
# Row lock of one batch: of the completion and a new document one comes first.
LOCK_BATCH = "SELECT id FROM lexigram_durable_batches WHERE id = ?{lock}"
# Those whose groups tell something else than what is kept; reads the batches.
SETTLE = f"""
UPDATE lexigram_durable_batches AS b SET completed_at = {_COMPLETED}
WHERE EXISTS (SELECT 1 FROM lexigram_durable_groups g WHERE g.batch_id = b.id)
    AND b.completed_at IS DISTINCT FROM {_COMPLETED}"""
# Primary keys.
SETTLE_ONE = f"""
UPDATE lexigram_durable_batches AS b SET completed_at = {_COMPLETED}
WHERE b.id = (SELECT batch_id FROM lexigram_durable_groups WHERE id = ?)"""

# The members of a batch with the content that they had in it; primary key.
MEMBERS = """
SELECT m.doc_hash, u.uri, u.source, u.key
FROM lexigram_durable_batch_documents m JOIN lexigram_durable_document_uris u ON u.id = m.uri_id
WHERE m.batch_id = ? ORDER BY m.uri_id"""
# By the batches that had the documents, their groups, and (group_id, status).
DONE_BEFORE = """
SELECT DISTINCT m.doc_hash FROM lexigram_durable_batch_documents m
JOIN lexigram_durable_groups g ON g.batch_id = m.batch_id
JOIN lexigram_durable_runs r
    ON r.group_id = g.id AND r.status = 'completed' AND r.doc_id = m.doc_hash
        AND r.parent_id IS NULL
WHERE m.doc_hash IN {list} AND g.workflow_id = ? AND coalesce(g.param_id, '') = ?"""

_URI_ROW = """
SELECT u.id, u.uri, u.source, u.doc_hash, u.version, u.batch_id, u.metadata, u.updated_at,
    d.mime_type, d.file_size
FROM lexigram_durable_document_uris u JOIN lexigram_durable_documents d ON d.hash = u.doc_hash"""
URIS_OF_SOURCE = f"{_URI_ROW} WHERE u.source = ? ORDER BY u.id LIMIT ? OFFSET ?"
# Primary key of the members.
URIS_OF_BATCH = f"""{_URI_ROW} WHERE u.id IN (
    SELECT uri_id FROM lexigram_durable_batch_documents WHERE batch_id = ?)
ORDER BY u.id LIMIT ? OFFSET ?"""
# Index of the source, page by page.
HASHES_OF_SOURCE = f"""
SELECT id, uri, doc_hash FROM lexigram_durable_document_uris
WHERE source = ? AND id > ? ORDER BY id LIMIT {_BATCH}"""
DOCUMENT = "SELECT * FROM lexigram_durable_documents WHERE hash = ?"
# Primary key, unique key: what a handler gets as its document.
DOCUMENT_OF_RUN = """
SELECT d.hash, d.mime_type, d.file_size, d.metadata, u.metadata AS uri_metadata
FROM lexigram_durable_documents d
LEFT JOIN lexigram_durable_document_uris u ON u.key = ? AND u.doc_hash = d.hash
WHERE d.hash = ?"""
DOCUMENT_URIS = f"{_URI_ROW} WHERE u.doc_hash = ? ORDER BY u.id"
HISTORY = """
SELECT version, doc_hash, action, batch_id, created_at FROM lexigram_durable_uri_history
WHERE uri_id = ? ORDER BY version"""
URI = f"{_URI_ROW} WHERE u.key = ?"
SIZES = "SELECT hash, file_size FROM lexigram_durable_documents WHERE hash IN {list}"

# --- removing: first what refers, then what is referred to ------------------------------------

# The unique key.
URI_AT_HAND = "SELECT id, doc_hash FROM lexigram_durable_document_uris WHERE key = ?"
# The same with a row lock.
FIND_URI = "SELECT id, doc_hash FROM lexigram_durable_document_uris WHERE key = ?{lock}"
# Row lock: a submission of the same content waits and then makes it anew.
LOCK_DOCUMENT = "SELECT hash FROM lexigram_durable_documents WHERE hash = ?{lock}"
OTHER_URIS = """
SELECT count(*) AS n FROM lexigram_durable_document_uris WHERE doc_hash = ? AND id <> ?"""
# By the batches that had the document, their groups, and (group_id, status).
RUNS_OF_DOCUMENT = """
SELECT r.id, r.group_id, r.completed_at FROM lexigram_durable_runs r
WHERE r.doc_id = ? AND r.group_id IN (
    SELECT g.id FROM lexigram_durable_groups g WHERE g.batch_id IN (
        SELECT batch_id FROM lexigram_durable_batch_documents WHERE doc_hash = ?))"""
DROP_MEMBERS = "DELETE FROM lexigram_durable_batch_documents WHERE uri_id = ?"
DROP_URI_HISTORY = "DELETE FROM lexigram_durable_uri_history WHERE uri_id = ?"
DROP_URI = "DELETE FROM lexigram_durable_document_uris WHERE id = ?"
# A batch may know the document by a URI that has another content by now.
DROP_MEMBERS_OF_DOCUMENT = "DELETE FROM lexigram_durable_batch_documents WHERE doc_hash = ?"
DROP_DOCUMENT = "DELETE FROM lexigram_durable_documents WHERE hash = ?"
DROP_LIFECYCLE = (
    "DELETE FROM lexigram_durable_lifecycle WHERE group_id IN {ids} AND run_id IN {ids}"
)
DROP_EVENTS = "DELETE FROM lexigram_durable_events WHERE group_id IN {ids} AND run_id IN {ids}"
DROP_ATTEMPTS = "DELETE FROM lexigram_durable_history WHERE run_id IN {ids}"
DROP_RUNS = "DELETE FROM lexigram_durable_runs WHERE id IN {ids}"

# Documents that no URI has, oldest first, with nothing that works on them.
ORPHANS = f"""
SELECT d.hash FROM lexigram_durable_documents d
WHERE d.created_at <= {{float}}
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_document_uris u WHERE u.doc_hash = d.hash)
ORDER BY d.created_at LIMIT {_BATCH}"""

# --- runs ---------------------------------------------------------------------------------------

FIND_GROUP = "SELECT id FROM lexigram_durable_groups WHERE idempotency_key = ?"
PLANS = "SELECT body FROM lexigram_durable_plans"


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
        self._sql = _Dialect(database.dialect)

    async def transacted(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do several calls in one transaction; again when it failed for the moment.

        ``work`` does nothing but calls of stores. Inside a transaction of the caller it joins
        that, and a failure is the caller's to repeat.
        """
        for attempt in range(1, _TRIES):
            try:
                return await translated(lambda: self._transacted(work))
            except DurableError as error:
                cause = error.__cause__
                is_momentary = isinstance(cause, DatabaseError) and is_transient(cause)
                if not is_momentary or self._db.in_transaction:
                    raise
            await anyio.sleep(_AGAIN.delay(attempt))
        return await translated(lambda: self._transacted(work))

    async def _transacted(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._db.transaction():
            return await work()

    # --- in -------------------------------------------------------------------------------------

    async def add_batch(self, name: str | None, source: str, params: Mapping[str, Any]) -> int:
        def steps() -> Steps[int]:
            now = yield from lease_now(self._db.dialect)
            values = (name, source, orjson.dumps(params).decode(), now)
            return int((yield ADD_BATCH, values).rows[0]["id"])

        return await self._steps(steps)

    async def drop_batch(self, batch_id: int) -> None:
        """A batch that no run belongs to."""

        def steps() -> Steps[None]:
            yield DROP_MEMBERS_OF_BATCH, (batch_id,)
            yield FORGET_BATCH_OF_URIS, (batch_id,)
            yield DROP_BATCH, (batch_id,)

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
        sql = self._sql
        now = yield from lease_now(self._db.dialect)
        contents = {one.hash: one for one in documents}
        rows = [_document_row(one) for one in contents.values()]
        stored = yield sql.rows(ADD_DOCUMENTS, _DOCUMENT), (now, _json(rows))
        missing = [
            row["hash"]
            for row in stored.rows
            if row["created_at"] == now and row["hash"] not in uploaded
        ]
        if missing:
            raise BlobsGone(missing)
        keys = _json([one.key for one in documents])
        known = {row["key"]: row for row in (yield sql.rows(KNOWN_URIS), (keys,)).rows}
        uris = yield (
            sql.rows(ADD_URIS, _URI),
            (batch_id, now, _json([_uri_row(one) for one in documents])),
        )
        by_key = {row["key"]: row for row in uris.rows}
        added = [_added(one, by_key[one.key], known.get(one.key)) for one in documents]
        changes = [_change_row(one) for one in added if one.action != "unchanged"]
        if changes:
            yield sql.rows(ADD_HISTORY, _CHANGE), (batch_id, now, _json(changes))
        members = [{"uri_id": one.uri_id, "doc_hash": one.hash} for one in added]
        yield sql.rows(ADD_MEMBERS, _MEMBER), (batch_id, _json(members))
        return added

    async def open_batch(self, batch_id: int) -> Row:
        """The batch; locked until the transaction ends. Raises when unknown or completed."""

        def steps() -> Steps[Row]:
            yield self._sql.rows(LOCK_BATCH), (batch_id,)
            row = (yield BATCH, (batch_id,)).first()
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
        row = (await self._query(BATCH, (batch_id,))).first()
        if row is None:
            raise _no_batch(batch_id)
        return row

    async def batches(self, limit: int, offset: int) -> tuple[Sequence[Row], int]:
        rows = (await self._query(BATCHES, (limit, offset))).rows
        return rows, (await self._query(COUNT_BATCHES, ())).rows[0]["n"]

    async def members(self, batch_id: int) -> Sequence[Row]:
        return (await self._query(MEMBERS, (batch_id,))).rows

    async def done_before(
        self, hashes: Sequence[str], workflow_id: str, param_id: str | None
    ) -> frozenset[str]:
        """Those of the contents that a run of the workflow with the parameters completed."""
        values = (_json(hashes), workflow_id, param_id or "")
        found = await self._query(self._sql.rows(DONE_BEFORE), values)
        return frozenset(row["doc_hash"] for row in found.rows)

    async def document(self, doc_hash: str) -> Row | None:
        return (await self._query(DOCUMENT, (doc_hash,))).first()

    async def document_of_run(self, doc_hash: str, key: str) -> Row | None:
        return (await self._query(DOCUMENT_OF_RUN, (key, doc_hash))).first()

    async def uris_of(self, doc_hash: str) -> Sequence[Row]:
        return (await self._query(DOCUMENT_URIS, (doc_hash,))).rows

    async def uri(self, key: str) -> Row | None:
        return (await self._query(URI, (key,))).first()

    async def history(self, uri_id: int) -> Sequence[Row]:
        return (await self._query(HISTORY, (uri_id,))).rows

    async def uris(
        self, *, source: str | None, batch_id: int | None, limit: int, offset: int
    ) -> Sequence[Row]:
        if source is not None:
            return (await self._query(URIS_OF_SOURCE, (source, limit, offset))).rows
        return (await self._query(URIS_OF_BATCH, (batch_id, limit, offset))).rows

    async def hashes_of_source(self, source: str) -> Mapping[str, str]:
        """URI -> content, read page by page."""
        found: dict[str, str] = {}
        after = 0
        while rows := (await self._query(HASHES_OF_SOURCE, (source, after))).rows:
            found |= {row["uri"]: row["doc_hash"] for row in rows}
            after = rows[-1]["id"]
        return found

    async def known(self, hashes: Sequence[str]) -> Mapping[str, int]:
        """Those of the contents that have a row, with their sizes."""
        found = await self._query(self._sql.rows(SIZES), (_json(hashes),))
        return {row["hash"]: row["file_size"] for row in found.rows}

    async def plan_bodies(self) -> Sequence[str]:
        return [row["body"] for row in (await self._query(PLANS, ())).rows]

    async def find_group(self, key: str) -> int | None:
        row = (await self._query(FIND_GROUP, (key,))).first()
        return None if row is None else int(row["id"])

    # --- out ------------------------------------------------------------------------------------

    async def remove_uri(self, key: str) -> Removed | None:
        """Remove a URI, and with the last one its document and runs; None when there is none.

        Raises DocumentInUseError while runs of the document are not final.
        """
        return await self._steps(lambda: self._remove_uri(key))

    def _remove_uri(self, key: str) -> Steps[Removed | None]:
        sql = self._sql
        row = (yield URI_AT_HAND, (key,)).first()
        # The document first: submissions lock in this order too.
        while row is not None:
            yield sql.rows(LOCK_DOCUMENT), (row["doc_hash"],)
            seen, row = row, (yield sql.rows(FIND_URI), (key,)).first()
            if row is not None and row["doc_hash"] == seen["doc_hash"]:
                break
        if row is None:
            return None
        is_last = (yield OTHER_URIS, (row["doc_hash"], row["id"])).rows[0]["n"] == 0
        removed = Removed(hash=None)
        if is_last:
            removed = yield from self._remove_runs(row["doc_hash"])
        yield DROP_MEMBERS, (row["id"],)
        history = (yield DROP_URI_HISTORY, (row["id"],)).row_count
        yield DROP_URI, (row["id"],)
        if is_last:
            yield DROP_MEMBERS_OF_DOCUMENT, (row["doc_hash"],)
            yield DROP_DOCUMENT, (row["doc_hash"],)
        return Removed(
            hash=removed.hash,
            runs=removed.runs,
            attempts=removed.attempts,
            groups=removed.groups,
            history=history,
        )

    def _remove_runs(self, doc_hash: str) -> Steps[Removed]:
        sql = self._sql
        runs = (yield RUNS_OF_DOCUMENT, (doc_hash, doc_hash)).rows
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
        yield sql.rows(DROP_LIFECYCLE), (_json(groups), ids)
        yield sql.rows(DROP_EVENTS), (_json(groups), ids)
        attempts = (yield sql.rows(DROP_ATTEMPTS), (ids,)).row_count
        yield sql.rows(DROP_RUNS), (ids,)
        return Removed(hash=doc_hash, runs=len(runs), attempts=attempts, groups=groups)

    async def remove_orphans(self, older_than: float) -> Sequence[str]:
        """Remove some documents that no URI has; their hashes. Those that runs need stay."""

        def steps() -> Steps[Sequence[str]]:
            now = yield from lease_now(self._db.dialect)
            found = yield self._sql.rows(ORPHANS), (now - older_than,)
            gone: list[str] = []
            for row in found.rows:
                try:
                    yield from self._remove_runs(row["hash"])
                except DocumentInUseError:
                    continue
                yield DROP_MEMBERS_OF_DOCUMENT, (row["hash"],)
                yield DROP_DOCUMENT, (row["hash"],)
                gone.append(row["hash"])
            return gone

        return await self._steps(steps)

    async def settle_batch(self, group_id: int) -> None:
        await self._steps(lambda: _alone(SETTLE_ONE, (group_id,)))

    async def settle_batches(self) -> None:
        """Keep what the groups of batches tell, before retention removes them."""
        await self._steps(lambda: _alone(SETTLE, ()))

    async def _steps(self, steps: Callable[[], Steps[T]]) -> T:
        return await translated(lambda: self._db.run_steps(steps))

    async def _query(self, statement: str, params: Sequence[Any]) -> QueryResult:
        return await translated(lambda: self._db.execute_query(statement, params))


class _Dialect:
    """What differs between the databases."""

    def __init__(self, dialect: Dialect) -> None:
        self._is_sqlite = dialect == "sqlite"
        self._made: dict[str, str] = {}

    def rows(self, statement: str, columns: Mapping[str, str] | None = None) -> str:
        """The statement with its pieces filled in."""
        made = self._made.get(statement)
        if made is None:
            pieces = {
                "rows": self._from_json(columns or {}),
                "list": self._values("text"),
                "ids": self._values("bigint"),
                "lock": "" if self._is_sqlite else " FOR UPDATE",
                "int": "CAST(? AS bigint)",
                "float": "CAST(? AS double precision)",
            }
            made = self._made[statement] = statement.format(**pieces)
        return made

    def _values(self, kind: str) -> str:
        if self._is_sqlite:
            return "(SELECT value FROM json_each(?))"
        return f"(SELECT CAST(v AS {kind}) FROM json_array_elements_text(CAST(? AS json)) AS v)"

    def _from_json(self, columns: Mapping[str, str]) -> str:
        if self._is_sqlite:
            picked = ", ".join(f"value ->> '{name}' AS {name}" for name in columns)
            return f"(SELECT {picked} FROM json_each(?)) AS v"
        typed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        return f"json_to_recordset(CAST(? AS json)) AS v({typed})"


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


def _added(one: NewDocument, row: Row, known: Row | None) -> Added:
    action = "update"
    if known is not None and known["version"] == row["version"]:
        action = "unchanged"
    elif row["version"] == 1:
        action = "create"
    return Added(
        uri_id=row["id"], key=one.key, hash=one.hash, version=row["version"], action=action
    )

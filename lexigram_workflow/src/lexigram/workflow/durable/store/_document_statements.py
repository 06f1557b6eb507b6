"""The statements about documents, URIs and batches, for both databases.

Many rows go in as one JSON parameter. Rows are written in the order of their keys, so that two
submissions of the same documents wait for each other instead of blocking each other.
"""

# ruff: noqa: S608 - statements are put together from pieces of this file only

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from lexigram.sql.statements import render_statement
from lexigram.sql.url import Dialect

BATCH_ROWS = 500  # rows that one transaction of a sweep looks at

# Primary key. An update that changes nothing: it locks the row, so that nobody removes the
# document before it is referred to, and it gives back when the document came.
ADD_DOCUMENTS = """
INSERT INTO lexigram_durable_documents (hash, mime_type, file_size, metadata, created_at)
SELECT hash, mime_type, file_size, metadata, {float} FROM {documents} WHERE true ORDER BY hash
ON CONFLICT (hash) DO UPDATE SET file_size = excluded.file_size RETURNING hash, created_at"""

# The unique key; row locks. A new content is a new version.
ADD_URIS = """
INSERT INTO lexigram_durable_document_uris
    (key, uri, source, doc_hash, version, batch_id, metadata, updated_at)
SELECT key, uri, source, doc_hash, 1, {int}, metadata, {float} FROM {uris} WHERE true ORDER BY key
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
SELECT uri_id, version, doc_hash, action, {int}, {float} FROM {changes} WHERE true
ON CONFLICT DO NOTHING"""
ADD_MEMBERS = """
INSERT INTO lexigram_durable_batch_documents (batch_id, uri_id, doc_hash)
SELECT {int}, uri_id, doc_hash FROM {members} WHERE true ORDER BY uri_id
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
WHERE source = ? AND id > ? ORDER BY id LIMIT {BATCH_ROWS}"""
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
# A batch may list the document under a URI that has another content by now.
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
ORDER BY d.created_at LIMIT {BATCH_ROWS}"""

# --- runs ---------------------------------------------------------------------------------------

FIND_GROUP = "SELECT id FROM lexigram_durable_groups WHERE idempotency_key = ?"
PLANS = "SELECT body FROM lexigram_durable_plans"

# --- what differs between the databases ----------------------------------------------------------


@cache
def statement_for(dialect: Dialect, statement: str) -> str:
    """A statement of this file as the database takes it."""
    return render_statement(statement, **_PIECES[dialect])


def _sqlite_rows(columns: Mapping[str, str]) -> str:
    picked = ", ".join(f"value ->> '{name}' AS {name}" for name in columns)
    return f"(SELECT {picked} FROM json_each(?)) AS v"


def _postgres_rows(columns: Mapping[str, str]) -> str:
    typed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return f"json_to_recordset(CAST(? AS json)) AS v({typed})"


_DOCUMENT: Final[Mapping[str, str]] = {
    "hash": "text",
    "mime_type": "text",
    "file_size": "bigint",
    "metadata": "text",
}
_URI: Final[Mapping[str, str]] = {
    "key": "text",
    "uri": "text",
    "source": "text",
    "doc_hash": "text",
    "metadata": "text",
}
_CHANGE: Final[Mapping[str, str]] = {
    "uri_id": "bigint",
    "version": "int",
    "doc_hash": "text",
    "action": "text",
}
_MEMBER: Final[Mapping[str, str]] = {"uri_id": "bigint", "doc_hash": "text"}
_ROWS: Final = {"documents": _DOCUMENT, "uris": _URI, "changes": _CHANGE, "members": _MEMBER}
_CASTS: Final = {"int": "CAST(? AS bigint)", "float": "CAST(? AS double precision)"}
_PIECES: Final[Mapping[Dialect, Mapping[str, str]]] = {
    "sqlite": {
        **_CASTS,
        **{name: _sqlite_rows(columns) for name, columns in _ROWS.items()},
        "list": "(SELECT value FROM json_each(?))",
        "ids": "(SELECT value FROM json_each(?))",
        "lock": "",
    },
    "postgresql": {
        **_CASTS,
        **{name: _postgres_rows(columns) for name, columns in _ROWS.items()},
        "list": "(SELECT CAST(v AS text) FROM json_array_elements_text(CAST(? AS json)) AS v)",
        "ids": "(SELECT CAST(v AS bigint) FROM json_array_elements_text(CAST(? AS json)) AS v)",
        "lock": " FOR UPDATE",
    },
}

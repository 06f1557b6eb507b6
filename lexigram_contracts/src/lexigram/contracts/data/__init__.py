"""Contracts of stored data: SQL, outbox, blobs, fenced locks; vectors in ``data.vector``."""

from lexigram.contracts.data.blobs import (
    BlobCorruptError,
    BlobError,
    BlobInfo,
    BlobNotFoundError,
    BlobPathError,
    BlobStoreProtocol,
)
from lexigram.contracts.data.locks import ResourceLock, ResourceLockKind, ResourceLockProtocol
from lexigram.contracts.data.outbox import OutboxProtocol, OutboxStoreProtocol
from lexigram.contracts.data.sql.database import (
    DatabaseError,
    DatabaseProviderProtocol,
    QueryResult,
    UniqueViolationError,
)

__all__ = [
    "BlobCorruptError",
    "BlobError",
    "BlobInfo",
    "BlobNotFoundError",
    "BlobPathError",
    "BlobStoreProtocol",
    "DatabaseError",
    "DatabaseProviderProtocol",
    "OutboxProtocol",
    "OutboxStoreProtocol",
    "QueryResult",
    "ResourceLock",
    "ResourceLockKind",
    "ResourceLockProtocol",
    "UniqueViolationError",
]

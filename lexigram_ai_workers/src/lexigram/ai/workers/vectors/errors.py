"""Errors of vector stores; each is a VectorStoreError of the contracts.

The first base class determines the HTTP status: 404, 409 or 400 instead of 503. Permanent ones are
StepRefusedErrors, which a durable step does not retry.
"""

from __future__ import annotations

from lexigram.contracts.core.errors import DomainError, NotFoundError
from lexigram.contracts.core.lock import LockConflictError
from lexigram.contracts.data.vector.errors import VectorStoreError
from lexigram.contracts.workflow.errors import StepRefusedError


class CollectionNotFoundError(NotFoundError, VectorStoreError):
    """No collection has this name."""

    code = "LEX_ERR_AIWORK_030"


class CollectionMismatchError(VectorStoreError, StepRefusedError):
    """A collection has another model, dimension or metric."""

    code = "LEX_ERR_AIWORK_031"


class VectorDatabaseNotFoundError(NotFoundError, VectorStoreError):
    """No database has this name, or the name is invalid."""

    code = "LEX_ERR_AIWORK_032"


class VectorDataCorruptError(VectorStoreError):
    """The files of a collection cannot be read."""

    code = "LEX_ERR_AIWORK_033"


class VectorWriterBusyError(LockConflictError, VectorStoreError):
    """Another writer held the lock for longer than the caller waits."""

    code = "LEX_ERR_AIWORK_034"


class VectorFilterError(DomainError, VectorStoreError, ValueError):
    """A filter is empty or has an invalid value."""

    code = "LEX_ERR_AIWORK_035"
    is_retryable = False


class VectorRecordError(DomainError, VectorStoreError, StepRefusedError, ValueError):
    """A record has an invalid id, vector or metadata."""

    code = "LEX_ERR_AIWORK_036"


class SearchRefusedError(DomainError, VectorStoreError, ValueError):
    """A search lacks a required field, or its mode is not supported."""

    code = "LEX_ERR_AIWORK_037"
    is_retryable = False

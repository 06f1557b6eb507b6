"""What can go wrong with the stores of vectors; each is a VectorStoreError of the contracts.

The first base says what the web host answers: 404, 409 or 400 instead of 503. Those that trying
again cannot help are StepRefusedErrors: a durable step gives up at once.
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
    """A collection was made for another model, dimension or metric."""

    code = "LEX_ERR_AIWORK_031"


class VectorDatabaseNotFoundError(NotFoundError, VectorStoreError):
    """No database has this name, or the name leads out of the folder."""

    code = "LEX_ERR_AIWORK_032"


class VectorDataCorruptError(VectorStoreError):
    """The files of a collection cannot be read."""

    code = "LEX_ERR_AIWORK_033"


class VectorWriterBusyError(LockConflictError, VectorStoreError):
    """Another writer kept a collection or a database for longer than the caller waits."""

    code = "LEX_ERR_AIWORK_034"


class VectorFilterError(DomainError, VectorStoreError, ValueError):
    """A filter is empty, or has a value that nothing can equal."""

    code = "LEX_ERR_AIWORK_035"


class VectorRecordError(DomainError, VectorStoreError, StepRefusedError, ValueError):
    """A record cannot be stored: its id, its vector or its metadata is wrong."""

    code = "LEX_ERR_AIWORK_036"


class SearchRefusedError(DomainError, VectorStoreError, ValueError):
    """A search lacks what its mode goes by, or the store has no such mode."""

    code = "LEX_ERR_AIWORK_037"

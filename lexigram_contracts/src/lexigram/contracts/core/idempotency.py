"""Do something once per key, and remember the outcome for those who ask again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Result


class IdempotencyError(LexigramError):
    """The idempotency store could not be read or written."""

    code = "LEX_ERR_IDEM_001"


class IdempotencyStatus(StrEnum):
    """Whether the work behind a key is still going on."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


@dataclass(frozen=True)
class IdempotencyRecord:
    """What is known about one key."""

    key: str
    status: IdempotencyStatus
    created_at: datetime
    expires_at: datetime | None = None
    value: Any = None


@runtime_checkable
class IdempotencyStoreProtocol(Protocol):
    """Keys, who claimed them first, and the stored outcome.

    Durable as far as the backend is. A key whose ``ttl`` is over is as if it had never been
    seen. No method raises for a failing backend: it returns ``Err(IdempotencyError)``.
    """

    async def acquire(self, key: str, ttl: float | None = None) -> Result[bool, IdempotencyError]:
        """Claim the key: ``Ok(True)`` for exactly one of all concurrent callers.

        A second call, also by the same caller, is ``Ok(False)`` until the key is deleted or
        expires; so a claimer that may crash should give a ``ttl``.
        """
        ...

    async def set(
        self, key: str, value: Any, ttl: float | None = None
    ) -> Result[None, IdempotencyError]:
        """Store the outcome and mark the key COMPLETED, whether or not it was claimed.

        A second call replaces the outcome. Without ``ttl`` it is kept for ever.
        """
        ...

    async def get(self, key: str) -> Result[Any, IdempotencyError]:
        """The stored outcome; ``Ok(None)`` for an unknown key and for one in progress.

        Use ``get_record`` where an outcome may itself be None.
        """
        ...

    async def get_record(self, key: str) -> Result[IdempotencyRecord | None, IdempotencyError]:
        """Everything known about the key, or ``Ok(None)``."""
        ...

    async def delete(self, key: str) -> Result[bool, IdempotencyError]:
        """Forget the key, so that it can be claimed again; ``Ok(False)`` when unknown."""
        ...

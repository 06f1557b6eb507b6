"""An outcome that cannot be encoded is refused, and the claim stays."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.idempotency import (
    IdempotencyError,
    IdempotencyStatus,
    IdempotencyStoreProtocol,
)
from lexigram.testing.conformance.idempotency.spec import IdempotencyCapability, IdempotencySpec


class RefusalSpec(IdempotencySpec, capability=IdempotencyCapability.REFUSAL):
    """set with a value the backend cannot store."""

    async def test_the_refusal_is_an_err_and_the_key_stays_in_progress(
        self, subject: IdempotencyStoreProtocol, unencodable: Any
    ) -> None:
        await subject.acquire("key")
        error = (await subject.set("key", unencodable)).unwrap_err()
        assert isinstance(error, IdempotencyError)
        record = (await subject.get_record("key")).unwrap()
        assert record is not None
        assert record.status is IdempotencyStatus.IN_PROGRESS

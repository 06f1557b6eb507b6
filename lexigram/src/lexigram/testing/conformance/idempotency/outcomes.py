"""The outcome is remembered for those who ask again."""

from __future__ import annotations

from typing import Any

import pytest

from lexigram.contracts.core.idempotency import IdempotencyStatus, IdempotencyStoreProtocol
from lexigram.contracts.core.result import Ok
from lexigram.testing.conformance.idempotency.spec import IdempotencyCapability, IdempotencySpec


class OutcomesSpec(IdempotencySpec, capability=IdempotencyCapability.OUTCOMES):
    """set, get and get_record."""

    @pytest.mark.parametrize("value", ["text", 1, 1.5, True, [1, {"a": None}], {}], ids=repr)
    async def test_an_outcome_comes_back(
        self, subject: IdempotencyStoreProtocol, value: Any
    ) -> None:
        await subject.acquire("key")
        assert await subject.set("key", value) == Ok(None)
        assert await subject.get("key") == Ok(value)
        record = (await subject.get_record("key")).unwrap()
        assert record is not None
        assert (record.status, record.value) == (IdempotencyStatus.COMPLETED, value)

    async def test_none_is_an_outcome(self, subject: IdempotencyStoreProtocol) -> None:
        await subject.set("key", None)
        record = (await subject.get_record("key")).unwrap()
        assert record is not None
        assert (record.status, record.value) == (IdempotencyStatus.COMPLETED, None)

    async def test_the_moment_of_the_claim_stays_and_without_a_ttl_there_is_no_end(
        self, subject: IdempotencyStoreProtocol
    ) -> None:
        await subject.acquire("key", 60.0)
        claimed = (await subject.get_record("key")).unwrap()
        await subject.set("key", 1)
        completed = (await subject.get_record("key")).unwrap()
        assert claimed is not None
        assert completed is not None
        assert completed.created_at == claimed.created_at
        assert completed.expires_at is None

    async def test_a_completed_key_is_not_claimed_again(
        self, subject: IdempotencyStoreProtocol
    ) -> None:
        await subject.set("key", 1)
        assert await subject.acquire("key") == Ok(False)
        assert await subject.get("key") == Ok(1)

    async def test_a_second_outcome_replaces_the_first(
        self, subject: IdempotencyStoreProtocol
    ) -> None:
        await subject.set("key", 1)
        await subject.set("key", 2)
        assert await subject.get("key") == Ok(2)

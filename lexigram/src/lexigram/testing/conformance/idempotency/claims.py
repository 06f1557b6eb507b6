"""A key is claimed once."""

from __future__ import annotations

import anyio

from lexigram.contracts.core.idempotency import IdempotencyStatus, IdempotencyStoreProtocol
from lexigram.contracts.core.result import Ok
from lexigram.testing.conformance.idempotency.spec import IdempotencyCapability, IdempotencySpec


class ClaimsSpec(IdempotencySpec, capability=IdempotencyCapability.CLAIMS):
    """acquire and delete."""

    async def test_the_first_claims_and_the_second_does_not(
        self, subject: IdempotencyStoreProtocol
    ) -> None:
        assert await subject.acquire("key") == Ok(True)
        assert await subject.acquire("key") == Ok(False)
        assert await subject.acquire("other") == Ok(True)

    async def test_one_of_many_claims(self, subject: IdempotencyStoreProtocol) -> None:
        claims: list[bool] = []

        async def claim() -> None:
            claims.append((await subject.acquire("key", 60.0)).unwrap())

        async with anyio.create_task_group() as tasks:
            for _ in range(30):
                tasks.start_soon(claim)
        assert claims.count(True) == 1

    async def test_a_claimed_key_is_in_progress_and_has_no_outcome(
        self, subject: IdempotencyStoreProtocol
    ) -> None:
        await subject.acquire("key", 60.0)
        record = (await subject.get_record("key")).unwrap()
        assert record is not None
        assert (record.key, record.status) == ("key", IdempotencyStatus.IN_PROGRESS)
        assert record.expires_at is not None
        assert record.created_at < record.expires_at
        assert await subject.get("key") == Ok(None)

    async def test_a_deleted_key_can_be_claimed_again(
        self, subject: IdempotencyStoreProtocol
    ) -> None:
        await subject.acquire("key")
        assert await subject.delete("key") == Ok(True)
        assert await subject.delete("key") == Ok(False)
        assert await subject.acquire("key") == Ok(True)

    async def test_an_unknown_key_is_none(self, subject: IdempotencyStoreProtocol) -> None:
        assert await subject.get("key") == Ok(None)
        assert await subject.get_record("key") == Ok(None)

    async def test_what_is_no_key_or_ttl_is_an_err(self, subject: IdempotencyStoreProtocol) -> None:
        assert (await subject.acquire("")).is_err()
        assert (await subject.acquire("key", 0)).is_err()
        assert (await subject.set("key", 1, -1.0)).is_err()
        assert await subject.acquire("key") == Ok(True)

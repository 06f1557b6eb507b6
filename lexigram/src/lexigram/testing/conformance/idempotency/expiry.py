"""A key whose time is over was never seen."""

from __future__ import annotations

from lexigram.contracts.core.idempotency import IdempotencyStatus, IdempotencyStoreProtocol
from lexigram.contracts.core.result import Ok
from lexigram.testing.conformance.backed import Elapse
from lexigram.testing.conformance.idempotency.spec import IdempotencyCapability, IdempotencySpec

SHORT = 0.2  # seconds, which really pass on most backends
LONGER = 0.3
LONG = 60.0


class ExpirySpec(IdempotencySpec, capability=IdempotencyCapability.EXPIRY):
    """The ``ttl``."""

    async def test_an_expired_claim_can_be_made_again(
        self, subject: IdempotencyStoreProtocol, elapse: Elapse
    ) -> None:
        await subject.acquire("key", SHORT)
        await elapse(LONGER)
        assert await subject.get_record("key") == Ok(None)
        assert await subject.delete("key") == Ok(False)
        await subject.acquire("key", SHORT)
        await elapse(LONGER)
        assert await subject.acquire("key") == Ok(True)

    async def test_an_expired_outcome_is_forgotten(
        self, subject: IdempotencyStoreProtocol, elapse: Elapse
    ) -> None:
        await subject.set("key", 1, SHORT)
        await elapse(LONGER)
        assert await subject.get("key") == Ok(None)
        assert await subject.acquire("key") == Ok(True)
        record = (await subject.get_record("key")).unwrap()
        assert record is not None
        assert record.status is IdempotencyStatus.IN_PROGRESS

    async def test_the_outcome_has_its_own_ttl(
        self, subject: IdempotencyStoreProtocol, elapse: Elapse
    ) -> None:
        await subject.acquire("key", SHORT)
        await subject.set("key", 1, LONG)
        await subject.acquire("for ever", SHORT)
        await subject.set("for ever", 2)
        await elapse(LONGER)
        assert await subject.get("key") == Ok(1)
        assert await subject.get("for ever") == Ok(2)

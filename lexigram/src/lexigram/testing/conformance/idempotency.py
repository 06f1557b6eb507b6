"""The conformance suite of IdempotencyStoreProtocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import StrEnum
from threading import Lock
from typing import Any

import anyio
import pytest

from lexigram.contracts.core.idempotency import (
    IdempotencyError,
    IdempotencyStatus,
    IdempotencyStoreProtocol,
)
from lexigram.contracts.core.result import Ok, Result
from lexigram.testing.conformance.backed import BackedSuite, Elapse, enter

__all__ = ["IdempotencyCapability", "IdempotencyConformance"]


class IdempotencyCapability(StrEnum):
    """What an idempotency store can do. The first three are the core."""

    CLAIMS = "claims"
    OUTCOMES = "outcomes"
    EXPIRY = "expiry"
    REFUSAL = "refusal"  # what cannot be encoded is an Err; fixture `unencodable`
    OUTAGE = "outage"  # the test can break the backend; fixture `outage`


class IdempotencySpec(BackedSuite):
    """The contract and the core."""

    contract = IdempotencyStoreProtocol
    core = frozenset(
        {
            IdempotencyCapability.CLAIMS,
            IdempotencyCapability.OUTCOMES,
            IdempotencyCapability.EXPIRY,
        }
    )

    @pytest.fixture
    def unencodable(self, subject: IdempotencyStoreProtocol) -> Any:
        """A value the backend cannot store."""
        return Lock()


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


Call = Callable[[IdempotencyStoreProtocol], Awaitable[Result[Any, IdempotencyError]]]

CALLS: dict[str, Call] = {
    "acquire": lambda store: store.acquire("key"),
    "set": lambda store: store.set("key", 1),
    "get": lambda store: store.get("key"),
    "get_record": lambda store: store.get_record("key"),
    "delete": lambda store: store.delete("key"),
}


class OutageSpec(IdempotencySpec, capability=IdempotencyCapability.OUTAGE):
    """Every method while the backend is down, and after."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    async def test_every_call_returns_an_err_and_works_again_afterwards(
        self, subject: IdempotencyStoreProtocol, outage: Callable[[], Any], call: Call
    ) -> None:
        async with AsyncExitStack() as stack:
            await enter(stack, outage())
            assert isinstance((await call(subject)).unwrap_err(), IdempotencyError)
        assert (await call(subject)).is_ok()


class IdempotencyConformance(ClaimsSpec, OutcomesSpec, ExpirySpec, RefusalSpec, OutageSpec):
    """Run it on a store: ``conformance_suite(IdempotencyConformance, MyStore)``."""

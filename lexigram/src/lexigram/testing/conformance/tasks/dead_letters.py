"""What a store of dead letters promises."""

from __future__ import annotations

from typing import Any

import pytest

from lexigram.contracts.infra.tasks import DLQProtocol
from lexigram.testing.conformance.suite import ConformanceSuite


class DLQConformance(ConformanceSuite):
    """Run it on dead letters: ``conformance_suite(DLQConformance, MyLetters)``."""

    contract = DLQProtocol

    @pytest.fixture
    def payload(self, subject: Any) -> Any:
        """Something that these dead letters can hold."""
        return {"name": "work", "kwargs": {"n": 1}}

    async def test_a_dead_letter_is_kept_with_its_facts(self, subject: Any, payload: Any) -> None:
        await subject.add("m", payload, "too often", {"topic": "orders", "n": 3})
        entry = await subject.get("m")
        assert (entry.message_id, entry.reason) == ("m", "too often")
        assert entry.payload["name"] == payload["name"]
        assert entry.payload["kwargs"] == payload["kwargs"]
        assert entry.metadata == {"topic": "orders", "n": 3}
        assert entry.failed_at.tzinfo is not None

    async def test_an_unknown_dead_letter_is_none_and_cannot_be_retried_or_purged(
        self, subject: Any
    ) -> None:
        assert await subject.get("m") is None
        assert await subject.retry("m") is False
        assert await subject.purge("m") is False

    async def test_a_second_dead_letter_of_an_id_replaces_the_first(
        self, subject: Any, payload: Any
    ) -> None:
        await subject.add("m", payload, "first")
        await subject.add("m", {**payload, "kwargs": {"n": 2}}, "second")
        entry = await subject.get("m")
        assert (entry.reason, entry.payload["kwargs"]) == ("second", {"n": 2})
        assert await subject.size() == 1

    async def test_dead_letters_are_listed_latest_first_in_pages(
        self, subject: Any, payload: Any
    ) -> None:
        for name in ("a", "b", "c"):
            await subject.add(name, payload, "no")
        listed = [entry.message_id for entry in await subject.list_failed()]
        assert listed == ["c", "b", "a"]
        page = [entry.message_id for entry in await subject.list_failed(limit=1, offset=1)]
        assert page == ["b"]

    async def test_a_retried_dead_letter_is_gone(self, subject: Any, payload: Any) -> None:
        await subject.add("m", payload, "no")
        assert await subject.retry("m") is True
        assert await subject.get("m") is None
        assert await subject.size() == 0
        assert await subject.retry("m") is False

    async def test_purging_drops_one_and_clearing_all(self, subject: Any, payload: Any) -> None:
        for name in ("a", "b", "c"):
            await subject.add(name, payload, "no")
        assert await subject.purge("b") is True
        assert await subject.size() == 2
        assert await subject.clear() == 2
        assert await subject.clear() == 0
        assert list(await subject.list_failed()) == []

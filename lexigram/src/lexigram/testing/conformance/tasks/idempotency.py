"""What a manager of idempotency keys promises."""

from __future__ import annotations

from typing import Any

import anyio

from lexigram.contracts.infra.tasks import IdempotencyManagerProtocol
from lexigram.testing.conformance.suite import ConformanceSuite
from lexigram.testing.conformance.tasks.spec import HANG_GUARD_SECONDS


class IdempotencyConformance(ConformanceSuite):
    """Run it on a manager: ``conformance_suite(IdempotencyConformance, MyManager)``."""

    contract = IdempotencyManagerProtocol

    async def test_the_same_input_gives_the_same_key(self, subject: Any) -> None:
        key = subject.generate_key("pay", {"a": 1, "b": [1, {"c": "x"}]})
        assert key == subject.generate_key("pay", {"b": [1, {"c": "x"}], "a": 1})
        others = {
            subject.generate_key("pay", {"a": 1, "b": [1, {"c": "y"}]}),
            subject.generate_key("refund", {"a": 1, "b": [1, {"c": "x"}]}),
            subject.generate_key("pay", {}),
        }
        assert len(others | {key}) == 4

    async def test_a_key_of_the_client_counts_alone(self, subject: Any) -> None:
        key = subject.generate_key("pay", {"a": 1}, "mine")
        assert key == subject.generate_key("pay", {"a": 2}, "mine")
        assert key != subject.generate_key("pay", {"a": 1}, "yours")
        assert key != subject.generate_key("refund", {"a": 1}, "mine")

    async def test_an_unknown_key_is_no_duplicate(self, subject: Any) -> None:
        assert await subject.check_duplicate("k") is None

    async def test_a_submission_is_known_with_its_task(self, subject: Any) -> None:
        assert await subject.record_submission("k", "t1", "pay", {}) is True
        found = await subject.check_duplicate("k")
        assert (found.task_id, found.idempotency_key, found.status) == ("t1", "k", "duplicate")
        assert found.result is None
        assert found.created_at.tzinfo is not None

    async def test_the_second_submission_loses_and_changes_nothing(self, subject: Any) -> None:
        await subject.record_submission("k", "t1", "pay", {})
        assert await subject.record_submission("k", "t2", "pay", {}) is False
        assert (await subject.check_duplicate("k")).task_id == "t1"

    async def test_exactly_one_of_many_at_once_wins(self, subject: Any) -> None:
        won: list[bool] = []

        async def submit(number: int) -> None:
            won.append(await subject.record_submission("k", f"t{number}", "pay", {}))

        with anyio.fail_after(HANG_GUARD_SECONDS):
            async with anyio.create_task_group() as tasks:
                for number in range(10):
                    tasks.start_soon(submit, number)
        assert sorted(won) == [False] * 9 + [True]

    async def test_a_result_is_kept_for_later_duplicates(self, subject: Any) -> None:
        await subject.record_submission("k", "t1", "pay", {})
        await subject.record_completion("k", {"paid": [1, 2]})
        found = await subject.check_duplicate("k")
        assert (found.status, found.result) == ("completed", {"paid": [1, 2]})
        await subject.record_completion("k", "other")
        assert (await subject.check_duplicate("k")).result == "other"

    async def test_completing_an_unknown_key_changes_nothing(self, subject: Any) -> None:
        await subject.record_completion("k", 1)
        assert await subject.check_duplicate("k") is None

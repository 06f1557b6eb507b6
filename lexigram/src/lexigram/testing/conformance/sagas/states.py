"""What is saved comes back."""

from __future__ import annotations

import pytest

from lexigram.contracts.workflow.protocols import SagaStoreProtocol
from lexigram.contracts.workflow.types import SagaState
from lexigram.testing.conformance.sagas.spec import SagaStoreCapability, SagaStoreSpec


class StatesSpec(SagaStoreSpec, capability=SagaStoreCapability.STATES):
    """save, load, delete."""

    async def test_an_unknown_saga_is_none(self, subject: SagaStoreProtocol) -> None:
        assert await subject.load("s") is None

    @pytest.mark.parametrize("state", list(SagaState))
    async def test_state_and_data_come_back_equal(
        self, subject: SagaStoreProtocol, state: SagaState
    ) -> None:
        data = {"done": ["a", "é\n'\""], "n": 1.5, "none": None, "deep": {"x": [1, True]}}
        await subject.save("s / 'x' é", state, data)
        assert await subject.load("s / 'x' é") == (state, data)

    async def test_a_second_save_replaces_both(self, subject: SagaStoreProtocol) -> None:
        await subject.save("s", SagaState.RUNNING, {"a": 1})
        await subject.save("s", SagaState.FAILED, {"b": 2})
        assert await subject.load("s") == (SagaState.FAILED, {"b": 2})

    async def test_what_the_caller_changes_later_is_not_stored(
        self, subject: SagaStoreProtocol
    ) -> None:
        data = {"done": ["a"]}
        await subject.save("s", SagaState.RUNNING, data)
        data["done"].append("b")
        loaded = await subject.load("s")
        assert loaded is not None
        assert loaded[1] == {"done": ["a"]}
        loaded[1]["done"].append("c")
        assert await subject.load("s") == (SagaState.RUNNING, {"done": ["a"]})

    async def test_data_that_is_not_json_is_refused_and_the_old_stays(
        self, subject: SagaStoreProtocol
    ) -> None:
        await subject.save("s", SagaState.RUNNING, {"a": 1})
        with pytest.raises(ValueError):  # noqa: PT011 - any kind of it
            await subject.save("s", SagaState.FAILED, {"a": object()})
        assert await subject.load("s") == (SagaState.RUNNING, {"a": 1})

    async def test_a_deleted_saga_is_gone_and_deleting_again_is_fine(
        self, subject: SagaStoreProtocol
    ) -> None:
        await subject.save("s", SagaState.RUNNING, {})
        await subject.delete("s")
        await subject.delete("s")
        assert await subject.load("s") is None

"""The conformance suite of SagaStoreProtocol, and of stores that lend sagas."""

from __future__ import annotations

from enum import StrEnum

import anyio
import pytest

from lexigram.contracts.workflow.errors import SagaBusyError
from lexigram.contracts.workflow.protocols import SagaStoreProtocol
from lexigram.contracts.workflow.sagas import LeasingSagaStoreProtocol
from lexigram.contracts.workflow.types import SagaState
from lexigram.testing.conformance.suite import ConformanceSuite

__all__ = ["SagaStoreCapability", "SagaStoreConformance"]


class SagaStoreCapability(StrEnum):
    """What a store can do; only the first is the core."""

    STATES = "states"  # save, load, delete
    LEASES = "leases"  # one owner at a time: LeasingSagaStoreProtocol
    SHARING = "sharing"  # other processes see it; with leases; fixture `neighbour`


class SagaStoreSpec(ConformanceSuite):
    """The contract and the core."""

    contract = SagaStoreProtocol
    core = frozenset({SagaStoreCapability.STATES})

    @pytest.fixture
    def neighbour(self, subject: LeasingSagaStoreProtocol) -> LeasingSagaStoreProtocol:
        """Another store object on the same place, as another process would have."""
        pytest.fail("declares 'sharing' but gives no fixture `neighbour`", pytrace=False)


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


LONG = 600.0
OVER = 1e-6  # a lease that ended before anybody can ask


class LeasesSpec(SagaStoreSpec, capability=SagaStoreCapability.LEASES):
    """claim, save_owned, renew, release, unfinished."""

    async def test_the_store_satisfies_the_leasing_contract(
        self, subject: LeasingSagaStoreProtocol
    ) -> None:
        assert isinstance(subject, LeasingSagaStoreProtocol)

    async def test_a_claim_makes_the_saga_only_when_asked(
        self, subject: LeasingSagaStoreProtocol
    ) -> None:
        assert await subject.claim("s", "a", LONG, create=False) is None
        assert await subject.load("s") is None
        claimed = await subject.claim("s", "a", LONG)
        assert claimed is not None
        assert (claimed.state, claimed.data, claimed.owner) == (SagaState.PENDING, {}, "a")

    async def test_a_claim_gives_what_is_stored(self, subject: LeasingSagaStoreProtocol) -> None:
        await subject.save("s", SagaState.RUNNING, {"done": ["x"]})
        claimed = await subject.claim("s", "a", LONG)
        assert claimed is not None
        assert (claimed.state, claimed.data) == (SagaState.RUNNING, {"done": ["x"]})

    async def test_nobody_else_gets_it_while_the_lease_runs(
        self, subject: LeasingSagaStoreProtocol
    ) -> None:
        await subject.claim("s", "a", LONG)
        with pytest.raises(SagaBusyError) as refused:
            await subject.claim("s", "b", LONG)
        assert refused.value.owner == "a"
        assert await subject.claim("s", "a", LONG) is not None

    async def test_a_lease_that_is_over_can_be_taken(
        self, subject: LeasingSagaStoreProtocol
    ) -> None:
        await subject.claim("s", "a", OVER)
        await anyio.sleep(0.001)
        claimed = await subject.claim("s", "b", LONG)
        assert claimed is not None
        assert claimed.owner == "b"

    async def test_whoever_lost_it_writes_nothing(self, subject: LeasingSagaStoreProtocol) -> None:
        await subject.claim("s", "a", LONG)
        await subject.claim("s", "b", LONG, take_over=True)
        with pytest.raises(SagaBusyError):
            await subject.save_owned("s", SagaState.FAILED, {"by": "a"}, "a", LONG)
        assert await subject.renew("s", "a", LONG) is False
        await subject.release("s", "a")
        await subject.save_owned("s", SagaState.RUNNING, {"by": "b"}, "b", LONG)
        assert await subject.load("s") == (SagaState.RUNNING, {"by": "b"})

    async def test_an_unknown_saga_cannot_be_saved_by_an_owner(
        self, subject: LeasingSagaStoreProtocol
    ) -> None:
        with pytest.raises(SagaBusyError):
            await subject.save_owned("s", SagaState.RUNNING, {}, "a", LONG)
        assert await subject.renew("s", "a", LONG) is False
        await subject.release("s", "a")

    async def test_a_lease_that_ran_out_is_held_until_somebody_takes_it(
        self, subject: LeasingSagaStoreProtocol
    ) -> None:
        await subject.claim("s", "a", OVER)
        await anyio.sleep(0.001)
        await subject.save_owned("s", SagaState.RUNNING, {}, "a", LONG)
        with pytest.raises(SagaBusyError):
            await subject.claim("s", "b", LONG)

    async def test_the_last_save_or_a_release_gives_it_back(
        self, subject: LeasingSagaStoreProtocol
    ) -> None:
        await subject.claim("s", "a", LONG)
        await subject.save_owned("s", SagaState.COMPLETED, {}, "a", None)
        await subject.claim("s", "b", LONG)
        await subject.release("s", "b")
        claimed = await subject.claim("s", "c", LONG)
        assert claimed is not None
        assert claimed.owner == "c"

    async def test_of_many_who_claim_one_wins(self, subject: LeasingSagaStoreProtocol) -> None:
        won: list[str] = []

        async def claim(owner: str) -> None:
            try:
                await subject.claim("s", owner, LONG)
            except SagaBusyError:
                return
            won.append(owner)

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(claim, f"o{number}")
        assert len(won) == 1

    async def test_sagas_that_were_cut_off_are_found_oldest_first(
        self, subject: LeasingSagaStoreProtocol
    ) -> None:
        for state in SagaState:
            await subject.save(state.value, state, {})
        await subject.save("held", SagaState.RUNNING, {})
        await subject.claim("held", "a", LONG)
        found = await subject.unfinished()
        assert [saga.saga_id for saga in found] == ["running", "compensating"]
        assert len(await subject.unfinished(limit=1)) == 1


class SharingSpec(SagaStoreSpec, capability=SagaStoreCapability.SHARING):
    """Two store objects on one place."""

    async def test_the_other_sees_state_and_lease(
        self, subject: LeasingSagaStoreProtocol, neighbour: LeasingSagaStoreProtocol
    ) -> None:
        await subject.claim("s", "a", LONG)
        await subject.save_owned("s", SagaState.RUNNING, {"n": 1}, "a", LONG)
        assert await neighbour.load("s") == (SagaState.RUNNING, {"n": 1})
        with pytest.raises(SagaBusyError):
            await neighbour.claim("s", "b", LONG)
        await neighbour.claim("s", "b", LONG, take_over=True)
        with pytest.raises(SagaBusyError):
            await subject.save_owned("s", SagaState.FAILED, {}, "a", LONG)


class SagaStoreConformance(StatesSpec, LeasesSpec, SharingSpec):
    """Run it on a store: ``conformance_suite(SagaStoreConformance, MyStore)``."""

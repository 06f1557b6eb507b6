"""What the specs of the saga store contract share."""

from __future__ import annotations

from enum import StrEnum

import pytest

from lexigram.contracts.workflow.protocols import SagaStoreProtocol
from lexigram.contracts.workflow.sagas import LeasingSagaStoreProtocol
from lexigram.testing.conformance.suite import ConformanceSuite


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

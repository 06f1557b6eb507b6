"""What the specs of the state persistence contract share."""

from __future__ import annotations

from enum import StrEnum

import pytest

from lexigram.contracts.workflow.protocols import StatePersistenceProtocol
from lexigram.testing.conformance.suite import ConformanceSuite


class StatePersistenceCapability(StrEnum):
    """What a persistence can do; all but the last are the core."""

    HISTORY = "history"  # append, load
    VERSIONS = "versions"  # of two writers one wins
    SHARING = "sharing"  # other processes see it; fixture `neighbour`


class StatePersistenceSpec(ConformanceSuite):
    """The contract and the core."""

    contract = StatePersistenceProtocol
    core = frozenset(StatePersistenceCapability) - {StatePersistenceCapability.SHARING}

    @pytest.fixture
    def neighbour(self, subject: StatePersistenceProtocol) -> StatePersistenceProtocol:
        """Another object on the same place, as another process would have."""
        pytest.fail("declares 'sharing' but gives no fixture `neighbour`", pytrace=False)

"""What the specs of the queue contract share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any
from uuid import uuid4

import anyio
import pytest

from lexigram.contracts.queue import BusMessage, QueueProtocol
from lexigram.testing.conformance.suite import ConformanceSuite

HANG_GUARD_SECONDS = 60.0  # reaching it means that it never comes
SOON = 0.2  # seconds to wait for what must not come


class QueueCapability(StrEnum):
    """What a queue can do. The first six are the core."""

    DELIVERY = "delivery"  # what is published is handled
    GROUPS = "groups"  # every group gets all, members share
    RETRY = "retry"  # a failed message comes again
    STOPPING = "stopping"  # close finishes or keeps what is in flight
    HEALTH = "health"
    REFUSAL = "refusal"  # what no broker can be given is refused when it is published
    BACKLOG = "backlog"  # what is published before the first subscriber is kept
    PATTERN = "pattern"  # subscribe by pattern
    FIELDS = "fields"  # every field of a message survives
    SHARING = "sharing"  # a second queue on the same broker; fixture `neighbour`


class QueueSpec(ConformanceSuite):
    """The contract, the core, and handlers that remember.

    The factory gives a connected queue on a place of its own, with short delays between
    retries, and closes it.
    """

    contract = QueueProtocol
    core = frozenset(
        {
            QueueCapability.DELIVERY,
            QueueCapability.GROUPS,
            QueueCapability.RETRY,
            QueueCapability.STOPPING,
            QueueCapability.HEALTH,
            QueueCapability.REFUSAL,
        }
    )

    @pytest.fixture
    def topic(self) -> str:
        """A topic no other test uses."""
        return f"orders.{uuid4().hex[:12]}"

    @pytest.fixture
    def neighbour(self, subject: QueueProtocol) -> QueueProtocol:
        """Another queue, not connected yet, on the same broker: as in another process."""
        pytest.fail("declares 'sharing' but gives no fixture `neighbour`", pytrace=False)


class Collector:
    """A handler that keeps the messages it gets; the first ``failures`` calls raise."""

    def __init__(self, failures: int = 0) -> None:
        self.messages: list[BusMessage] = []
        self.calls = 0
        self._failures = failures

    async def __call__(self, message: BusMessage) -> None:
        """Handle one message."""
        self.calls += 1
        if self.calls <= self._failures:
            raise ValueError(f"failure {self.calls}")
        self.messages.append(message)

    @property
    def payloads(self) -> list[Any]:
        """What was handled, in order."""
        return [message.payload for message in self.messages]


async def until(state: Callable[[], bool]) -> None:
    """Wait for a state; a hang is a failure."""
    with anyio.move_on_after(HANG_GUARD_SECONDS):
        while not state():  # noqa: ASYNC110 - queues have no notification for it
            await anyio.sleep(0.005)
    assert state()

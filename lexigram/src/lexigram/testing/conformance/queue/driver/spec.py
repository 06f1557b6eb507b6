"""What the specs of the driver contract share."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import anyio
import pytest

from lexigram.contracts.queue import (
    CORE_CAPABILITIES,
    BusMessage,
    Delivery,
    QueueDriverProtocol,
)
from lexigram.testing.conformance.suite import ConformanceSuite

HANG_GUARD_SECONDS = 60.0  # reaching it means that the message never comes
SOON = 0.2  # seconds to wait for what must not come
DELAY = 0.4  # seconds; a driver may round up

Driver: TypeAlias = QueueDriverProtocol
Elapse: TypeAlias = Callable[[float], Awaitable[None]]
Found = TypeVar("Found")


class DriverSpec(ConformanceSuite):
    """The contract, the core, a second member, and how a test lets time pass.

    The factory gives a connected driver on a place of its own on the broker (database, prefix,
    vhost, stream), empty at every test, with a short visibility_timeout (1 to 3 s), and cleans
    up after it.
    """

    contract = QueueDriverProtocol
    core = CORE_CAPABILITIES

    @pytest.fixture
    def neighbour(self, subject: Driver) -> Driver:
        """Another driver, not connected yet, on the same place: as in another process."""
        pytest.fail("give the fixture `neighbour`: a second driver on the same place", False)

    @pytest.fixture
    def max_backlog(self, subject: Driver) -> int:
        """How many messages a topic without a group holds: 250 to 1000, for the tests' sake."""
        pytest.fail("declares 'backlog' but gives no fixture `max_backlog`", False)

    @pytest.fixture
    def advance(self, subject: Driver) -> Callable[[float], Any]:
        """Lets seconds pass for the broker, plain or async; they really pass by default."""
        return anyio.sleep

    @pytest.fixture
    def wall_clock(self, subject: Driver) -> Callable[[], float]:
        """Seconds since 1970, by the clock that ``advance`` moves."""
        return time.time

    @pytest.fixture
    async def peer(self, neighbour: Driver) -> AsyncIterator[Driver]:
        """The second member, connected."""
        await neighbour.connect()
        yield neighbour
        await neighbour.close()

    @pytest.fixture
    def topic(self) -> str:
        """A topic no other test uses."""
        return f"orders.{uuid4().hex[:12]}"

    @pytest.fixture
    def elapse(self, advance: Callable[[float], Any]) -> Elapse:
        """``advance``, always to be awaited."""

        async def elapse(seconds: float) -> None:
            done = advance(seconds)
            if inspect.isawaitable(done):
                await done

        return elapse


def message(topic: str, body: bytes = b"{}", **fields: Any) -> BusMessage:
    """A message as the runtime hands it to a driver."""
    return BusMessage(topic=topic, payload=body, **fields)


async def take(driver: Driver, topic: str, group: str, number: int = 1) -> list[Delivery]:
    """Receive exactly ``number`` deliveries; a hang is a failure."""
    taken: list[Delivery] = []
    with anyio.move_on_after(HANG_GUARD_SECONDS):
        while len(taken) < number:
            limit = number - len(taken)
            got = await driver.receive(topic, group, limit=limit, wait=0.5)
            assert len(got) <= limit, f"asked for {limit}, got {len(got)}"
            taken.extend(got)
    assert len(taken) == number, f"{len(taken)} of {number} messages came to {topic} / {group}"
    return taken


async def take_one(driver: Driver, topic: str, group: str) -> Delivery:
    """Receive one delivery."""
    return (await take(driver, topic, group))[0]


async def nothing_comes(driver: Driver, topic: str, group: str) -> None:
    """Fail when a delivery comes soon."""
    got = await driver.receive(topic, group, limit=10, wait=SOON)
    assert list(got) == [], f"{len(got)} unexpected: {[item.message.payload for item in got]}"


async def becomes(read: Callable[[], Awaitable[Found]], expected: Found) -> None:
    """Wait until a statistic has the expected value: brokers may report it late."""
    last: Found | None = None
    with anyio.move_on_after(HANG_GUARD_SECONDS):
        while (last := await read()) != expected:  # noqa: ASYNC110 - a broker has no notification for it
            await anyio.sleep(0.05)
    assert last == expected


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    """The payloads, in order."""
    return [delivery.message.payload for delivery in deliveries]

"""What the contestants on one broker share: the message, the counting, and the latency section."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from harness import Case, Plan, Section, Target, Work, measure

from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.headers import FAIRNESS_KEY
from lexigram.queue.bus import BusQueue

OURS = "lexigram"
BATCH = 100
PAYLOAD = {"id": 12345, "name": "Ada Lovelace", "tags": ["a", "b", "c"], "text": "x" * 180}
IDLE_MS = 0.4  # targets.md: above the raw client
FLOOD = 10_000  # messages of the noisy tenant


class Contestant:
    """Counts what is handled. ``publish`` is its own: one message, or a batch."""

    def __init__(self) -> None:
        self.handled, self.wanted = 0, 0
        self.done: asyncio.Future[int] | None = None

    def count(self) -> None:
        """One more was handled."""
        self.handled += 1
        if self.handled >= self.wanted and self.done is not None and not self.done.done():
            self.done.set_result(time.perf_counter_ns())

    async def send(self) -> None:
        """Publish one; for those that know no batches."""
        raise NotImplementedError

    async def publish(self, number: int) -> None:
        """As many as that, all confirmed."""
        await asyncio.gather(*(self.send() for _ in range(number)))

    async def flow(self, loops: int) -> int:
        """Nanoseconds from the first publish to the last handler."""
        self.handled, self.wanted = 0, loops
        self.done = asyncio.get_running_loop().create_future()
        start = time.perf_counter_ns()
        for _ in range(0, loops, BATCH):
            await self.publish(BATCH)
        return await self.done - start

    async def one(self) -> int:
        """Nanoseconds from a publish to its handler."""
        self.handled, self.wanted = 0, 1
        self.done = asyncio.get_running_loop().create_future()
        start = time.perf_counter_ns()
        await self.publish(1)
        return await self.done - start


async def ours(queue: BusQueue) -> Contestant:
    """Our bus on any driver, with a handler that counts."""

    class Ours(Contestant):
        async def publish(self, number: int) -> None:
            if number == 1:
                await queue.publish("t", BusMessage(payload=PAYLOAD))
            else:
                await queue.publish_many("t", [BusMessage(payload=PAYLOAD) for _ in range(number)])

    made = Ours()

    async def handle(message: BusMessage) -> None:
        made.count()

    await queue.subscribe("t", handle)
    return made


def latencies(made: Mapping[str, Contestant], *, pause: float = 0.002) -> Work:
    """From publish to handler, each time after ``pause`` seconds of silence; the first is raw."""

    async def once(one: Contestant, loops: int) -> int:
        spent = 0
        for _ in range(loops):
            await asyncio.sleep(pause)
            spent += await one.one()
        return spent

    cases = [Case(who, lambda n, one=one: once(one, n), 20) for who, one in made.items()]
    return Work("publish to handler, idle", "ms", next(iter(made)), cases)


async def idle_latency(
    plan: Plan, broker: str, made: Mapping[str, Contestant], *, pause: float = 0.002
) -> Section:
    """The section of a broker whose first contestant is the raw client."""
    work = latencies(made, pause=pause)
    await measure([work], plan, rounds=plan.few(21))
    raw = work.case(next(iter(made)))
    assert raw is not None
    work.targets = {OURS: Target(raw.median / 1e6 + IDLE_MS)}
    return Section(
        f"{broker}, idle latency", f"Target: at most {IDLE_MS} ms more than raw.", [work]
    )


async def ten_behind(queue: BusQueue, late: str, flooding: str | None) -> float:
    """Seconds that ten messages of one tenant take, alone or behind many of another."""
    done, busy, left = asyncio.Event(), asyncio.Event(), 10

    async def handle(message: BusMessage) -> None:
        nonlocal left
        busy.set()
        await asyncio.sleep(0.02)
        if message.headers[FAIRNESS_KEY] == late:
            left -= 1
            if not left:
                done.set()

    if flooding:
        flood = [BusMessage(payload=0, headers={FAIRNESS_KEY: flooding}) for _ in range(FLOOD)]
        await queue.publish_many("t", flood)
    await queue.subscribe("t", handle)
    if flooding:
        await busy.wait()
    await asyncio.sleep(0.1)
    start = time.perf_counter()
    ten = [BusMessage(payload=1, headers={FAIRNESS_KEY: late}) for _ in range(10)]
    await queue.publish_many("t", ten)
    await done.wait()
    return time.perf_counter() - start


FAIRNESS = (
    "20 ms handlers, concurrency 4: what ten messages of one tenant take behind 10,000 of "
    "another, times what they take on an idle bus."
)


def fairness_row(title: str, ratios: list[Any]) -> list[str]:
    """A row of the table of fairness."""
    ratios = sorted(ratios)
    middle = ratios[len(ratios) // 2]
    verdict = "met" if middle <= 3 else "MISSED"
    return [title, f"{middle:.2f}x", f"{ratios[-1]:.2f}x", "≤ 3x", verdict]

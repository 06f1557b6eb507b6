"""Consumers on Kafka are killed and join, on librdkafka's mock cluster.

Nothing is lost, keys keep their order, what is settled does not come again, and only what a killed
process had in hand comes twice: a member that joins costs nothing.
"""

import os
import signal
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from tests.doubles.kafka.server import KafkaDouble
from tests.processes import Popen

from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.queue.backends.kafka import KafkaDriver

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(1800)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (15, 50_000) if FULL else (2, 2_000)
KEYS, BATCH = 40, 100
PACE = 0.1  # seconds between batches: messages flow as long as the group changes
AHEAD = 2_000  # messages sent before they are handled: the mock keeps 5 MB of a partition
STUCK_SECONDS = 120.0  # nothing at all happened
WORKER = Path(__file__).with_name("kafka_worker.py")


class Journal:
    """What the consumers wrote of one kind; each look reads only what is new."""

    def __init__(self, folder, kind):
        self.folder, self.kind = folder, kind
        self.events, self.names = [], set()
        self._read = defaultdict(int)

    def look(self):
        """(time, process, message id), as far as whole lines are there."""
        for file in self.folder.glob(f"{self.kind}.*"):
            process = int(file.suffix[1:])
            with file.open("rb") as lines:
                lines.seek(self._read[process])
                whole = lines.read().rpartition(b"\n")[0]
            self._read[process] += len(whole) + 1 if whole else 0
            for line in whole.decode().splitlines():
                at, name = line.split()
                self.events.append((int(at), process, name))
                self.names.add(name)
        return self

    def by_name(self):
        """The events of each message, by time."""
        found = defaultdict(list)
        for event in sorted(self.look().events):
            found[event[2]].append(event)
        return found


class Crowd:
    """Consumers in processes of their own, gone at its end."""

    def __init__(self, servers, folder):
        self.servers, self.folder = servers, folder
        self.living, self.killed = [], {}  # when each process was killed
        self.begun, self.ended, self.settled = (
            Journal(folder, kind) for kind in ("begun", "ended", "settled")
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.living:
            process.kill()
            process.wait()

    def kill(self, rng):
        victim = self.living.pop(rng.randrange(len(self.living)))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.killed[victim.pid] = time.monotonic_ns()

    def logs(self):
        return "".join(file.read_text()[-1500:] for file in self.folder.glob("log.*"))

    async def until(self, condition):
        """Wait for ``condition()``; fail when nothing at all happens for long."""
        last, since = -1, anyio.current_time()
        while not condition():
            now = len(self.begun.look().events)
            if now != last:
                last, since = now, anyio.current_time()
            assert anyio.current_time() - since < STUCK_SECONDS, self.logs()
            await anyio.sleep(0.1)

    def start(self):
        command = [sys.executable, str(WORKER), self.servers, str(self.folder)]
        with (self.folder / f"log.{len(self.living) + len(self.killed)}").open("wb") as log:
            self.living.append(Popen(command, stdout=log, stderr=log))
        return self.folder / f"begun.{self.living[-1].pid}"

    async def joined(self):
        """One more, until it has work: there are more partitions than members."""
        file = self.start()
        await self.until(lambda: file.exists() and file.stat().st_size > 0)

    async def joined_with(self, publisher):
        """One more, and messages for it."""
        await publisher.send()
        await self.joined()

    async def until_committed(self, driver):
        """Wait until the group has committed all that was sent."""
        with anyio.fail_after(STUCK_SECONDS):
            while await driver.depth("chaos", "chaos"):  # noqa: ASYNC110 - a broker tells nobody
                await anyio.sleep(0.1)

    async def replaced(self, publisher, rng):
        """Kill one; the others have all its keys when each key has gone on; then one joins."""
        self.kill(rng)
        number = publisher.sent
        wanted = {publisher.name(n) for n in range(number, number + KEYS)}
        await self.until(lambda: wanted <= self.begun.names)
        await self.joined()


class Publisher:
    """Sends until it is told to end, and at least MESSAGES."""

    def __init__(self, driver, crowd):
        self.driver, self.crowd = driver, crowd
        self.sent, self.may_end = 0, False

    def name(self, number):
        return f"{number % KEYS}:{number // KEYS}"

    async def run(self):
        while not self.may_end or self.sent < MESSAGES:
            await self.send()
            await anyio.sleep(PACE)
            if self.sent % 1000 == 0:
                await self.crowd.until(lambda: len(self.crowd.begun.names) > self.sent - AHEAD)

    async def send(self):
        await self.driver.publish_many(
            [self._message(n) for n in range(self.sent, self.sent + BATCH)]
        )
        self.sent += BATCH

    def _message(self, number):
        return BusMessage(
            id=self.name(number),
            topic="chaos",
            payload=b"{}",
            headers={ORDERING_KEY: f"key-{number % KEYS}"},
        )


async def test_three_consumers_are_killed_and_join_and_only_what_a_killed_one_held_comes_again(
    tmp_path, rng
):
    with KafkaDouble() as double, Crowd(double.servers, tmp_path) as crowd:
        driver = KafkaDriver(double.servers)
        await driver.connect()
        await driver.declare("chaos", "chaos")
        publisher = Publisher(driver, crowd)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publisher.run)
            for _ in range(3):
                await crowd.joined()
            for _ in range(KILLS):
                await crowd.replaced(publisher, rng)
            publisher.may_end = True
        sent = publisher.sent
        await crowd.until(lambda: len(crowd.begun.names) == sent)
        await crowd.until_committed(driver)
        assert await driver.count_dead("chaos", "chaos") == 0
        await driver.close()
    begun, settled, ended = (
        journal.by_name() for journal in (crowd.begun, crowd.settled, crowd.ended)
    )
    repeats = sum(len(times) - 1 for times in begun.values())
    ages = ages_of_repeats(begun, ended, crowd.killed)
    print(
        f"{sent} messages, {len(crowd.killed)} kills, {repeats} came twice: {len(ages)} of them had "
        f"been handled, {sum(age > 0.2 for age in ages)} more than 0.2 s before the kill, "
        f"the first {max(ages, default=0):.2f} s before it"
    )

    # At least once.
    assert len(begun) == sent >= MESSAGES
    # No settled message is seen again.
    assert [name for name, times in begun.items() if _is_seen_again(times, settled[name])] == []
    # Only what a killed process had in hand came twice.
    assert [
        (name, process)
        for name, times in begun.items()
        for (_, process, _), _ in pairwise(times)
        if process not in crowd.killed
    ] == [], crowd.logs()
    # Of one key the next begins when the one before has ended: none left out, none overtaking.
    for name, times in begun.items():
        key, number = map(int, name.split(":"))
        if number:
            before = ended[f"{key}:{number - 1}"]
            assert before, f"{name} came, the one before it never ended"
            assert before[0][0] <= times[0][0], f"{name} did not wait for the one before it"


def ages_of_repeats(begun, ended, killed):
    """Seconds from the end of a handler to the kill, of each message that then came again."""
    return [
        (killed[process] - end) / 1e9
        for name, times in begun.items()
        for _, process, _ in times[:-1]
        for end, other, _ in ended[name]
        if other == process and process in killed
    ]


async def test_what_a_group_has_committed_does_not_come_again_after_a_kill(tmp_path, rng):
    """The offsets of the group are the state to wait for: no time is long or short enough."""
    with KafkaDouble() as double, Crowd(double.servers, tmp_path) as crowd:
        driver = KafkaDriver(double.servers)
        await driver.connect()
        await driver.declare("chaos", "chaos")
        publisher = Publisher(driver, crowd)
        await crowd.joined_with(publisher)
        await crowd.until_committed(driver)
        committed = publisher.sent
        crowd.kill(rng)
        await crowd.joined_with(publisher)
        await crowd.until_committed(driver)
        await driver.close()
    begun = crowd.begun.by_name()
    assert len(begun) == publisher.sent > committed > 0
    assert [n for n in map(publisher.name, range(committed)) if len(begun[n]) > 1] == []


def _is_seen_again(begun, settled):
    return bool(settled) and begun[-1][0] > settled[0][0]

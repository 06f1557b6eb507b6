"""Consumers on Kafka are killed and join, on librdkafka's mock cluster.

Nothing is lost, keys keep their order, and what is settled does not come again. The mock refuses
commits while members join, where real brokers take them: a member that gives up a partition at that
moment cannot settle what it has handled, and the next owner gets that part again.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
from tests.doubles.kafka.server import KafkaDouble

from lexigram.contracts.queue import BusMessage
from lexigram.contracts.queue.headers import ORDERING_KEY
from lexigram.queue.backends.kafka import KafkaDriver

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (15, 50_000) if FULL else (2, 2_000)
KEYS, BATCH = 40, 100
PACE = 0.1  # seconds between batches: messages flow as long as the group changes
AHEAD = 2_000  # messages sent before they are handled: the mock keeps 5 MB of a partition
PREFETCH = 50  # of the worker
JOIN_SECONDS = 10.0  # for a rebalance to be over
STUCK_SECONDS = 60.0
WORKER = Path(__file__).with_name("kafka_worker.py")


class Crowd:
    """Consumers in processes of their own, gone at its end."""

    def __init__(self, servers, folder):
        self.servers, self.folder = servers, folder
        self.living, self.killed = [], set()
        self._read = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.living:
            process.kill()
            process.wait()

    def join(self):
        log = (self.folder / f"log.{len(self.living) + len(self.killed)}").open("wb")
        command = [sys.executable, str(WORKER), self.servers, str(self.folder)]
        self.living.append(subprocess.Popen(command, stdout=log, stderr=log))
        log.close()

    def kill(self, rng):
        victim = self.living.pop(rng.randrange(len(self.living)))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.killed.add(victim.pid)

    def lines(self, kind):
        """(time, process, message id) of whole lines, by time."""
        found = []
        for file in self.folder.glob(f"{kind}.*"):
            process = int(file.suffix[1:])
            whole = file.read_bytes().rpartition(b"\n")[0].decode().splitlines()
            found += [(int(at), process, name) for at, name in (line.split() for line in whole)]
        return sorted(found)

    def begun(self):
        """The messages that were begun at least once."""
        return {name for _, _, name in self.lines("begun")}

    def works(self, process):
        file = self.folder / f"begun.{process.pid}"
        return file.exists() and file.stat().st_size > 0

    async def until(self, condition):
        """Wait for ``condition()``; fail when nothing at all happens for long."""
        last, since = -1, anyio.current_time()
        while not condition():
            now = sum(file.stat().st_size for file in self.folder.glob("begun.*"))
            if now != last:
                last, since = now, anyio.current_time()
            logs = "".join(file.read_text()[-1500:] for file in self.folder.glob("log.*"))
            assert anyio.current_time() - since < STUCK_SECONDS, logs
            await anyio.sleep(0.1)

    async def joined(self):
        self.join()
        newcomer, since = self.living[-1], anyio.current_time()
        # It may get partitions of topics for retries only: then no message comes to it.
        await self.until(
            lambda: self.works(newcomer) or anyio.current_time() - since > JOIN_SECONDS
        )

    async def replaced(self, publisher, rng):
        """Kill one; the others have all its keys when each key has gone on; then one joins."""
        self.kill(rng)
        number = publisher.sent
        wanted = {publisher.name(n) for n in range(number, number + KEYS)}
        await self.until(lambda: wanted <= self.begun())
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
            await self.driver.publish_many(
                [self._message(n) for n in range(self.sent, self.sent + BATCH)]
            )
            self.sent += BATCH
            await anyio.sleep(PACE)
            if self.sent % 1000 == 0:
                await self.crowd.until(lambda: len(self.crowd.begun()) > self.sent - AHEAD)

    def _message(self, number):
        return BusMessage(
            id=self.name(number),
            topic="chaos",
            payload=b"{}",
            headers={ORDERING_KEY: f"key-{number % KEYS}"},
        )


async def test_three_consumers_are_killed_and_join_and_settled_messages_do_not_come_again(
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
        await crowd.until(lambda: len(crowd.begun()) == sent)
        with anyio.fail_after(STUCK_SECONDS):
            while await driver.depth("chaos", "chaos"):  # noqa: ASYNC110 - a broker tells nobody
                await anyio.sleep(0.1)
        assert await driver.count_dead("chaos", "chaos") == 0
        await driver.close()
        begun, settled = crowd.lines("begun"), crowd.lines("settled")
        changes = len(crowd.living) + 2 * len(crowd.killed)  # all joined, some died

    # At least once.
    assert len({name for _, _, name in begun}) == sent >= MESSAGES
    # No settled message is seen again.
    first_settled = {}
    for at, _, name in settled:
        first_settled.setdefault(name, at)
    again = [name for at, _, name in begun if at > first_settled.get(name, at)]
    assert again == []
    # Only what was in hand at a change of the group came twice.
    repeated = [name for name, count in Counter(name for _, _, name in begun).items() if count > 1]
    assert len(repeated) <= changes * 3 * PREFETCH
    # A key goes on only where it was: nothing is left out, nothing overtakes.
    reached = Counter()
    for _, _, name in begun:
        key, number = map(int, name.split(":"))
        assert number <= reached[key], f"{name} came before {key}:{reached[key]}"
        reached[key] = max(reached[key], number + 1)

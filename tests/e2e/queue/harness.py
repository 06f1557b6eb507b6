"""Kill consumers while messages flow: one harness for every driver.

``Place`` says where (driver, URL, options of the driver's config class, topic); ``Crowd`` runs
publisher and consumers as processes and kills them. Tests wait on what was handled, never on time.
"""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import anyio
from tests.processes import Popen

from lexigram.contracts.queue import BusMessage

WORKER = Path(__file__).with_name("worker.py")
# Without any progress for so long, on a machine that does much else, something is lost. Who runs a
# test in a loop to find a rare defect sets less.
STUCK_SECONDS = float(os.environ.get("LEX_CHAOS_STUCK_SECONDS", "180"))


@dataclass
class Place:
    driver: str  # sql, redis, rabbitmq, nats, kafka, ...
    url: str
    folder: str
    messages: int
    topic: str = "chaos"
    options: dict = field(default_factory=dict)  # further fields of the driver's config class
    effects: str | None = None  # exactly once: the database with a table `effects (number)`
    visibility_timeout: float = 2.0
    work_seconds: float = 0.002  # what a handler takes, on average
    prefetch: int = 50
    concurrency: int = 8
    dies_after: int = 0  # of a relay: messages it publishes before it is killed
    guarantee: str | None = None  # of the consumers; None: as the queue has it
    max_retries: int = 3
    deadly: int = 0  # so many times message 0 kills the process that handles it
    max_deliveries: int = 20
    batch_size: int = 1


class Crowd:
    """``with Crowd(place) as crowd``: processes that are gone at its end.

    ``evidence`` says more about the broker than the bus knows; it is asked when nothing moves any
    more.
    """

    def __init__(self, place, evidence=None):
        self.place = place
        self.evidence: Callable[[], Awaitable[str]] | None = evidence
        self.folder = Path(place.folder)
        self.consumers = []
        self.everybody = []
        self._read = {}  # file -> (position, counter)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.everybody:
            process.kill()
            process.wait()

    def _start(self, work):
        log = (self.folder / f"log.{len(self.everybody)}").open("wb")
        command = [sys.executable, str(WORKER), work, json.dumps(asdict(self.place))]
        process = Popen(command, stdout=log, stderr=log)
        log.close()
        self.everybody.append(process)
        return process

    def publish(self):
        return self._start("publish")

    def relay(self):
        return self._start("relay")

    def consume(self, number=1):
        self.consumers += [self._start("consume") for _ in range(number)]

    def is_there(self):
        """Some consumer has declared the group: from now on nothing published is missed."""
        return any(self.folder.glob("ready.*"))

    def kill_one(self, rng):
        """SIGKILL a consumer at random, and start another in its place."""
        victim = self.consumers.pop(rng.randrange(len(self.consumers)))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.consume()

    def handled(self):
        """How often each number was handled; only what is new is read."""
        return self._numbers("handled.*")

    def confirmed(self):
        return set(self._numbers("confirmed"))

    def _numbers(self, pattern):
        total = Counter()
        for file in sorted(self.folder.glob(pattern)):
            position, found = self._read.setdefault(file, (0, Counter()))
            with file.open("rb") as lines:
                lines.seek(position)
                new = lines.read()
            whole = new[: new.rfind(b"\n") + 1]
            found.update(int(line) for line in whole.split())
            self._read[file] = (position + len(whole), found)
            total.update(found)
        return total

    async def until(self, condition):
        """Wait for ``condition()``; fail when nothing at all happens for long."""
        last, since = None, anyio.current_time()
        while not condition():
            now = (sum(self.handled().values()), len(self.confirmed()), len(self.everybody))
            if now != last:
                last, since = now, anyio.current_time()
            assert anyio.current_time() - since < STUCK_SECONDS, await self.story()
            await anyio.sleep(0.02)

    async def story(self):
        lost = sorted(set(range(self.place.messages)) - set(self.handled()))
        logs = "\n".join(
            f"{file.name}: {file.read_text(errors='replace')[-2000:]}"
            for file in sorted(self.folder.glob("log.*"))
        )
        found = await anyio.to_thread.run_sync(self._ask_the_bus)
        more = "" if self.evidence is None else await self.evidence()
        return (
            f"no progress: {len(self.confirmed())} confirmed, {len(lost)} never handled, "
            f"such as {lost[:10]}\n{logs[-8000:]}\n{found}\n{more}"
        )

    def _ask_the_bus(self):
        """Its statistics and its dead letters, from a process of its own."""
        asking = self._start("tell")
        asking.wait()
        said = self.folder / f"log.{len(self.everybody) - 1}"
        return said.read_text(errors="replace")[-4000:]


async def kill_consumers(place, *, kills, rng, members=3):
    """Publish, consume and kill until all is handled; returns how often each number was."""
    with Crowd(place) as crowd:
        crowd.consume(members)
        await crowd.until(crowd.is_there)
        crowd.publish()
        for kill in range(kills):
            # Spread over the flow, at random: before the first message and after the last one too.
            due = place.messages * (kill + rng.random()) / (kills + 1)
            await crowd.until(lambda due=due: len(crowd.handled()) >= int(due))
            crowd.kill_one(rng)
        await crowd.until(lambda: len(crowd.handled()) == place.messages)
        return crowd.handled()


async def drain_after_kills(place, queue, *, kills, rng, members=3):
    """The same for messages that may be lost: ends with all consumers killed.

    ``queue`` then takes what the broker still has: the numbers it got, and how often each number
    was handled.
    """
    with Crowd(place) as crowd:
        crowd.consume(members)
        await crowd.until(crowd.is_there)
        crowd.publish()
        for kill in range(kills):
            due = place.messages * (kill + rng.random()) / (kills + 2)
            await crowd.until(lambda due=due: len(crowd.handled()) >= int(due))
            crowd.kill_one(rng)
        await crowd.until(lambda: len(crowd.confirmed()) == place.messages)
    # Now nobody is left, and every lease ends: what comes here was never acknowledged.
    await queue.connect()
    await queue.driver.declare(place.topic, "chaos")
    left, wait = [], place.visibility_timeout * 3
    while got := await queue.driver.receive(place.topic, "chaos", limit=500, wait=wait):
        left += [json.loads(one.message.payload)["n"] for one in got]
        await queue.driver.ack_many(got)
    await queue.close()
    return left, crowd.handled()


async def survive(place):
    """Consumers die from message 0; each dead one is replaced. Returns what was handled, when
    all is, with the retry count that the handler of message 0 saw at last.
    """
    with Crowd(place) as crowd:
        crowd.consume()
        await crowd.until(crowd.is_there)
        crowd.publish()

        def done():
            if crowd.consumers[-1].poll() is not None:
                crowd.consume()
            return len(crowd.handled()) == place.messages

        await crowd.until(done)
        return crowd.handled(), (crowd.folder / "survived").read_text()


async def bury(place, queue):
    """Consumers die from message 0, always, and are replaced, until nothing is left to handle.

    ``queue`` is connected and tells the dead letters. Returns what was handled, the dead letters,
    and how often the handler was begun with message 0.
    """
    await queue.driver.declare(place.topic, "chaos")
    messages = [BusMessage(id=f"m{n}", payload={"n": n}) for n in range(place.messages)]
    await queue.publish_many(place.topic, messages)
    last, since = None, anyio.current_time()
    with Crowd(place) as crowd:
        crowd.consume()
        while len(crowd.handled()) < place.messages - 1 or not (
            dead := await queue.driver.list_dead(place.topic, "chaos")
        ):
            if crowd.consumers[-1].poll() is not None:
                crowd.consume()
            now = (len(crowd.handled()), len(crowd.consumers))
            if now != last:
                last, since = now, anyio.current_time()
            assert anyio.current_time() - since < STUCK_SECONDS, await crowd.story()
            await anyio.sleep(0.05)
        return crowd.handled(), dead, (crowd.folder / "deaths").stat().st_size


async def restart_broker(place, stop, start, *, evidence=None, times=1, members=2, settle=0.0):
    """The same, and the broker is stopped and started again under load.

    ``evidence``: see ``Crowd``. ``settle``: seconds the broker has for what was declared, before
    there is load.
    """
    with Crowd(place, evidence) as crowd:
        crowd.consume(members)
        await crowd.until(crowd.is_there)
        await anyio.sleep(settle)
        crowd.publish()
        for time in range(times):
            due = place.messages * (time + 1) // (times + 2)
            await crowd.until(lambda due=due: len(crowd.handled()) >= due)
            await anyio.to_thread.run_sync(stop)
            await anyio.to_thread.run_sync(start)
        await crowd.until(lambda: len(crowd.handled()) == place.messages)
        return crowd.handled()

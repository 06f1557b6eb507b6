"""Consumers of the drivers of the clouds are killed, on doubles of the services; nothing is lost."""

import json
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import anyio
import pytest
from tests.doubles.pubsub.server import settle_calls
from tests.e2e.queue.harness import Place, bury, kill_consumers
from tests.e2e.queue.worker import queue_of
from tests.processes import Popen

from lexigram.contracts.queue import BusMessage, DeadLetterReason

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(600)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (20, 5_000) if FULL else (3, 300)
# What one consumer holds. On these drivers the messages of a killed one are handled one by one, up
# to five seconds apart: with 50, which `make chaos` has, that takes two minutes.
PREFETCH = {} if FULL else {"sqs": 5, "gcp_pubsub": 5}
HOLDER = Path(__file__).with_name("cloud_holder.py")
LEASE = 3.0
LEASES = 3  # a handler of the lease tests takes so many of them, or more


# A place on each double, and a driver that looks at it from here. Imported where it is used: one
# whose libraries are missing is left out, the others are not.


@contextmanager
def on_sqs():
    from tests.doubles.sqs.places import SQSDouble, driver_on

    with SQSDouble() as double:
        url = f"{double.url}/123456789012/lexigram"
        keys = {"access_key_id": "test", "secret_access_key": "test", "groups_refresh": 0.0}
        yield "sqs", url, keys, lambda: driver_on(double.settings, "lexigram")


@contextmanager
def on_servicebus():
    from tests.doubles.servicebus.places import ServiceBusDouble, driver_on

    with ServiceBusDouble() as double:
        url, more = double.connection_str, {"management_str": double.management_str}
        settings = {"connection_str": url, **more}
        yield "azure_servicebus", url, more, lambda: driver_on(settings, "lexigram")


@contextmanager
def on_pubsub():
    from tests.doubles.pubsub.places import PROJECT, PubSubDouble, driver_on

    with PubSubDouble() as double:
        settings = {"project_id": PROJECT, "emulator_host": double.host}
        more = {"project_id": PROJECT, "max_messages": 50}
        yield "gcp_pubsub", double.host, more, lambda: driver_on(settings, "lexigram")


@pytest.fixture(params=[on_sqs, on_servicebus, on_pubsub], ids=["sqs", "servicebus", "pubsub"])
def cloud(request):
    with request.param() as found:
        yield found


@pytest.fixture(autouse=True)
async def last_calls(cloud):
    yield
    await settle_calls()


def place_on(cloud, folder, **more):
    driver, url, options, _ = cloud
    return Place(driver=driver, url=url, folder=str(folder), options=options, **more)


async def dead_letters(cloud):
    driver = cloud[-1]()
    await driver.connect()
    try:
        return list(await driver.list_dead("chaos", "chaos"))
    finally:
        await driver.close()


async def test_every_message_is_handled_although_consumers_are_killed(cloud, tmp_path, rng):
    place = place_on(cloud, tmp_path, messages=MESSAGES)
    place.prefetch = PREFETCH.get(place.driver, place.prefetch)
    handled = await kill_consumers(place, kills=KILLS, rng=rng)
    assert set(handled) == set(range(MESSAGES))
    assert await dead_letters(cloud) == []  # crashes used up no retries
    print(f"{place.driver}: {MESSAGES} messages, {KILLS} kills, {handled.total()} deliveries")


async def test_a_message_that_kills_its_processes_takes_no_other_along(cloud, tmp_path):
    place = place_on(cloud, tmp_path, messages=51, visibility_timeout=1.0)
    place.deadly, place.max_deliveries, place.prefetch = 10**9, 5, 20
    queue = await anyio.to_thread.run_sync(queue_of, vars(place))  # it looks for entry points
    await queue.connect(wait=30)
    handled, dead, _ = await bury(place, queue)
    await queue.close()
    assert set(handled) == set(range(1, 51))
    assert [(entry.message.id, entry.reason) for entry in dead] == [("m0", DeadLetterReason.POISON)]


class Holders:
    """``with Holders(place) as holders``: processes of ``cloud_holder.py``, gone at its end."""

    def __init__(self, place):
        self.place, self.folder = place, Path(place.folder)
        self.processes = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()

    async def start(self):
        process = self._process()
        self.processes[process.pid] = process
        await self.until(lambda: str(process.pid) in self.lines("ready"))

    def _process(self):
        with (self.folder / f"log.{len(self.processes)}").open("wb") as log:
            command = [sys.executable, str(HOLDER), json.dumps(asdict(self.place))]
            return Popen(command, stdout=log, stderr=log)

    async def until(self, condition):
        with anyio.fail_after(60):
            while not condition():  # noqa: ASYNC110 - other processes write files
                await anyio.sleep(0.02)

    def kill(self, pid):
        self.processes[pid].send_signal(signal.SIGKILL)
        self.processes[pid].wait()

    def lines(self, name):
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def begun(self):
        """(pid, id, retry count) of every handler that began."""
        found = [line.split() for line in self.lines("begun")]
        return [(int(pid), identity, int(retries)) for pid, identity, retries in found]


async def test_a_handler_longer_than_its_lease_is_alone_with_its_message_until_it_is_killed(
    cloud, tmp_path
):
    """Two processes wait for one message: the second gets it when the first is dead, not before."""
    place = place_on(cloud, tmp_path, messages=1, visibility_timeout=LEASE)
    driver = cloud[-1]()
    await driver.connect()
    with Holders(place) as holders:
        for _ in range(2):
            await holders.start()
        await driver.publish_many([BusMessage(id="m0", topic="chaos", payload=b"{}")])
        await holders.until(holders.begun)
        [(holder, _, _)] = holders.begun()
        await anyio.sleep(LEASE * LEASES)
        assert holders.begun() == [(holder, "m0", 0)]  # its lease was kept: nobody else has it
        holders.kill(holder)
        await holders.until(lambda: len(holders.begun()) == 2)
        _, (other, identity, retries) = holders.begun()
        assert (other != holder, identity, retries) == (True, "m0", 0)  # no retry was used up
        (tmp_path / "go").touch()
        await holders.until(lambda: holders.lines("handled") == ["m0"])
        # It was acknowledged: with all leases over, a member of the group finds nothing.
        await anyio.sleep(LEASE * 2)
        assert list(await driver.receive("chaos", "chaos", limit=1, wait=LEASE)) == []
        assert len(holders.begun()) == 2
    assert list(await driver.list_dead("chaos", "chaos")) == []
    await driver.close()

"""Messages of foreign producers, kind by kind, on every driver: each has an end, and only its own."""

import logging
import shutil
from contextlib import asynccontextmanager

import pytest
from tests.doubles.pubsub.places import OneLoop, pubsub
from tests.doubles.servicebus.places import servicebus
from tests.integration.queue import hostile_kinds
from tests.integration.queue.hostile_kinds import HANDLED, KINDS
from tests.integration.queue.rabbitmq_place import own_vhost

from lexigram.contracts.queue import BusMessage, Capability, DeadLetterReason
from lexigram.queue import BusOptions, BusQueue, RetryPolicy
from lexigram.queue.operations.control import BusControl
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.testing import wait_until

__all__ = ["pubsub", "servicebus"]  # fixtures

pytestmark = pytest.mark.anyio

TOPIC = "kinds"
# Names that mean something to a broker, or begin as such names do.
OBEYED = [
    "CC",
    "BCC",
    "~CC",
    "Status",
    "Nats-Rollup",
    "Nats-TTL",
    "goog-id",
    "x-match",
    "%41",
    "body",
]
OPTIONS = BusOptions(retry=RetryPolicy(max_retries=1, base=0.001, cap=0.001), max_deliveries=50)


class Ends:
    """Metrics that note what becomes of messages, and what must not happen at all."""

    def __init__(self):
        self.ends, self.losses = [], []

    def increment(self, name, value=1.0, tags=None):
        if name.endswith(".dead_lettered"):
            self.ends.append(tags["reason"])
        elif name.endswith(".lost"):  # asked to be delivered at most once, and its handler failed
            self.ends.append("lost")
        elif name.endswith((".restarted", ".unsettled", ".lease_lost", ".reconnected")):
            self.losses.append((name, tags))

    def gauge(self, name, value, tags=None):
        pass

    def histogram(self, name, value, tags=None):
        pass


@pytest.fixture(scope="module")
def vhost(services):
    with own_vhost(services["rabbitmq"]) as url:
        yield url


PLACES = {
    "memory": ("memory", None),
    "sqlite": ("sql", "migrated_file"),
    "postgresql": ("sql", "postgres_url"),
    "redis": ("redis", "services"),
    "rabbitmq": ("rabbitmq", "vhost"),
    "nats": ("nats", "services"),
    "azure_servicebus": ("azure_servicebus", "servicebus"),
    "gcp_pubsub": ("gcp_pubsub", "pubsub"),
}
SERVICES = ("postgresql", "redis", "rabbitmq", "nats")


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.service(name) if name in SERVICES else ())
        for name in PLACES
    ]
)
def place(request, tmp_path):
    """Opens the queue of one driver, its group declared; gives it and the native way to it."""
    name, needs = PLACES[request.param]
    where = None if needs is None else request.getfixturevalue(needs)
    if request.param == "sqlite":
        shutil.copy(where, tmp_path / "bus.db")
        where = f"sqlite:///{tmp_path}/bus.db"

    @asynccontextmanager
    async def opened():
        async with hostile_kinds.PLACES[name](where, TOPIC) as (driver, send):
            queue = BusQueue(driver, options=OPTIONS)
            await queue.connect()
            await driver.declare(TOPIC, "default")
            ends = Ends()
            queue.set_metrics(ends)
            try:
                yield queue, send, ends
                assert ends.losses == []
                for subscription in queue.subscriptions:
                    assert not subscription.restarted
            finally:
                for subscription in queue.subscriptions:
                    await subscription.stop()
                await driver.drop(TOPIC, "default")
                await queue.close()

    return opened, name


class TestKinds(OneLoop):
    async def test_each_kind_has_its_end_and_good_messages_around_it_are_handled(self, place):
        opened, driver = place
        async with opened() as (queue, send, ends):
            good, found = [], {}

            async def handle(message):
                if message.id.startswith("good"):
                    good.append(message.id)
                else:
                    ends.ends.append(HANDLED)

            await queue.subscribe(TOPIC, handle)
            for number, (name, kind) in enumerate(KINDS.items()):
                await queue.publish(TOPIC, BusMessage(id=f"good before {number}"))
                await send(kind)
                await queue.publish(TOPIC, BusMessage(id=f"good behind {number}"))
                try:
                    await wait_until(lambda: ends.ends and len(good) == 2)
                except AssertionError as error:
                    error.add_note(f"the kind {name}")
                    raise
                found[name] = ends.ends.pop()
                good.clear()
            assert found == {name: kind.on(driver) for name, kind in KINDS.items()}

    async def test_each_kind_is_retried_set_aside_shown_brought_back_and_dropped(
        self, place, caplog
    ):
        """What is seen by a peek, fails, dies, and is sent again, is written anew each time."""
        caplog.set_level(logging.ERROR, "lexigram.queue")
        opened, _ = place
        async with opened() as (queue, send, ends):
            for kind in KINDS.values():
                await send(kind)
            if queue.can(Capability.PEEK):
                seen = await BusControl({"q": queue}).peek(TOPIC, "default", limit=500)
                assert len(seen) == len(KINDS)

            async def fail(message):
                raise ValueError("no")

            letters = DeadLetters(queue)
            await queue.subscribe(TOPIC, fail)
            await wait_until(lambda: len(ends.ends) >= len(KINDS), timeout=60)
            number = len(KINDS) - ends.ends.count("lost")
            assert number >= len(KINDS) - 1
            first = await letters.list(limit=500)
            assert len(first) == number
            assert all(entry.error for entry in first)
            (again,) = await letters.get(first[-1].message.id)
            assert again.message.id == first[-1].message.id
            ends.ends.clear()
            assert await letters.redrive() == number
            await wait_until(lambda: len(ends.ends) >= number, timeout=60)
            second = await letters.list(limit=500)
            assert {e.message.id for e in first} == {e.message.id for e in second}
            assert await letters.purge() == number
            assert await letters.list() == []

    async def test_headers_that_a_broker_obeys_are_data_of_an_application(self, place):
        opened, _ = place
        headers = dict.fromkeys(OBEYED, "1")
        async with opened() as (queue, _, ends):
            got = []

            async def fail_once(message):
                got.append(message.headers)
                if len(got) == 1:
                    raise ValueError("no")

            await queue.subscribe(TOPIC, fail_once)
            await queue.publish(TOPIC, BusMessage(headers=headers))
            await wait_until(lambda: len(got) == 2)
            for one in got:
                assert headers.items() <= one.items()
            assert ends.ends == []

    async def test_an_error_of_much_text_beyond_ascii_is_set_aside_with_its_message(self, place):
        """A dead letter adds its trace, which some brokers take in their headers only."""
        opened, _ = place
        async with opened() as (queue, _, ends):

            async def fail(message):
                raise ValueError("誤" * 5_000)

            await queue.subscribe(TOPIC, fail)
            await queue.publish(
                TOPIC, BusMessage(id="m", payload=1, headers={"note": "語" * 1_000})
            )
            await wait_until(lambda: ends.ends)
            (entry,) = await DeadLetters(queue).list()
            assert (entry.message.id, entry.message.payload) == ("m", 1)
            assert entry.reason is DeadLetterReason.RETRIES_EXHAUSTED
            assert entry.error.startswith("ValueError: 誤") or not entry.error

"""A driver is what the configuration names: ours on their brokers, those of others by entry point."""

import shutil
import sys
import textwrap

import nats
import pytest
from redis.asyncio import Redis
from tests.integration.queue.rabbitmq_place import clear, own_vhost
from tests.names import unique_name

from lexigram.app import Application
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import BusMessage, DeadLetterReason, QueueProtocol
from lexigram.di import Module, module
from lexigram.di.errors import ProviderError
from lexigram.queue import MessageConsumer, QueueConfig, QueueModule, RetryPolicy
from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.queue.errors import QueueLibraryError
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

EXHAUSTED = DeadLetterReason.RETRIES_EXHAUSTED
handled = []
billed = []


class Shipping(MessageConsumer):
    topic = "orders"

    async def handle(self, message: BusMessage) -> None:
        handled.append((message.payload, message.id))


class Billing(MessageConsumer):
    """Fails as often as a message says."""

    topic = "invoices"
    retry = RetryPolicy(base=0.01, cap=0.01)

    async def handle(self, message: BusMessage) -> None:
        billed.append(message.payload["number"])
        if billed.count(message.payload["number"]) <= message.payload["failures"]:
            raise RuntimeError("no paper")


@module(imports=[QueueModule.scope(Shipping, Billing)])
class ShopModule(Module):
    pass


def application(driver, **settings):
    """As a YAML file says it."""
    backend = {"name": "events", "driver": driver, **settings}
    config = QueueConfig.from_dict({"backends": [backend]})
    return Application("shop", modules=[QueueModule.configure(config), ShopModule])


@pytest.fixture(scope="module")
def vhost(services):
    with own_vhost(services["rabbitmq"]) as url:
        yield url


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
        pytest.param("redis", marks=pytest.mark.service("redis")),
        pytest.param("rabbitmq", marks=pytest.mark.service("rabbitmq")),
        pytest.param("nats", marks=pytest.mark.service("nats")),
    ]
)
def place(request, tmp_path):
    """Driver and settings."""
    kind, name = request.param, unique_name()
    if kind == "memory":
        return "memory", {}
    if kind == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "bus.db")
        return "sql", {"sql": {"url": f"sqlite:///{tmp_path}/bus.db"}}
    if kind == "postgresql":
        return "sql", {"sql": {"url": request.getfixturevalue("postgres_url")}}
    if kind == "rabbitmq":
        return kind, {kind: {"url": request.getfixturevalue("vhost"), "exchange": name}}
    own = {"redis": "prefix", "nats": "stream"}[kind]
    url = f"{kind}://{request.getfixturevalue('services')[kind].address}"
    return kind, {kind: {"url": url, own: name}}


@pytest.fixture
async def configured(place):
    """The same, and nothing is left on the broker."""
    yield place
    kind, settings = place
    if kind == "redis":
        client = Redis.from_url(settings["redis"]["url"])
        async for key in client.scan_iter(f"{settings['redis']['prefix']}:*", count=1000):
            await client.delete(key)
        await client.aclose()
    elif kind == "rabbitmq":
        await clear(RabbitMQDriver(**settings["rabbitmq"]))
    elif kind == "nats":
        client = await nats.connect(settings["nats"]["url"])
        for end in ("", "-records", "-dead"):
            await client.request(f"$JS.API.STREAM.DELETE.{settings['nats']['stream']}{end}")
        await client.close()


@pytest.mark.quick
async def test_an_application_consumes_from_the_broker_its_configuration_names(configured):
    driver, settings = configured
    async with application(driver, **settings) as app:
        queue = app.container.get(QueueProtocol)
        sent = await queue.publish("orders", BusMessage(payload={"number": 1}))
        await wait_until(lambda: ({"number": 1}, sent.id) in handled, timeout=60)
        assert (await app.health_check()).is_healthy()
    assert queue.driver.name == driver


@pytest.mark.quick
async def test_a_failure_is_tried_again_then_set_aside_and_what_was_handled_never_returns(
    configured,
):
    driver, settings = configured
    billed.clear()

    async def billed_at_last(number, times):
        await wait_until(lambda: billed.count(number) == times, timeout=60)

    async with application(driver, **settings) as app:
        queue = app.container.get(QueueProtocol)
        for number, failures in enumerate([0, 1, 2]):
            payload = {"number": number, "failures": failures}
            await queue.publish("invoices", BusMessage(payload=payload, max_retries=1))
        letters = DeadLetters(queue)
        (place,) = [one for one in await queue.driver.groups() if one[0] == "invoices"]

        async def is_set_aside():
            return await letters.count(place) == 1

        await wait_until(is_set_aside, timeout=60)
        (letter,) = [one async for one in letters.find()]
        assert (letter.message.payload["number"], letter.reason) == (2, EXHAUSTED)
        assert "no paper" in letter.error
        await billed_at_last(1, 2)
    if driver == "memory":
        return  # nothing outlives the process
    async with application(driver, **settings) as app:
        payload = {"number": 3, "failures": 0}
        await app.container.get(QueueProtocol).publish("invoices", BusMessage(payload=payload))
        await billed_at_last(3, 1)
    assert sorted(billed) == [0, 1, 1, 2, 2, 3]


FAR = {
    "sql": {"sql": {"url": "postgresql://nobody@127.0.0.1:1/none"}},
    "redis": {"redis": {"url": "redis://127.0.0.1:1/0"}},
    "rabbitmq": {"rabbitmq": {"url": "amqp://guest:guest@127.0.0.1:1/", "timeout": 2.0}},
    "nats": {"nats": {"url": "nats://127.0.0.1:1", "connect_timeout": 1.0}},
}


@pytest.mark.parametrize("driver", FAR)
async def test_a_start_without_its_broker_fails_and_says_what_to_do(driver):
    with pytest.raises(ProviderError) as caught:
        async with application(driver, **FAR[driver]):
            pass
    assert "127.0.0.1" in str(caught.value)
    assert "required: false" in str(caught.value)


@pytest.mark.parametrize("driver", FAR)
async def test_a_broker_that_is_not_required_is_missed_by_health_only(driver):
    async with application(driver, required=False, **FAR[driver]) as app:
        assert (await app.health_check()).status is HealthStatus.UNHEALTHY


@pytest.mark.parametrize(
    ("driver", "library"),
    [("redis", "redis.asyncio"), ("rabbitmq", "aiormq"), ("nats", "nats.aio.client")],
)
async def test_a_start_without_the_library_names_the_extra(driver, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises((ProviderError, QueueLibraryError)) as caught:
        async with application(driver, **FAR[driver]):
            pass
    assert f'pip install "lexigram-queue[{driver}]"' in str(caught.value)


PIGEON = """
from lexigram.queue.backends.memory import MemoryDriver

made = []


class PigeonDriver(MemoryDriver):
    name = "pigeon"


def build(entry, services):
    made.append(entry.options["loft"])
    return PigeonDriver(visibility_timeout=entry.visibility_timeout)


def build_queue(entry, services):
    from lexigram.queue import InMemoryQueue

    return InMemoryQueue()
"""


@pytest.fixture
def pigeon(tmp_path, monkeypatch):
    """A distribution of somebody else, installed."""
    package = tmp_path / "site"
    facts = package / "pigeon_post-1.0.dist-info"
    facts.mkdir(parents=True)
    (package / "pigeon_post.py").write_text(textwrap.dedent(PIGEON))
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-post\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[lexigram.queue.drivers]\n"
        "pigeon = pigeon_post:build\n"
        "pigeon_queue = pigeon_post:build_queue\n"
    )
    monkeypatch.syspath_prepend(str(package))
    yield
    sys.modules.pop("pigeon_post", None)


@pytest.mark.usefixtures("pigeon")
async def test_a_driver_of_somebody_else_is_named_in_the_configuration_like_ours():
    async with application("pigeon", options={"loft": "roof"}, visibility_timeout=7.0) as app:
        queue = app.container.get(QueueProtocol)
        sent = await queue.publish("orders", BusMessage(payload="by air"))
        await wait_until(lambda: ("by air", sent.id) in handled)
    assert (queue.driver.name, queue.driver.visibility_timeout) == ("pigeon", 7.0)
    assert sys.modules["pigeon_post"].made == ["roof"]


@pytest.mark.usefixtures("pigeon")
async def test_a_complete_queue_of_somebody_else_is_named_alike():
    async with application("pigeon_queue") as app:
        queue = app.container.get(QueueProtocol)
        sent = await queue.publish("orders", BusMessage(payload="whole"))
        await wait_until(lambda: ("whole", sent.id) in handled)

"""What a kill must never do, on every durable driver: run a message of at most once twice, use up
the retries of one that is delivered at least once, or take messages along that were not begun.
"""

import json
import os

import anyio
import nats
import pytest
from tests.doubles.kafka.server import KafkaDouble
from tests.e2e.queue.harness import Place, bury, drain_after_kills, survive
from tests.e2e.queue.worker import queue_of
from tests.integration.queue.rabbitmq_place import clear
from tests.names import unique_name
from tests.redis_keys import delete_keys

from lexigram.contracts.queue import DeadLetterReason
from lexigram.queue.backends.rabbitmq import RabbitMQDriver

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (20, 20_000) if FULL else (5, 1_000)
DEATHS = 5  # more than max_retries
CONCURRENCY = 8

DATABASES = {"sqlite": "sqlite_url", "postgresql": "own_schema"}
SERVERS = ("postgresql", "redis", "rabbitmq", "nats")
PLACES = ("sqlite", *(pytest.param(name, marks=pytest.mark.service(name)) for name in SERVERS))


@pytest.fixture
def database(request):
    """The address of the database of ``place``; None where that is a broker."""
    name = DATABASES.get(request.node.callspec.params["place"])
    return name and request.getfixturevalue(name)


@pytest.fixture(params=PLACES)
async def place(request, database, tmp_path):
    kind, name = request.param, unique_name()
    made = {"folder": str(tmp_path), "messages": MESSAGES, "concurrency": CONCURRENCY}
    if kind == "kafka":
        # A group waits for the session of the dead one to end.
        with KafkaDouble() as double:
            options = {"group_id": name, "session_timeout": 3.0}
            yield Place(driver="kafka", url=double.servers, options=options, **made)
        return
    if database is not None:
        yield Place(driver="sql", url=database, **made)
        return
    address = request.getfixturevalue("services")[kind].address
    make = {"redis": redis, "rabbitmq": rabbitmq, "nats": on_nats}[kind]
    async for url, options in make(address, name):
        yield Place(driver=kind, url=url, options=options, **made)


async def redis(address, name):
    url = f"redis://{address}/0"
    yield url, {"prefix": name}
    await delete_keys(url, f"{name}:*")


async def rabbitmq(address, name):
    url = f"amqp://guest:guest@{address}/"
    yield url, {"exchange": name}
    await clear(RabbitMQDriver(url, exchange=name))


async def on_nats(address, name):
    url = f"nats://{address}"
    yield url, {"stream": name}
    client = await nats.connect(url)
    for one in (name, f"{name}-records", f"{name}-dead"):
        answer = await client.request(f"$JS.API.STREAM.DELETE.{one}")
        assert json.loads(answer.data)["success"]
    await client.close()


@pytest.mark.promise
async def test_at_most_once_no_message_is_handled_twice_although_consumers_are_killed(place, rng):
    place.guarantee = "at_most_once"
    queue = await anyio.to_thread.run_sync(queue_of, vars(place))  # it looks for entry points
    left, handled = await drain_after_kills(place, queue, kills=KILLS, rng=rng, members=3)
    assert [number for number, times in handled.items() if times > 1] == []
    assert [number for number in left if number in handled] == []  # it would have come again
    lost = set(range(MESSAGES)) - set(handled) - set(left)
    # Acknowledged and not handled: at most what ran in the processes that were killed.
    assert len(lost) <= (KILLS + 3) * CONCURRENCY


@pytest.mark.promise
async def test_a_message_that_kills_its_process_uses_up_no_retries(place):
    place.messages, place.max_retries, place.deadly = 50, 1, DEATHS
    handled, retries = await survive(place)
    assert set(handled) == set(range(50))
    assert retries == "0"


# Concurrency, size of batches, prefetch.
SHAPES = {"one": (1, 1, 10), "eight": (8, 1, 20), "batches": (2, 10, 30)}
# What runs beside a suspect is up to the consumer, not to the driver: each driver has one shape,
# one driver all of them. `make chaos` runs the product.
SHAPED = [
    pytest.param(place, shape, id=f"{name}-{place}", marks=marks)
    for place, marks in (
        ("sqlite", pytest.mark.promise),
        *((server, pytest.mark.service(server)) for server in SERVERS),
        ("kafka", ()),
    )
    for name, shape in SHAPES.items()
    if FULL or place == "sqlite" or name == "eight"
]


@pytest.mark.parametrize(("place", "shape"), SHAPED, indirect=["place"])
async def test_a_message_that_kills_its_processes_takes_no_other_along(place, shape):
    place.messages, place.deadly, place.max_deliveries = 51, 10**9, 5
    place.concurrency, place.batch_size, place.prefetch = shape
    place.visibility_timeout = 1.0
    queue = await anyio.to_thread.run_sync(queue_of, vars(place))  # it looks for entry points
    await queue.connect(wait=30)
    handled, dead, begun = await bury(place, queue)
    await queue.close()
    assert set(handled) == set(range(1, 51))
    assert [(entry.message.id, entry.reason) for entry in dead] == [("m0", DeadLetterReason.POISON)]
    assert begun == place.max_deliveries + 1

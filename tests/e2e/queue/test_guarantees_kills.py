"""What a kill must never do, on every durable driver: run a message of at most once twice, or use
up the retries of one that is delivered at least once.
"""

import json
import os

import anyio
import asyncpg
import nats
import pytest
from redis.asyncio import Redis
from tests.e2e.queue.harness import Place, drain_after_kills, survive
from tests.e2e.queue.worker import queue_of
from tests.integration.queue.rabbitmq_place import clear
from tests.names import unique_name

from lexigram.queue.backends.rabbitmq import RabbitMQDriver
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
KILLS, MESSAGES = (20, 20_000) if FULL else (5, 1_000)
DEATHS = 5  # more than max_retries
CONCURRENCY = 8

SERVERS = {"postgresql": "postgresql", "redis": "redis", "rabbitmq": "rabbitmq", "nats": "nats"}


@pytest.fixture(
    params=["sqlite", *(pytest.param(n, marks=pytest.mark.service(n)) for n in SERVERS)]
)
async def place(request, tmp_path):
    kind, name = request.param, unique_name()
    made = {"folder": str(tmp_path), "messages": MESSAGES, "concurrency": CONCURRENCY}
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/bus.db"
        await migrate(url)
        yield Place(driver="sql", url=url, **made)
        return
    address = request.getfixturevalue("services")[kind].address
    make = {"postgresql": postgresql, "redis": redis, "rabbitmq": rabbitmq, "nats": on_nats}[kind]
    async for url, options in make(address, name):
        driver = "sql" if kind == "postgresql" else kind
        yield Place(driver=driver, url=url, options=options, **made)


async def migrate(url):
    async with Database(url) as database:
        await upgrade(database)


async def postgresql(address, name):
    schema, server = name.replace("-", "_"), f"postgresql://postgres@{address}/test"
    admin = await asyncpg.connect(server)
    await admin.execute(f"CREATE SCHEMA {schema}")
    url = f"{server}?search_path={schema}"
    await migrate(url)
    yield url, {}
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")
    await admin.close()


async def redis(address, name):
    url = f"redis://{address}/0"
    yield url, {"prefix": name}
    client = Redis.from_url(url)
    async for key in client.scan_iter(f"{name}:*", count=1000):
        await client.delete(key)
    await client.aclose()


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

"""A process of the kill tests: ``worker.py publish|consume|relay|tell <json>``; see
``harness.Place``.

publish: sends numbered messages, again and again until the broker confirmed each of them, and
writes the confirmed numbers to a file. consume: writes the number of each message it handles to
a file of its own; with ``effects`` (a database URL) it handles exactly once, and its effect is a
row there, written in the transaction of the handler. relay: publishes the outbox of database
``effects``; with ``dies_after`` it is killed once so many are published, before it deletes them. tell: prints what the
queue says of itself.
"""

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path

from lexigram.contracts.queue import BusMessage, DeliveryGuarantee, QueueError
from lexigram.queue import config as configs
from lexigram.queue.backends.registry import QueueDriverRegistry
from lexigram.queue.config import NamedQueueConfig
from lexigram.queue.options import ConsumerOptions

CLASSES = {
    "sql": configs.SqlDriverConfig,
    "redis": configs.RedisDriverConfig,
    "rabbitmq": configs.RabbitMQDriverConfig,
    "nats": configs.NATSDriverConfig,
    "kafka": lambda url, **rest: configs.KafkaDriverConfig(bootstrap_servers=url, **rest),
    "sqs": lambda url, **rest: configs.SQSDriverConfig(queue_url=url, **rest),
    "azure_servicebus": lambda url, **rest: configs.AzureServiceBusDriverConfig(
        connection_str=url, **rest
    ),
    "gcp_pubsub": lambda url, **rest: configs.GCPPubSubDriverConfig(emulator_host=url, **rest),
}
BATCH = 100


def queue_of(place):
    driver = place["driver"]
    entry = NamedQueueConfig(
        name="chaos",
        driver=driver,
        max_backlog=10**6,
        visibility_timeout=place["visibility_timeout"],
        retry_base=0.05,
        max_deliveries=place["max_deliveries"],
        **{driver: CLASSES[driver](url=place["url"], **place["options"])},
    )
    return QueueDriverRegistry.with_defaults().create_backend(driver, entry)


async def publish(queue, place):
    with (Path(place["folder"]) / "confirmed").open("ab", buffering=0) as confirmed:
        for start in range(0, place["messages"], BATCH):
            numbers = range(start, min(start + BATCH, place["messages"]))
            most = place["max_retries"]
            left = {
                f"m{n}": BusMessage(id=f"m{n}", payload={"n": n}, max_retries=most) for n in numbers
            }
            while left:
                sent = set(left)
                try:
                    await queue.publish_many(place["topic"], list(left.values()))
                except QueueError as error:
                    sent -= set(error.details.get("unconfirmed") or sent)
                    await asyncio.sleep(0.1)
                for identity in sent:
                    del left[identity]
                confirmed.write(b"".join(b"%s\n" % one[1:].encode() for one in sent))
    print("published", flush=True)


async def consume(queue, place):
    database = None
    if place["effects"]:
        from lexigram.queue.outbox.inbox import Inbox
        from lexigram.sql import Database

        database = Database(place["effects"])
        await database.connect()
        queue.inbox = Inbox(database).around
    file = Path(place["folder"]) / f"handled.{os.getpid()}"
    with file.open("ab", buffering=0) as handled:

        async def handle(message):
            await asyncio.sleep(random.random() * place["work_seconds"] * 2)  # a place to die in
            if place["deadly"] and message.payload["n"] == 0:
                die_or_survive(message, place)
            if database is not None:
                row = {"number": message.payload["n"]}
                await database.execute_insert("effects", row)
            handled.write(b"%d\n" % message.payload["n"])

        async def handle_batch(messages):
            for message in messages:
                await handle(message)

        wanted = DeliveryGuarantee(place["guarantee"]) if place["guarantee"] else None
        await queue.consume(
            ConsumerOptions(
                topics=(place["topic"],),
                group="chaos",
                prefetch=place["prefetch"],
                concurrency=place["concurrency"],
                batch_size=place["batch_size"],
                delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE if database else wanted,
            ),
            handle if place["batch_size"] == 1 else handle_batch,
        )
        # The group is there: what is published from now on comes to it.
        (Path(place["folder"]) / f"ready.{os.getpid()}").touch()
        await asyncio.Event().wait()


def die_or_survive(message, place):
    """Some processes die here; the one that does not writes how often the message failed."""
    deaths = Path(place["folder"]) / "deaths"
    with deaths.open("ab", buffering=0) as file:
        file.write(b"x")
    if deaths.stat().st_size <= place["deadly"]:
        os.kill(os.getpid(), signal.SIGKILL)
    (Path(place["folder"]) / "survived").write_text(str(message.retry_count))


async def relay(queue, place):
    from lexigram.queue.config import OutboxConfig
    from lexigram.queue.outbox.outbox import OutboxRelay
    from lexigram.queue.outbox.store import SqlOutboxStore
    from lexigram.sql import Database

    sent = 0

    async def send(wires):
        nonlocal sent
        await queue.publish_wires(wires)
        sent += len(wires)
        if place["dies_after"] and sent >= place["dies_after"]:
            os.kill(os.getpid(), signal.SIGKILL)

    async with Database(place["effects"]) as database:
        store = SqlOutboxStore(database, "chaos")
        config = OutboxConfig(batch=50, lease=1.0, poll_interval=0.1)
        relaying = OutboxRelay(store, send, config=config)
        await relaying.start()
        while await store.count():  # noqa: ASYNC110 - other processes empty it
            await asyncio.sleep(0.02)
        await relaying.stop()


async def tell(queue, place):
    for question in (queue.driver.depth, queue.driver.lag, queue.driver.list_dead):
        try:
            said = await question(place["topic"], "chaos")
        except QueueError as error:  # the rest is told all the same
            said = error
        for one in said if isinstance(said, list | tuple) else (said,):
            print(f"{question.__name__}: {one}")


async def main():
    work, place = sys.argv[1], json.loads(sys.argv[2])
    queue = queue_of(place)
    await queue.connect(wait=30)
    works = {"publish": publish, "consume": consume, "relay": relay, "tell": tell}
    await works[work](queue, place)
    await queue.close()


if __name__ == "__main__":
    asyncio.run(main())

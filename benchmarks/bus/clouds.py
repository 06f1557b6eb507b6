"""SQS, Service Bus and Pub/Sub on their doubles, beside the vendor's client alone in a loop.

The doubles are Python processes, so the figures say what the bus adds to the client, and nothing
of the services. They need libraries that the peers' environment has not, and run in that of the
tests: LEX_BENCH_DOUBLES is its interpreter, ``.venv/bin/python`` without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import Any

import orjson
from bus.contest import BATCH, OURS, PAYLOAD, Contestant, ours
from harness import Case, Facts, Plan, Section, Work, measure

from lexigram.queue.config import (
    AzureServiceBusDriverConfig,
    GCPPubSubDriverConfig,
    SQSDriverConfig,
)
from lexigram.queue import BusOptions
from lexigram.queue.backends.azure_servicebus import AzureServiceBusQueue
from lexigram.queue.backends.gcp_pubsub import GCPPubSubQueue
from lexigram.queue.backends.sqs import SQSQueue

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("LEX_BENCH_DOUBLES", str(ROOT / ".venv" / "bin" / "python"))
MESSAGES = 500
OPTIONS = BusOptions(prefetch=BATCH)
LEASE = 30  # seconds
KEYS = {"access_key_id": "test", "secret_access_key": "test"}  # those of the double

Contest = Callable[[Any], AbstractAsyncContextManager[Contestant]]


async def sections(plan: Plan) -> AsyncIterator[Section | Facts]:
    for title, double, raw, mine in (
        ("Amazon SQS, on moto", "sqs", _raw_sqs, _our_sqs),
        ("Azure Service Bus, on a double", "servicebus", _raw_servicebus, _our_servicebus),
        ("Google Pub/Sub, on a double", "pubsub", _raw_pubsub, _our_pubsub),
    ):
        try:
            with _running(double) as where:
                yield await _section(plan, title, where, raw, mine)
        except _NoDoubleError as error:
            yield Facts(title, "", [], [], [str(error)])


async def _section(plan: Plan, title: str, where: Any, raw: Contest, mine: Contest) -> Section:
    alone = "the client alone"
    async with AsyncExitStack() as stack:
        made = {
            alone: await stack.enter_async_context(raw(where)),
            OURS: await stack.enter_async_context(mine(where)),
        }
        cases = [Case(who, one.flow, MESSAGES) for who, one in made.items()]
        work = Work("publish, handle, acknowledge one message", "µs", alone, cases)
        await measure([work], plan, rounds=plan.few(9))
    return Section(
        title,
        f"JSON of 256 bytes, a handler that does nothing, one process beside the double, {BATCH} "
        "messages at a time. The client alone sends, receives and settles in batches, where "
        "it has them. No target: the double takes most of the time.",
        [work],
    )


# The doubles.


class _NoDoubleError(Exception):
    pass


@contextmanager
def _running(double: str) -> Iterator[Any]:
    """The ports a double listens on."""
    command = [PYTHON, "-m", f"tests.doubles.{double}"]
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)
    except FileNotFoundError as error:
        raise _NoDoubleError(
            f"no {PYTHON}; `make test` makes it, or set LEX_BENCH_DOUBLES"
        ) from error
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise _NoDoubleError(f"{' '.join(command)} does not start: {_reason(process)}")
            yield json.loads(line)
        finally:
            process.kill()


def _reason(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    return process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]


@asynccontextmanager
async def _consuming(job: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """``job`` again and again, beside what is inside."""

    async def run() -> None:
        while True:
            await job()

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _bodies(number: int) -> list[bytes]:
    return [orjson.dumps(PAYLOAD) for _ in range(number)]


# SQS.


@asynccontextmanager
async def _raw_sqs(where: Any) -> AsyncIterator[Contestant]:
    from aiobotocore.session import get_session

    async with AsyncExitStack() as stack:
        settings = {
            "region_name": "us-east-1",
            "endpoint_url": f"http://127.0.0.1:{where['port']}",
            "aws_access_key_id": KEYS["access_key_id"],
            "aws_secret_access_key": KEYS["secret_access_key"],
        }
        made = [get_session().create_client("sqs", **settings) for _ in range(2)]
        sender, receiver = [await stack.enter_async_context(one) for one in made]
        url = (await sender.create_queue(QueueName=_name()))["QueueUrl"]

        class Raw(Contestant):
            async def publish(self, number: int) -> None:
                for start in range(0, number, 10):
                    bodies = _bodies(min(10, number - start))
                    entries = [
                        {"Id": str(one), "MessageBody": body.decode()}
                        for one, body in enumerate(bodies)
                    ]
                    await sender.send_message_batch(QueueUrl=url, Entries=entries)

        raw = Raw()

        async def consume() -> None:
            answer = await receiver.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20
            )
            found = answer.get("Messages", [])
            for one in found:
                orjson.loads(one["Body"])
                raw.count()
            entries = [
                {"Id": str(number), "ReceiptHandle": one["ReceiptHandle"]}
                for number, one in enumerate(found)
            ]
            if entries:
                await receiver.delete_message_batch(QueueUrl=url, Entries=entries)

        await stack.enter_async_context(_consuming(consume))
        yield raw


@asynccontextmanager
async def _our_sqs(where: Any) -> AsyncIterator[Contestant]:
    url = f"http://127.0.0.1:{where['port']}/123456789012/{_name()}"
    config = SQSDriverConfig(queue_url=url, visibility_timeout=LEASE, **KEYS)
    async with SQSQueue(config=config, options=OPTIONS) as queue:
        yield await ours(queue)


# Service Bus.


def _connection(port: int) -> str:
    """As the double wants it (tests/doubles/servicebus/tokens.py)."""
    import base64

    key = base64.b64encode(b"a key of the double").decode()
    return (
        f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
    )


@asynccontextmanager
async def _raw_servicebus(where: Any) -> AsyncIterator[Contestant]:
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient

    # Its management speaks HTTPS only, which the double does not: a driver makes the queue.
    queue = f"{_name()}.raw"
    await _make_queue(where, queue)
    make = ServiceBusClient.from_connection_string
    async with (
        make(_connection(where["amqp"])) as out,
        make(_connection(where["amqp"])) as into,
        out.get_queue_sender(queue) as sender,
        into.get_queue_receiver(queue, prefetch_count=BATCH) as receiver,
    ):

        class Raw(Contestant):
            async def publish(self, number: int) -> None:
                batch = await sender.create_message_batch()
                for body in _bodies(number):
                    batch.add_message(ServiceBusMessage(body))
                await sender.send_messages(batch)

        raw = Raw()

        async def consume() -> None:
            found = await receiver.receive_messages(BATCH, max_wait_time=1)
            for one in found:
                orjson.loads(b"".join(one.body))
                raw.count()
            for one in found:
                await receiver.complete_message(one)

        async with _consuming(consume):
            yield raw


async def _make_queue(where: Any, name: str) -> None:
    from azure.core.pipeline.transport import AioHttpTransport
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

    class Plain(AioHttpTransport):
        async def send(self, request: Any, **options: Any) -> Any:
            request.url = request.url.replace("https://", "http://", 1)
            return await super().send(request, **options)

    make = ServiceBusAdministrationClient.from_connection_string
    async with make(_connection(where["http"]), transport=Plain()) as admin:
        await admin.create_queue(name)


@asynccontextmanager
async def _our_servicebus(where: Any) -> AsyncIterator[Contestant]:
    async with AzureServiceBusQueue(
        _connection(where["amqp"]),
        _name(),
        max_message_count=BATCH,
        config=AzureServiceBusDriverConfig(management_str=_connection(where["http"])),
        visibility_timeout=LEASE,
        options=OPTIONS,
    ) as queue:
        yield await ours(queue)


# Pub/Sub.


@asynccontextmanager
async def _raw_pubsub(where: Any) -> AsyncIterator[Contestant]:
    import grpc
    from google.api_core.exceptions import DeadlineExceeded
    from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
    from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

    out, into = (grpc.aio.insecure_channel(f"127.0.0.1:{where}") for _ in range(2))
    publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=out))
    subscriber = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=into))
    name = _name()
    topic, subscription = f"projects/bench/topics/{name}", f"projects/bench/subscriptions/{name}"
    await publisher.create_topic(name=topic)
    await subscriber.create_subscription(
        request={"name": subscription, "topic": topic, "ack_deadline_seconds": LEASE}
    )

    class Raw(Contestant):
        async def publish(self, number: int) -> None:
            messages = [{"data": body} for body in _bodies(number)]
            await publisher.publish(request={"topic": topic, "messages": messages})

    raw = Raw()

    async def consume() -> None:
        request = {"subscription": subscription, "max_messages": BATCH}
        try:
            answer = await subscriber.pull(request=request, timeout=5, retry=None)
        except DeadlineExceeded:
            return
        for one in answer.received_messages:
            orjson.loads(one.message.data)
            raw.count()
        ack_ids = [one.ack_id for one in answer.received_messages]
        if ack_ids:
            await subscriber.acknowledge(request={"subscription": subscription, "ack_ids": ack_ids})

    async with _consuming(consume):
        yield raw
    await out.close()
    await into.close()


@asynccontextmanager
async def _our_pubsub(where: Any) -> AsyncIterator[Contestant]:
    async with GCPPubSubQueue(
        "bench",
        _name(),
        max_messages=BATCH,
        config=GCPPubSubDriverConfig(emulator_host=f"127.0.0.1:{where}"),
        visibility_timeout=LEASE,
        options=OPTIONS,
    ) as queue:
        yield await ours(queue)


def _name() -> str:
    return f"bench-{secrets.token_hex(4)}"

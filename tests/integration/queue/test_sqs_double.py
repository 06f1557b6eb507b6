"""moto's SQS as the tests use it, driven by the vendor's client alone: it is as strict as SQS."""

import anyio
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError
from tests.doubles.sqs.places import SQSDouble

pytestmark = [
    pytest.mark.anyio,
    # aiohttp says so of every request above 1 MiB
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
]


@pytest.fixture(scope="module")
def double():
    with SQSDouble() as running:
        yield running


def client_of(double, key="test"):
    return get_session().create_client(
        "sqs",
        endpoint_url=double.url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key="x",
        config=AioConfig(retries={"total_max_attempts": 1, "mode": "standard"}),
    )


@pytest.fixture
async def client(double):
    async with client_of(double) as client:
        yield client


@pytest.fixture
async def url(client, request):
    name = f"q{abs(hash(request.node.name))}"
    return (await client.create_queue(QueueName=name))["QueueUrl"]


async def take(client, url, **more):
    answer = await client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **more)
    return answer.get("Messages", [])


async def test_a_lease_ends_and_an_older_receipt_settles_nothing(client, url):
    await client.send_message(QueueUrl=url, MessageBody="a")
    [first] = await take(client, url, VisibilityTimeout=1)
    assert await take(client, url) == []
    [second] = await take(client, url, WaitTimeSeconds=5, VisibilityTimeout=60)
    await client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    with pytest.raises(ClientError):
        await client.change_message_visibility(
            QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0
        )
    handle = second["ReceiptHandle"]
    await client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    with pytest.raises(ClientError):  # not in flight any more
        await client.change_message_visibility(
            QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=9
        )
    assert len(await take(client, url)) == 1


async def test_a_waiting_receiver_is_given_what_comes(client, url):
    got = []

    async def wait():
        got.extend(await take(client, url, WaitTimeSeconds=10))

    with anyio.fail_after(8):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.1)
            await client.send_message(QueueUrl=url, MessageBody="a")
    assert [message["Body"] for message in got] == ["a"]


async def test_an_id_is_taken_once_also_after_the_first_was_deleted(client):
    made = await client.create_queue(QueueName="d.fifo", Attributes={"FifoQueue": "true"})
    url = made["QueueUrl"]
    for _ in range(2):
        await client.send_message(
            QueueUrl=url, MessageBody="a", MessageGroupId="k", MessageDeduplicationId="1"
        )
        for message in await take(client, url):
            await client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            break
        else:
            return
    pytest.fail("the second came too")


@pytest.mark.parametrize(
    "message",
    [
        {"MessageBody": "a\x00b"},
        {"MessageBody": "x" * (1024 * 1024 + 1)},
        {"MessageBody": "x" * (1024 * 1024), "names": 1},
        {"MessageBody": "a", "names": 11},
        {"MessageBody": "a", "DelaySeconds": 901},
    ],
    ids=["characters", "size", "size with attributes", "attributes", "delay"],
)
async def test_what_sqs_refuses_is_refused(client, url, message):
    names = message.pop("names", 0) if "names" in message else 0
    attributes = {f"a{n}": {"DataType": "String", "StringValue": "v"} for n in range(names)}
    with pytest.raises(ClientError):
        await client.send_message(QueueUrl=url, MessageAttributes=attributes, **message)
    assert await take(client, url) == []


async def test_keys_and_faults(client, double):
    async with client_of(double, "wrong") as stranger:
        with pytest.raises(ClientError, match="InvalidClientTokenId"):
            await stranger.list_queues()
    double.fault("ListQueues", 1)
    with pytest.raises(ClientError) as caught:
        await client.list_queues()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    await client.list_queues()

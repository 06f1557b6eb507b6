"""The services of the clouds refuse (doubles do): typed error with the fix, backoff, nothing lost.

One row for each kind of refusal, and each of the three drivers. What only one driver has is in
its own file.
"""

from contextlib import contextmanager

import anyio
import pytest
from tests.doubles.pubsub.server import settle_calls

from lexigram.contracts.queue import BusMessage, MessageTooLargeError, QueueError
from lexigram.queue import BusOptions, BusQueue, RetryPolicy
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

QUICK = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))


@pytest.fixture(scope="module")
def anyio_backend():
    """One loop for all: the gRPC library does not bear one that is closed soon."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend):
    yield
    await settle_calls()


class OnSQS:
    code, fix = "LEX_ERR_QUEUE_005", "access_key_id"

    def __init__(self, double):
        self.double = double

    @classmethod
    @contextmanager
    def running(cls):
        from tests.doubles.sqs.places import SQSDouble

        with SQSDouble() as double:
            yield cls(double)

    def driver(self, **more):
        from tests.doubles.sqs.places import driver_on, place_name

        return driver_on(self.double.settings, place_name(), **more)

    async def unwelcome(self):
        return self.driver(access_key_id="wrong")

    async def throttle(self, *, sends=0, takes=0, settles=0):
        wanted = {
            "SendMessageBatch": sends,
            "ReceiveMessage": takes,
            "DeleteMessageBatch": settles,
            "ChangeMessageVisibilityBatch": settles,
        }
        await anyio.to_thread.run_sync(self.double.faults, wanted)


class OnServiceBus:
    code, fix = "LEX_ERR_QUEUE_006", "connection_str"

    def __init__(self, double):
        self.double = double

    @classmethod
    @contextmanager
    def running(cls):
        from tests.doubles.servicebus.places import ServiceBusDouble, without_naps

        patch = pytest.MonkeyPatch()
        without_naps(patch)
        with ServiceBusDouble() as double:
            yield cls(double)
        patch.undo()

    def driver(self, **more):
        from tests.doubles.servicebus.places import driver_on, place_name

        double = self.double
        right = {"connection_str": double.connection_str, "management_str": double.management_str}
        return driver_on({**right, **more}, place_name())

    async def unwelcome(self):
        wrong = self.double.connection(self.double.amqp_port, "d3Jvbmc=")
        return self.driver(connection_str=wrong)  # management lets it in, messaging does not

    async def throttle(self, *, sends=0, takes=0, settles=0):
        # Readers are open: they are cut off, and refused when they come again.
        faults = {"busy": sends, "busy_readers": takes, "busy_requests": settles}
        faults |= {"cut_readers": True} if takes else {}
        await anyio.to_thread.run_sync(lambda: self.double.fault(**faults))


class OnPubSub:
    code, fix = "LEX_ERR_QUEUE_007", "credentials_file"

    def __init__(self, double):
        self.double = double

    @classmethod
    @contextmanager
    def running(cls):
        from tests.doubles.pubsub.places import PubSubDouble

        with PubSubDouble() as double:
            yield cls(double)

    def driver(self, **more):
        from tests.doubles.pubsub.places import PROJECT, driver_on, place_name

        settings = {"project_id": PROJECT, "emulator_host": self.double.host}
        return driver_on(settings, place_name(), timeout=3.0, **more)

    async def unwelcome(self):
        # Without TLS there are no tokens to be wrong: test_gcp_pubsub has that. Here it is the answer.
        await self.double.fault(ALL=["UNAUTHENTICATED", 100])
        return self.driver()

    async def throttle(self, *, sends=0, takes=0, settles=0):
        wanted = {
            "Publish": sends,
            "Pull": takes,
            "Acknowledge": settles,
            "ModifyAckDeadline": settles,
        }
        await self.double.fault(
            **{method: ["RESOURCE_EXHAUSTED", times] for method, times in wanted.items()}
        )


@pytest.fixture(
    scope="module", params=[OnSQS, OnServiceBus, OnPubSub], ids=lambda one: one.__name__
)
def cloud(request):
    with request.param.running() as running:
        yield running


@pytest.fixture
async def queue(cloud):
    made = BusQueue(cloud.driver(), options=QUICK)
    await made.connect()
    yield made
    await cloud.throttle()
    await made.close()


async def publish(queue, *numbers):
    """As a program does that keeps what was not confirmed, and tries again; how often it had to."""
    left, refused = {f"m{one}": one for one in numbers}, 0
    with anyio.fail_after(60):
        while left:
            messages = [BusMessage(id=name, payload=one) for name, one in left.items()]
            try:
                await queue.publish_many("orders", messages)
                left = {}
            except QueueError as error:
                left = {name: left[name] for name in error.details["unconfirmed"]}
                refused += 1
                await anyio.sleep(0.05)
    return refused


async def test_wrong_credentials_are_a_typed_error_with_the_fix_and_nothing_is_taken_as_sent(cloud):
    driver = await cloud.unwelcome()
    with pytest.raises(QueueError) as caught:
        await driver.connect()
        await driver.publish_many([BusMessage(id="unsent", topic="orders", payload=b"1")])
    await driver.close()
    await cloud.throttle()
    assert caught.value.code == cloud.code
    assert cloud.fix in caught.value.hint
    assert caught.value.details.get("unconfirmed", ["unsent"]) == ["unsent"]


async def test_a_missing_group_is_a_typed_error_with_the_fix_and_what_is_sent_meanwhile_is_kept(
    cloud, queue
):
    await queue.publish("orders", BusMessage(payload="early"))
    with pytest.raises(QueueError) as caught:
        await queue.driver.receive("orders", "nobody", limit=1, wait=0)
    assert caught.value.code == cloud.code
    assert "declare the group" in caught.value.hint
    handled = []

    async def handle(message):
        handled.append(message.payload)

    await queue.subscribe("orders", handle)
    await wait_until(lambda: handled == ["early"], timeout=30)


async def test_a_body_that_is_too_large_is_refused_with_the_fix_and_the_next_one_goes_through(
    queue,
):
    handled = []

    async def handle(message):
        handled.append(message.payload)

    await queue.subscribe("orders", handle)
    limit = queue.driver.max_message_bytes
    with pytest.raises(MessageTooLargeError) as caught:
        await queue.publish_many(
            "orders", [BusMessage(payload="small"), BusMessage(payload="x" * limit)]
        )
    assert "reference" in caught.value.hint
    await queue.publish("orders", BusMessage(payload="next"))
    await wait_until(lambda: handled, timeout=30)
    assert handled == ["next"]  # of a batch that was refused, nothing was sent


async def test_a_throttled_bus_goes_on_and_every_message_is_handled(cloud, queue):
    handled = []

    async def handle(message):
        handled.append(message.payload)

    await queue.subscribe("orders", handle)
    await publish(queue, 0)
    await wait_until(lambda: 0 in handled, timeout=30)
    for start in (1, 11, 21):
        await cloud.throttle(sends=3, takes=3, settles=3)
        await publish(queue, *range(start, start + 10))
        await wait_until(lambda end=start + 10: set(handled) == set(range(end)), timeout=60)
    await cloud.throttle()
    assert list(await DeadLetters(queue).list()) == []


async def test_refused_for_long_a_publisher_hears_which_were_not_sent_and_can_send_them(
    cloud, queue
):
    handled = []

    async def handle(message):
        handled.append(message.payload)

    await queue.subscribe("orders", handle)
    await cloud.throttle(sends=1000)
    with pytest.raises(QueueError) as caught:
        await queue.publish_many("orders", [BusMessage(id=one, payload=one) for one in "ab"])
    assert caught.value.code == cloud.code
    assert caught.value.details["unconfirmed"] == ["a", "b"]
    assert "throttles" in caught.value.hint
    await cloud.throttle()
    assert await publish(queue, 1) == 0
    await wait_until(lambda: handled == [1], timeout=30)


async def test_what_cannot_be_acknowledged_is_acknowledged_later_or_comes_again(cloud, queue):
    handled = []

    async def handle(message):
        if not handled:
            await cloud.throttle(settles=10)  # longer than a call tries
        handled.append(message.payload)

    await queue.subscribe("orders", handle)
    await publish(queue, 1)
    await wait_until(lambda: handled, timeout=30)
    await publish(queue, 2)
    await wait_until(lambda: set(handled) == {1, 2}, timeout=60)
    await cloud.throttle()
    await queue.close()
    # Whatever is left comes again here, and then there is nothing.
    await queue.driver.connect()
    with anyio.fail_after(60):
        lease = queue.driver.visibility_timeout
        while got := await queue.driver.receive("orders", "default", limit=10, wait=lease * 1.5):
            assert {one.message.payload for one in got} <= {b"1", b"2"}
            await queue.driver.ack_many(got)
    assert list(await queue.driver.list_dead("orders", "default")) == []
    await queue.driver.close()

"""The broker goes and comes back: the bus goes on by itself."""

import anyio
import anyio.lowlevel
import pytest

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import BusMessage, QueueError
from lexigram.queue import BusQueue, ConsumerOptions
from lexigram.queue.backends.memory import MemoryDriver
from lexigram.queue.errors import QueueLibraryError
from lexigram.queue.runtime import subscription as subscription_module
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio


class Shaky(MemoryDriver):
    """A memory driver whose broker can go away, or stop answering."""

    # Not in this process, as far as the runtime knows: publishing goes through the coalescer.
    publish_nowait = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.down = False
        self.hanging = False
        self.connects = 0
        self.published = []

    def check(self):
        if self.down:
            raise QueueError("the broker is gone", backend="shaky")

    async def connect(self):
        self.check()
        self.connects += 1
        await super().connect()

    async def publish_many(self, messages):
        self.check()
        await anyio.lowlevel.checkpoint()
        self.published.append([message.id for message in messages])
        for message in messages:
            MemoryDriver.publish_nowait(self, message)

    async def receive(self, topic, group, *, limit, wait):
        self.check()
        if self.hanging:
            await anyio.sleep_forever()
        got = await super().receive(topic, group, limit=limit, wait=min(wait, 0.01))
        self.check()
        return got

    async def ack_many(self, deliveries):
        self.check()
        await super().ack_many(deliveries)

    async def nack(self, delivery, *, delay=0.0, message=None):
        self.check()
        await super().nack(delivery, delay=delay, message=message)


@pytest.fixture
def shaky():
    return Shaky(visibility_timeout=5.0)


async def test_consuming_goes_on_when_the_broker_is_back_and_nothing_is_lost(open_queue, shaky):
    queue, handled = await open_queue(driver=shaky), set()

    async def handle(message):
        handled.add(message.payload)
        await anyio.sleep(0.001)

    await queue.subscribe("t", handle)
    for number in range(50):
        await queue.publish("t", BusMessage(payload=number))
    await wait_until(lambda: len(handled) >= 10)
    shaky.down = True
    await wait_until(lambda: queue._link.is_broken)
    with pytest.raises(QueueError, match="gone"):
        await queue.publish("t", BusMessage(payload="not confirmed"))
    shaky.down = False
    await wait_until(lambda: shaky.broker.groups["t", "default"].count == 0)
    assert handled == set(range(50))
    await wait_until(lambda: shaky.connects > 1)


async def test_health_tells_that_the_connection_is_being_repaired(open_queue, shaky):
    queue = await open_queue(driver=shaky)
    shaky.down = True
    with pytest.raises(QueueError):
        await queue.publish("t", BusMessage())
    assert (await queue.health_check()).status is HealthStatus.DEGRADED
    shaky.down = False
    await wait_until(lambda: not queue._link.is_broken)
    assert (await queue.health_check()).status is HealthStatus.HEALTHY


async def test_a_receive_that_hangs_is_noticed_and_tried_again(open_queue, shaky, monkeypatch):
    monkeypatch.setattr(subscription_module, "RECEIVE_WAIT", 0.01)
    monkeypatch.setattr(subscription_module, "STALLED_AFTER", 0.05)
    queue, handled = await open_queue(driver=shaky), []

    async def handle(message):
        handled.append(message.payload)

    shaky.hanging = True
    await queue.subscribe("t", handle)
    await queue.publish("t", BusMessage(payload=1))
    await wait_until(lambda: queue._link.is_broken)
    shaky.hanging = False
    await wait_until(lambda: handled == [1])


async def test_what_many_tasks_publish_at_once_travels_together_in_order(open_queue, shaky):
    queue = await open_queue(driver=shaky)
    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(queue.publish, "t", BusMessage(id=str(number)))
    assert len(shaky.published) <= 3
    assert [one for batch in shaky.published for one in batch] == [str(n) for n in range(100)]


async def test_publish_returns_only_after_the_confirm(open_queue, shaky):
    queue = await open_queue(driver=shaky)
    shaky.down = True
    with pytest.raises(QueueError):
        await queue.publish("t", BusMessage())
    assert shaky.published == []


async def test_a_broker_that_comes_later_is_waited_for(shaky):
    queue = BusQueue(shaky)
    shaky.down = True

    async def come_back():
        await anyio.sleep(0.05)
        shaky.down = False

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come_back)
        await queue.connect(wait=5.0)
    await queue.close()


async def test_a_broker_that_does_not_come_is_an_error(shaky):
    queue = BusQueue(shaky)
    shaky.down = True
    with pytest.raises(QueueError, match="gone"):
        await queue.connect(wait=0.05)
    await queue.close()


async def test_a_broker_is_not_waited_for_where_no_further_attempt_can_help(shaky):
    queue, attempts = BusQueue(shaky), []

    async def connect():
        attempts.append(1)
        raise QueueLibraryError("aiokafka is not installed")

    shaky.connect = connect
    with pytest.raises(QueueLibraryError):
        await queue.connect(wait=60.0)
    assert attempts == [1]


async def test_an_error_that_no_driver_should_raise_does_not_stop_the_consumer(open_queue, shaky):
    queue, handled, wrong = await open_queue(driver=shaky), [], [TypeError("a defect"), KeyError()]

    async def handle(message):
        handled.append(message.payload)

    check = shaky.check

    def defective():
        if wrong:
            raise wrong.pop()
        check()

    shaky.check = defective
    await queue.subscribe("t", handle)
    await wait_until(lambda: not wrong)
    await queue.publish("t", BusMessage(payload=1))
    await wait_until(lambda: handled == [1])


async def test_health_tells_that_a_consumer_died(open_queue):
    queue = await open_queue()

    async def handle(message):
        raise SystemError  # a handler may raise anything

    subscription = await queue.consume(ConsumerOptions(topics=("t",), consumer_id="mine"), handle)
    subscription._background._group.cancel_scope.cancel()
    await wait_until(lambda: subscription.has_died)
    health = await queue.health_check()
    assert (health.status, health.message) == (HealthStatus.UNHEALTHY, "died: mine")

"""The double of Service Bus, driven by the vendor's client alone: it behaves as the vendor says.

The pages it follows are named beside its code (tests/doubles/servicebus).
"""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import anyio
import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from azure.servicebus.management import CorrelationRuleFilter, EntityStatus, SqlRuleFilter
from tests.doubles.servicebus.quick import without_naps
from tests.doubles.servicebus.server import ServiceBusDouble, demand_proton

demand_proton()

pytestmark = pytest.mark.anyio

LOCK = timedelta(seconds=2)
SOON = 0.4  # seconds in which nothing comes
HANG_GUARD = 15.0  # seconds


class Plain(AioHttpTransport):
    """The management of the double, like that of the vendor's emulator, speaks plain HTTP."""

    async def send(self, request, **options):
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **options)


@pytest.fixture(scope="module")
def double():
    patch = pytest.MonkeyPatch()
    without_naps(patch)
    with ServiceBusDouble() as running:
        yield running
    patch.undo()


@pytest.fixture
async def admin(double):
    made = ServiceBusAdministrationClient.from_connection_string(
        double.management_str, transport=Plain(), retry_total=0
    )
    yield made
    await made.close()


@pytest.fixture
async def bus(double):
    """Opens senders and receivers that are closed at the end."""
    async with AsyncExitStack() as stack:
        client = ServiceBusClient.from_connection_string(double.connection_str, retry_total=0)
        stack.push_async_callback(client.close)
        yield Bus(client, stack)


class Bus:
    def __init__(self, client, stack):
        self.client, self._stack = client, stack

    def receiver(self, queue, **options):
        made = self.client.get_queue_receiver(queue, **options)
        self._stack.push_async_callback(close, made)
        return made

    async def send(self, entity, *messages, topic=False):
        make = self.client.get_topic_sender if topic else self.client.get_queue_sender
        async with make(entity) as sender:
            await sender.send_messages(list(messages) if len(messages) > 1 else messages[0])


async def close(receiver):
    with anyio.move_on_after(5):  # after a failure the client may wait for ever
        await receiver.close()


@pytest.fixture
async def queue(admin):
    return await make_queue(admin)


async def make_queue(admin, **options):
    name = f"q-{uuid4().hex[:8]}"
    await admin.create_queue(name, **{"lock_duration": LOCK, **options})
    return name


async def one(receiver):
    (message,) = await receiver.receive_messages(1, max_wait_time=HANG_GUARD)
    return message


async def nothing(receiver):
    await receiver.__aenter__()  # opening is not part of the wait
    assert await receiver.receive_messages(1, max_wait_time=SOON) == []


def texts(messages):
    return [str(message) for message in messages]


# Locks and settling.


async def test_a_completed_message_is_gone_and_a_batch_keeps_its_order(bus, queue):
    await bus.send(queue, *(ServiceBusMessage(f"{n}") for n in range(5)))
    receiver = bus.receiver(queue)
    got = await receiver.receive_messages(5, max_wait_time=HANG_GUARD)
    assert texts(got) == ["0", "1", "2", "3", "4"]
    for message in got:
        await receiver.complete_message(message)
    await nothing(receiver)


async def test_a_message_whose_lock_expired_comes_again_and_counts(bus, queue):
    await bus.send(queue, ServiceBusMessage("x"))
    first = await one(bus.receiver(queue))
    again = bus.receiver(queue)
    message = await one(again)  # waits for the lock to end
    assert message.delivery_count == 1
    assert message.lock_token != first.lock_token
    await again.complete_message(message)


async def test_a_renewed_lock_keeps_the_message_and_a_lost_one_is_told(bus, queue):
    await bus.send(queue, ServiceBusMessage("x"))
    holder, other = bus.receiver(queue), bus.receiver(queue)
    message = await one(holder)
    for _ in range(3):
        await nothing(other)
        await holder.renew_message_lock(message)
    token = message.lock_token
    await holder.complete_message(message)
    with pytest.raises(MessageLockLostError):
        await holder._renew_locks(token)


async def test_an_abandoned_message_comes_again_until_the_limit_then_is_a_dead_letter(bus, admin):
    queue = await make_queue(admin, max_delivery_count=2)
    await bus.send(queue, ServiceBusMessage("x"))
    receiver = bus.receiver(queue)
    for _ in range(2):
        await receiver.abandon_message(await one(receiver))
    dead = await one(bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER))
    assert (str(dead), dead.dead_letter_reason) == ("x", "MaxDeliveryCountExceeded")


async def test_a_dead_letter_has_its_reason_and_can_be_completed(bus, admin, queue):
    await bus.send(queue, ServiceBusMessage("x", application_properties={"a": "b"}))
    receiver = bus.receiver(queue)
    await receiver.dead_letter_message(await one(receiver), reason="bad", error_description="why")
    figures = await admin.get_queue_runtime_properties(queue)
    assert (figures.active_message_count, figures.dead_letter_message_count) == (0, 1)
    graves = bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    dead = await one(graves)
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("bad", "why")
    await graves.complete_message(dead)
    await nothing(graves)


async def test_settling_by_lock_token_is_all_or_none_and_may_change_properties(bus, queue):
    await bus.send(queue, *(ServiceBusMessage(f"{n}") for n in range(2)))
    receiver, asking = bus.receiver(queue), bus.receiver(queue)
    first, second = await receiver.receive_messages(2, max_wait_time=HANG_GUARD)
    details = {"deadletter-reason": "r", "properties-to-modify": {"why": "so"}}
    await asking._settle_message_via_mgmt_link("suspended", [first.lock_token], details)
    with pytest.raises(MessageLockLostError):
        await asking._settle_message_via_mgmt_link(
            "completed", [first.lock_token, second.lock_token]
        )
    await receiver.renew_message_lock(second)
    (dead,) = await bus.receiver(queue, sub_queue="deadletter").peek_messages(5)
    assert dead.application_properties[b"why"] == b"so"


async def test_peeking_takes_nothing_and_shows_states(bus, queue):
    later = datetime.now(UTC) + timedelta(minutes=1)
    await bus.send(
        queue,
        ServiceBusMessage("now"),
        ServiceBusMessage("later", scheduled_enqueue_time_utc=later),
    )
    receiver = bus.receiver(queue)
    seen = await receiver.peek_messages(10)
    assert [(str(message), message.state.name) for message in seen] == [
        ("now", "ACTIVE"),
        ("later", "SCHEDULED"),
    ]
    assert str(await one(receiver)) == "now"


async def test_receive_and_delete_needs_no_settling(bus, queue):
    await bus.send(queue, ServiceBusMessage("x"))
    receiver = bus.receiver(queue, receive_mode="receiveanddelete")
    assert str(await one(receiver)) == "x"
    await nothing(bus.receiver(queue))


async def test_what_a_closing_link_was_sent_is_released_and_does_not_count(bus, queue):
    await bus.send(queue, *(ServiceBusMessage(f"{n}") for n in range(3)))
    async with bus.client.get_queue_receiver(queue, prefetch_count=9) as receiver:
        await one(receiver)
    rest = await bus.receiver(queue).receive_messages(2, max_wait_time=HANG_GUARD)
    assert [(str(message), message.delivery_count or 0) for message in rest] == [("1", 0), ("2", 0)]


# Time.


async def test_a_scheduled_message_comes_when_it_is_due_or_is_cancelled(bus, queue):
    async with bus.client.get_queue_sender(queue) as sender:
        due = datetime.now(UTC) + timedelta(seconds=1)
        kept, dropped = await sender.schedule_messages(
            [ServiceBusMessage("kept"), ServiceBusMessage("dropped")], due
        )
        await sender.cancel_scheduled_messages(dropped)
        with pytest.raises(ServiceBusError):
            await sender.cancel_scheduled_messages(dropped)
    receiver = bus.receiver(queue)
    message = await one(receiver)
    assert (str(message), message.sequence_number) == ("kept", kept)
    assert datetime.now(UTC) >= due
    await receiver.complete_message(message)
    await nothing(receiver)


async def test_an_expired_message_is_dropped_or_a_dead_letter(bus, admin):
    for is_kept in (False, True):
        queue = await make_queue(admin, dead_lettering_on_message_expiration=is_kept)
        graves = bus.receiver(queue, sub_queue="deadletter")
        await bus.send(queue, ServiceBusMessage("x", time_to_live=timedelta(seconds=1)))
        found = await graves.receive_messages(1, max_wait_time=HANG_GUARD if is_kept else 4)
        assert [dead.dead_letter_reason for dead in found] == ["TTLExpiredException"] * is_kept
        await nothing(bus.receiver(queue))


async def test_an_id_is_taken_once_in_the_window(bus, admin):
    topic = f"t-{uuid4().hex[:8]}"
    await admin.create_topic(
        topic,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(seconds=60),
    )
    queue = await make_queue(admin)
    await admin.create_subscription(topic, "s", forward_to=queue)
    for text in ("first", "second"):
        await bus.send(topic, ServiceBusMessage(text, message_id="same"), topic=True)
    receiver = bus.receiver(queue)
    assert str(await one(receiver)) == "first"
    await nothing(receiver)


# Topics.


async def test_every_subscription_gets_what_its_rule_lets_through(bus, admin):
    topic, plain, keyed = f"t-{uuid4().hex[:8]}", await make_queue(admin), await make_queue(admin)
    await admin.create_topic(topic)
    for name, queue, rule in (("p", plain, "IS NULL"), ("k", keyed, "IS NOT NULL")):
        await admin.create_subscription(topic, name, forward_to=queue)
        await admin.create_rule(topic, name, "r", filter=SqlRuleFilter(f"sys.SessionId {rule}"))
        await admin.delete_rule(topic, name, "$Default")
    await bus.send(
        topic, ServiceBusMessage("k", session_id="1"), ServiceBusMessage("p"), topic=True
    )
    assert str(await one(bus.receiver(plain))) == "p"
    assert str(await one(bus.receiver(keyed))) == "k"


async def test_a_backlog_is_forwarded_when_forwarding_is_set_later(bus, admin, queue):
    topic = f"t-{uuid4().hex[:8]}"
    await admin.create_topic(topic)
    await admin.create_subscription(topic, "s")
    await bus.send(topic, ServiceBusMessage("x"), topic=True)
    found = await admin.get_subscription(topic, "s")
    found.forward_to = queue
    await admin.update_subscription(topic, found)
    assert str(await one(bus.receiver(queue))) == "x"


# Sessions.


async def test_a_session_has_one_owner_and_keeps_its_order(bus, admin):
    # A lock that outlasts the test: two others wait in vain while it is held.
    long = timedelta(seconds=60)
    queue = await make_queue(admin, requires_session=True, lock_duration=long)
    await bus.send(queue, *(ServiceBusMessage(f"{n}", session_id="k") for n in range(2)))
    owner = bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
    first = await one(owner)
    assert (owner.session.session_id, str(first)) == ("k", "0")
    with pytest.raises(SessionCannotBeLockedError):
        await one(bus.receiver(queue, session_id="k"))
    with pytest.raises(OperationTimeoutError):
        await one(bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1.5))
    await owner.session.renew_lock()
    await owner.abandon_message(first)
    assert str(await one(owner)) == "0"
    await owner.close()
    next_one = bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
    assert str(await one(next_one)) == "0"


async def test_a_session_whose_lock_expired_is_lost(bus, admin):
    queue = await make_queue(admin, requires_session=True)
    await bus.send(queue, ServiceBusMessage("x", session_id="k"))
    owner = bus.receiver(queue, session_id="k")
    await one(owner)
    other = bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
    assert str(await one(other)) == "x"
    with pytest.raises((SessionLockLostError, ServiceBusError)):
        await owner.session.renew_lock()
        await owner.session.renew_lock()


async def test_a_session_queue_refuses_messages_and_receivers_without_a_session(bus, admin):
    queue = await make_queue(admin, requires_session=True)
    with pytest.raises(ServiceBusError, match="SessionId"):
        await bus.send(queue, ServiceBusMessage("x"))
    with pytest.raises(ServiceBusError):
        await one(bus.receiver(queue))


# What is refused.


async def test_a_disabled_queue_gives_nothing_until_it_is_enabled(bus, admin, queue):
    found = await admin.get_queue(queue)
    found.status = EntityStatus.RECEIVE_DISABLED
    await admin.update_queue(found)
    await bus.send(queue, ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityDisabledError):
        await one(bus.receiver(queue))
    found.status = EntityStatus.ACTIVE
    await admin.update_queue(found)
    assert str(await one(bus.receiver(queue))) == "x"


async def test_an_unknown_entity_is_refused(bus, admin):
    with pytest.raises(ServiceBusError):  # of a sender, the client may lose the condition
        await bus.send("nobody", ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityNotFoundError):
        await one(bus.receiver("nobody"))
    with pytest.raises(ResourceNotFoundError):
        await admin.get_queue("nobody")
    with pytest.raises(ResourceNotFoundError):
        await admin.delete_queue("nobody")


async def test_a_wrong_key_is_refused(double, queue):
    wrong = double.connection(double.amqp_port, "d3Jvbmc=")
    async with ServiceBusClient.from_connection_string(wrong, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))
    wrong = double.connection(double.http_port, "d3Jvbmc=")
    async with ServiceBusAdministrationClient.from_connection_string(
        wrong, transport=Plain(), retry_total=0
    ) as admin:
        with pytest.raises(ClientAuthenticationError):
            await admin.get_queue(queue)


async def test_what_is_too_large_throttled_or_over_the_quota_is_refused(bus, double, queue):
    with pytest.raises(MessageSizeExceededError):
        await bus.send(queue, ServiceBusMessage(b"x" * 300_000))
    double.fault(busy=1)
    with pytest.raises(ServiceBusServerBusyError):
        await bus.send(queue, ServiceBusMessage("x"))
    double.fault(full=1)
    with pytest.raises(ServiceBusQuotaExceededError):
        await bus.send(queue, ServiceBusMessage("x"))
    await nothing(bus.receiver(queue))


async def test_readers_and_requests_are_throttled_too(bus, double, queue):
    await bus.send(queue, ServiceBusMessage("x"))
    reader = bus.receiver(queue)
    (got,) = await reader.receive_messages(1, max_wait_time=5)
    double.fault(busy_requests=1)
    with pytest.raises(ServiceBusServerBusyError):
        await reader.renew_message_lock(got)
    await reader.renew_message_lock(got)
    double.fault(busy_readers=1)
    other = bus.receiver(queue)
    with pytest.raises(ServiceBusError):
        await other.receive_messages(1, max_wait_time=1)
    double.fault(cut_readers=True)
    with pytest.raises(ServiceBusServerBusyError):
        await reader.receive_messages(1, max_wait_time=HANG_GUARD)


async def test_what_the_double_does_not_know_is_refused(bus, admin, queue):
    receiver = bus.receiver(queue)
    with pytest.raises(ServiceBusError, match="the double knows no"):
        await receiver.receive_deferred_messages([1])
    with pytest.raises(HttpResponseError, match="EnablePartitioning"):
        await admin.create_queue(f"{queue}-2", enable_partitioning=True)
    topic = f"t-{uuid4().hex[:8]}"
    await admin.create_topic(topic)
    await admin.create_subscription(topic, "s")
    with pytest.raises(HttpResponseError, match="SqlFilter only"):
        await admin.create_rule(topic, "s", "r", filter=CorrelationRuleFilter(label="x"))
    with pytest.raises(HttpResponseError, match="no filter"):
        await admin.create_rule(topic, "s", "r", filter=SqlRuleFilter("color = 'red'"))
    with pytest.raises(ResourceExistsError):
        await admin.create_topic(topic)
    with pytest.raises(HttpResponseError, match="20 seconds"):
        await admin.create_topic(
            f"{topic}-2",
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(seconds=1),
        )

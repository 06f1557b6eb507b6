"""Dead letters of real queues: collected, retried, gone when they worked, told of once."""

import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest

from lexigram import clock
from lexigram.ai.workers import DeadLetterQueueWorker, DLQError, FailureCategory
from lexigram.ai.workers.dlq import (
    BusDeadLetterSource,
    FunctionNotifier,
    JobDeadLetterSource,
    MemoryDeadLetterStore,
    SqlDeadLetterStore,
    WebhookNotifier,
)
from lexigram.contracts.core.health import HealthStatus
from lexigram.queue import MessageConsumer, NamedQueueConfig, QueueConfig, QueueModule
from lexigram.sql import Database
from lexigram.tasks import (
    InMemoryTaskQueue,
    JobDeadLetters,
    JobRefusedError,
    JobRetry,
    JobStatus,
    SqlTaskQueue,
    TaskWorker,
    job,
)
from lexigram.testing.fakes.clock import FakeClock

MINUTE, HOUR = 60.0, 3600.0


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def place(request):
    kind = request.param
    return kind, None if kind == "memory" else request.getfixturevalue(f"{kind}_url")


@pytest.fixture
async def parts(place):
    """A queue and a store of letters in one place."""
    _, url = place
    if url is None:
        yield InMemoryTaskQueue(), MemoryDeadLetterStore()
        return
    async with Database(url) as database:
        yield SqlTaskQueue(database), SqlDeadLetterStore(database)


@pytest.fixture
def time():
    """Both databases have their own clock: begin at the real time, and only go on from there."""
    with clock.use(FakeClock(datetime.now(UTC))) as fake:
        yield fake


class Mail:
    """A handler that fails as often as it is told, and notes what it got."""

    def __init__(self, failures, error=None):
        self.failures, self.got = failures, []
        self.error = error or ConnectionError("no route")

    def handlers(self):
        @job("mail", retry=JobRetry(base_delay=0.0))
        async def mail(**kwargs):
            self.got.append(kwargs)
            if len(self.got) <= self.failures:
                raise self.error

        return {"mail": mail}


async def work(queue, mail):
    return await TaskWorker("w", queue, mail.handlers()).drain()


def worker(queue, store=None, **settings):
    settings.setdefault("sources", [JobDeadLetterSource(JobDeadLetters(queue), queue)])
    settings.setdefault("notifiers", [])
    return DeadLetterQueueWorker(queue, store=store, **settings)


async def enqueue(queue, **extra):
    told = {"name": "mail", "kwargs": {"to": "ann"}, "max_retries": 0, **extra}
    return (await queue.enqueue(told)).unwrap()


# --- jobs -----------------------------------------------------------------------------------------


async def test_a_dead_job_is_retried_with_its_own_arguments_and_leaves_when_it_worked(parts, time):
    queue, _ = parts
    mail, dlq = Mail(failures=1), worker(*parts)
    job_id = await enqueue(queue)
    await work(queue, mail)
    await dlq.check()
    assert dlq.dead_letter_count == 1
    [item] = await dlq.get_items()
    assert item["failure_category"] == "transient"
    assert item["metadata"]["source"] == "jobs"
    time.advance(MINUTE + 1)
    await dlq.check()
    await work(queue, mail)
    assert mail.got == [{"to": "ann"}, {"to": "ann"}]
    assert (await queue.get_job(job_id)).status is JobStatus.COMPLETED
    await dlq.check()
    assert await dlq.get_items() == []
    assert dlq.dead_letter_count == 0
    stats = await dlq.get_stats()
    assert (stats.retried_count, stats.succeeded_count, stats.total_items) == (1, 1, 0)
    time.advance(HOUR)
    await dlq.check()
    await work(queue, mail)
    assert len(mail.got) == 2


async def test_retries_wait_base_times_two_to_the_n_and_end_after_the_last(time):
    queue = InMemoryTaskQueue()  # by the clock in our hands; a database has its own
    mail = Mail(failures=100)
    dlq = worker(queue, max_retries=3, base_backoff=10)
    await enqueue(queue)
    await work(queue, mail)
    await dlq.check()
    waits = []
    for _ in range(4):
        waited = 0.0
        while waited < 200 and len(mail.got) == len(waits) + 1:
            time.advance(5)
            waited += 5
            await dlq.check()
            await work(queue, mail)
        waits.append(waited)
        await dlq.check()
    assert waits[:3] == [10, 20, 40]
    assert len(mail.got) == 4
    [item] = await dlq.get_items()
    assert (item["failure_count"], item["retry_count"]) == (4, 3)
    assert not item["can_retry"]


async def test_what_was_retried_is_not_sent_again_while_it_runs_or_waits(parts, time):
    queue, _ = parts
    mail, dlq = Mail(failures=1), worker(*parts)
    job_id = await enqueue(queue)
    await work(queue, mail)
    await dlq.check()
    for _ in range(5):
        time.advance(HOUR)
        await dlq.check()
    assert (await queue.get_job(job_id)).status is JobStatus.PENDING
    assert (await dlq.get_stats()).retried_count == 1


async def test_permanent_failures_are_not_retried_and_are_notified_once(parts, time):
    queue, _ = parts
    told = []
    settings = {"notifiers": [FunctionNotifier(lambda item: told.append(item.job_id))]}
    dlq = worker(*parts, **settings)
    mail = Mail(failures=100, error=FileNotFoundError("/tmp/x"))
    job_id = await enqueue(queue)
    await work(queue, mail)
    for _ in range(3):
        await dlq.check()
        time.advance(HOUR)
    # After a restart: another worker on the same store.
    await worker(*parts, **settings).check()
    assert told == [job_id]
    assert len(mail.got) == 1
    assert (await dlq.get_stats()).permanent_failures == 1
    # A person may try it all the same, and a new end of it is news.
    assert await dlq.retry_item(job_id)
    await work(queue, mail)
    await dlq.check()
    assert told == [job_id, job_id]


async def test_a_job_without_retries_left_is_notified(parts, time):
    queue, _ = parts
    told = []
    dlq = worker(*parts, max_retries=1, base_backoff=1)
    dlq.set_notification_handler(told.append)
    mail = Mail(failures=100)
    await enqueue(queue)
    for _ in range(4):
        await work(queue, mail)
        await dlq.check()
        time.advance(HOUR)
    assert [item.retry_count for item in told] == [1]


async def test_archive_delete_and_retry_by_hand(parts, time):
    queue, _ = parts
    mail, dlq = Mail(failures=3), worker(*parts)
    ids = [await enqueue(queue) for _ in range(3)]
    await work(queue, mail)
    await dlq.check()
    assert await dlq.archive_item(ids[0])
    assert await dlq.remove_item(ids[1])
    assert await dlq.retry_item(ids[2])
    assert not await dlq.retry_item(ids[2])
    for missing in (dlq.archive_item, dlq.remove_item, dlq.retry_item):
        assert not await missing("no-such")
    await work(queue, mail)
    time.advance(24 * HOUR)
    await dlq.check()
    [item] = await dlq.get_items()
    assert (item["job_id"], item["metadata"]["state"]) == (ids[0], "archived")
    assert item["failure_category"] == "permanent"
    assert await JobDeadLetters(queue).get(ids[1]) is None
    stats = await dlq.get_stats()
    assert (stats.archived_count, stats.deleted_count, stats.retried_count) == (1, 1, 1)
    assert dlq.dead_letter_count == 0
    assert len(mail.got) == 4


async def test_a_job_settled_directly_at_the_queue_is_removed(parts, time):
    queue, _ = parts
    dlq = worker(*parts)
    job_id = await enqueue(queue)
    await work(queue, Mail(failures=1))
    await dlq.check()
    await JobDeadLetters(queue).purge(job_id)
    time.advance(2 * HOUR)
    await dlq.check()
    assert await dlq.get_items() == []


async def test_two_workers_on_one_store_retry_a_job_once(parts, time):
    queue, store = parts
    first, second = worker(queue, store), worker(queue, store)
    await enqueue(queue)
    await work(queue, Mail(failures=1))
    await first.check()
    time.advance(HOUR)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.check)
        tasks.start_soon(second.check)
    assert (await first.get_stats()).retried_count == 1


async def test_without_automatic_retries_it_only_collects_and_notifies(parts, time):
    queue, _ = parts
    dlq = worker(*parts, automatic=False)
    await enqueue(queue)
    await work(queue, Mail(failures=1))
    for _ in range(3):
        await dlq.check()
        time.advance(HOUR)
    assert (await dlq.get_stats()).retried_count == 0
    assert dlq.dead_letter_count == 1


async def test_all_dead_letters_are_found_beyond_the_first_page(parts, time):
    queue, _ = parts
    dlq = worker(*parts, automatic=False)
    for _ in range(130):
        await enqueue(queue)
    await work(queue, Mail(failures=1000))
    assert await dlq.collect() == 130
    assert await dlq.collect() == 0
    assert (await dlq.get_stats()).by_category == {"transient": 130}


# --- jobs a caller adds ---------------------------------------------------------------------------


async def test_an_added_job_is_enqueued_as_it_was_and_leaves_when_it_worked(parts, time):
    queue, _ = parts
    dlq, mail = worker(*parts), Mail(failures=0)
    await dlq.add_failed_job(
        {"id": "j1", "name": "mail", "args": (), "kwargs": {"to": "bob"}}, "timeout"
    )
    await dlq.add_failed_job({"id": "j1", "name": "mail", "kwargs": {"to": "bob"}}, "timeout")
    item = await dlq.get_item("j1")
    assert (item.failure_count, item.failure_category) == (2, FailureCategory.TRANSIENT)
    time.advance(MINUTE + 1)
    await dlq.check()
    await work(queue, mail)
    assert mail.got == [{"to": "bob"}]
    await dlq.check()
    assert await dlq.get_item("j1") is None
    time.advance(24 * HOUR)
    await dlq.check()
    await work(queue, mail)
    assert len(mail.got) == 1


async def test_an_added_job_that_fails_again_is_counted_and_waits_longer(parts, time):
    queue, _ = parts
    dlq = worker(*parts, base_backoff=100, sources=[])
    await dlq.add_failed_job(
        {"id": "j1", "name": "mail", "kwargs": {"to": "bob"}, "max_retries": 0},
        ConnectionError("x"),
    )
    time.advance(101)
    await dlq.check()
    await work(queue, Mail(failures=1))
    await dlq.check()
    item = await dlq.get_item("j1")
    assert (item.failure_count, item.retry_count) == (2, 1)
    assert (item.next_retry - item.last_failure).total_seconds() == 200


async def test_what_is_no_job_is_refused_when_it_is_added(parts):
    with pytest.raises(JobRefusedError):
        await worker(*parts).add_failed_job({"kwargs": {}}, "boom")


# --- crashes and trouble --------------------------------------------------------------------------


async def test_a_dead_letter_marked_by_a_crashed_process_is_retried_later(parts, time):
    queue, store = parts
    dlq = worker(*parts)
    job_id = await enqueue(queue)
    await work(queue, Mail(failures=1))
    await dlq.check()
    time.advance(MINUTE + 1)

    class Died(Exception): ...

    class Dying(JobDeadLetterSource):
        async def retry(self, dead_letter):
            raise Died

    dying = worker(queue, store, sources=[Dying(JobDeadLetters(queue), queue)])
    dying._undo_retry = lambda *_: (
        anyio.lowlevel.checkpoint()
    )  # the process is gone: nobody takes it back
    await dying._retry_due()
    [item] = await dlq.get_items()
    assert item["metadata"]["state"] == "retrying"
    for _ in range(3):
        time.advance(2 * MINUTE)
        await dlq.check()
    assert (await queue.get_job(job_id)).status is JobStatus.PENDING
    [item] = await dlq.get_items()
    assert item["retry_count"] == 1


async def test_a_failing_source_degrades_health_and_blocks_no_other(time):
    class Broken(BusDeadLetterSource):
        async def failures(self, limit, offset):
            raise ConnectionError("broker away")

    queue = InMemoryTaskQueue()
    dlq = worker(
        queue,
        sources=[Broken(None), JobDeadLetterSource(JobDeadLetters(queue), queue)],
    )
    await enqueue(queue)
    await work(queue, Mail(failures=1))
    await dlq.check()
    assert dlq.dead_letter_count == 1
    await dlq.start()
    health = await dlq.health_check()
    assert health.status is HealthStatus.DEGRADED
    assert "broker away" in health.message
    await dlq.stop()
    assert (await dlq.health_check()).status is HealthStatus.UNHEALTHY


async def test_a_retry_that_the_source_refuses_is_raised_to_the_caller_and_not_counted(time):
    class Refusing(JobDeadLetterSource):
        async def retry(self, dead_letter):
            raise DLQError("no room")

    queue = InMemoryTaskQueue()
    dlq = worker(queue, sources=[Refusing(JobDeadLetters(queue), queue)])
    job_id = await enqueue(queue)
    await work(queue, Mail(failures=1))
    await dlq.check()
    with pytest.raises(DLQError, match="no room"):
        await dlq.retry_item(job_id)
    item = await dlq.get_item(job_id)
    assert (item.retry_count, item.metadata["state"]) == (0, "waiting")
    assert "no room" in item.last_error


# --- notifications --------------------------------------------------------------------------------


@asynccontextmanager
async def webhook(*statuses):
    """A server that answers so, and keeps what it got."""
    got, answers = [], list(statuses)

    async def handle(stream):
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, body = data.partition(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            while len(body) < length:
                body += await stream.receive()
            got.append((head.decode(), json.loads(body)))
            status = answers.pop(0)
            await stream.send(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        yield f"http://127.0.0.1:{port}/alerts", got
        tasks.cancel_scope.cancel()
    await listener.aclose()


async def test_a_failed_webhook_is_called_again_and_the_others_are_not(time):
    told = []
    queue = InMemoryTaskQueue()
    async with webhook(500, 204) as (url, got):
        dlq = worker(queue, notifiers=[FunctionNotifier(told.append), WebhookNotifier(url)])
        job_id = await enqueue(queue)
        await work(queue, Mail(failures=1, error=FileNotFoundError("x")))
        for _ in range(4):
            await dlq.check()
    assert len(told) == 1
    assert len(got) == 2
    keys = {line for head, _ in got for line in head.split("\r\n") if "dempotency" in line}
    assert len(keys) == 1
    body = got[1][1]
    assert (body["event"], body["item"]["job_id"]) == ("dead_letter", job_id)
    assert "original_job" not in body["item"]


# --- the bus --------------------------------------------------------------------------------------


class Orders(MessageConsumer):
    topic = "orders"
    fail = True
    got = 0

    async def handle(self, message):
        type(self).got += 1
        if type(self).fail:
            raise ConnectionError("stock is away")


async def test_a_dead_message_of_the_bus_goes_back_and_leaves_when_it_does_not_return(time):
    from lexigram.app import Application
    from lexigram.contracts.infra.tasks import DLQProtocol
    from lexigram.contracts.queue import QueueProtocol
    from lexigram.queue import BusMessage
    from lexigram.testing.waiting import wait_until

    Orders.fail, Orders.got = True, 0
    config = QueueConfig.from_named_backend(NamedQueueConfig(name="default", primary=True))
    modules = [QueueModule.configure(config), QueueModule.scope(Orders)]
    async with Application("shop", modules=modules) as app:
        letters = app.container.get(DLQProtocol)
        dlq = worker(InMemoryTaskQueue(), sources=[BusDeadLetterSource(letters)], confirm=HOUR)
        bus = app.container.get(QueueProtocol)
        message = await bus.publish("orders", BusMessage(payload={"n": 1}, max_retries=0))
        await wait_until(letters.size)
        await dlq.check()
        [item] = await dlq.get_items()
        assert (item["job_id"], item["metadata"]["topic"]) == (message.id, "orders")
        Orders.fail = False
        time.advance(MINUTE + 1)
        await dlq.check()
        await wait_until(lambda: Orders.got == 2)
        await dlq.check()
        assert len(await dlq.get_items()) == 1
        time.advance(HOUR)
        await dlq.check()
        assert await dlq.get_items() == []
        assert (await dlq.get_stats()).succeeded_count == 1

"""A failing handler gets the message again; a stop loses nothing."""

from __future__ import annotations

import anyio

from lexigram.contracts.queue import BusMessage, QueueProtocol
from lexigram.testing.conformance.queue.protocol.spec import (
    HANG_GUARD_SECONDS,
    Collector,
    QueueCapability,
    QueueSpec,
    until,
)


class RetrySpec(QueueSpec, capability=QueueCapability.RETRY):
    """A handler that raises."""

    async def test_a_failed_message_comes_again_until_it_is_handled(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        collect = Collector(failures=2)
        await subject.subscribe(topic, collect)
        await subject.publish(topic, BusMessage(id="mine", payload=1, max_retries=3))
        await until(lambda: len(collect.messages) == 1)
        assert collect.calls == 3
        assert collect.messages[0].id == "mine"
        assert collect.messages[0].retry_count == 2

    async def test_retries_end(self, subject: QueueProtocol, topic: str) -> None:
        collect, after = Collector(failures=1000), Collector()
        await subject.subscribe(topic, collect)
        await subject.subscribe(f"{topic}.after", after)
        await subject.publish(topic, BusMessage(payload=1, max_retries=1))
        await until(lambda: collect.calls == 2)
        await subject.publish(f"{topic}.after", BusMessage(payload=1))
        await until(lambda: len(after.messages) == 1)
        assert collect.calls == 2

    async def test_one_failing_group_does_not_trouble_another(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        failing, fine = Collector(failures=1), Collector()
        await subject.subscribe(topic, failing, group="failing")
        await subject.subscribe(topic, fine, group="fine")
        await subject.publish(topic, BusMessage(payload=1))
        await until(lambda: len(failing.messages) == 1)
        assert fine.payloads == [1]


class StoppingSpec(QueueSpec, capability=QueueCapability.STOPPING):
    """close."""

    async def test_closing_lets_a_running_handler_finish_and_may_be_repeated(
        self, subject: QueueProtocol, topic: str
    ) -> None:
        started, handled = anyio.Event(), []

        async def slow(message: BusMessage) -> None:
            started.set()
            await anyio.sleep(0.05)
            handled.append(message.payload)

        await subject.subscribe(topic, slow)
        await subject.publish(topic, BusMessage(payload=1))
        with anyio.fail_after(HANG_GUARD_SECONDS):
            await started.wait()
        await subject.close()
        assert handled == [1]
        await subject.close()

    async def test_connecting_twice_is_fine(self, subject: QueueProtocol, topic: str) -> None:
        await subject.connect()
        collect = Collector()
        await subject.subscribe(topic, collect)
        await subject.publish(topic, BusMessage(payload=1))
        await until(lambda: collect.payloads == [1])

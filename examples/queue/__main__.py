"""Run the shop: ``python -m examples.queue``."""

from __future__ import annotations

import anyio

from examples.queue.app import Billing, CardService, Order, create
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.queue import BusMessage, QueueProtocol
from lexigram.queue import BusQueue, MessageConsumedEvent, MessageDeadLetteredEvent

GROUP = f"{Billing.__module__}.{Billing.__qualname__}"


async def main() -> None:
    """Two orders, one of which needs a person."""
    async with create() as app:
        queue = app.container.get(QueueProtocol)
        assert isinstance(queue, BusQueue)
        failed, paid = anyio.Event(), anyio.Event()
        events = app.container.get(EventBusProtocol)
        events.subscribe(MessageDeadLetteredEvent, lambda _: failed.set())

        for number, customer in enumerate(["Ada", "Bob"], start=1):
            order = Order(number=number, customer=customer, cents=1250)
            await queue.publish("orders.created", BusMessage(payload=order))
        await failed.wait()
        for entry in await queue.driver.list_dead("orders.created", GROUP):
            print(f"dead letter after {entry.attempts} attempts: {entry.error}")

        events.subscribe(MessageConsumedEvent, lambda _: paid.set())
        app.container.get(CardService).blocked.clear()
        await queue.driver.redrive("orders.created", GROUP)
        await paid.wait()


anyio.run(main)

"""A publisher that is cancelled stops, and is not told a failure instead."""

from __future__ import annotations

import anyio

from lexigram.contracts.core.result import Ok
from lexigram.contracts.events import EventBusProtocol
from lexigram.testing.conformance.events.spec import (
    EventBusCapability,
    EventBusSpec,
    OrderCancelled,
    OrderPlaced,
    Recorder,
)


class CancellationSpec(EventBusSpec, capability=EventBusCapability.CANCELLATION):
    """Cancelling publish."""

    async def test_cancellation_passes_through_the_handler_to_the_publisher(
        self, subject: EventBusProtocol
    ) -> None:
        cancelled: list[bool] = []
        recorder = Recorder()

        async def wait_for_ever(_: OrderPlaced) -> None:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                cancelled.append(True)
                raise

        subject.subscribe(OrderPlaced, wait_for_ever)
        subject.subscribe(OrderCancelled, recorder)
        with anyio.CancelScope() as scope:
            await subject.publish(OrderPlaced())
        assert scope.cancelled_caught
        assert cancelled == [True]
        # The bus is as good as new.
        assert await subject.publish(OrderCancelled()) == Ok(None)
        assert len(recorder.seen) == 1

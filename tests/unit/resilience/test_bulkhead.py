import asyncio

import anyio
import pytest

from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.infra.resilience import BulkheadError, BulkheadProtocol
from lexigram.resilience import Bulkhead, CallRejected, bulkhead
from lexigram.testing.fakes import FakeEventBus, FakeMetrics


def test_a_bulkhead_satisfies_its_contract():
    assert isinstance(Bulkhead(1), BulkheadProtocol)


async def test_so_many_run_so_many_wait_and_the_others_are_refused():
    metrics, bus = FakeMetrics(), FakeEventBus()
    room = Bulkhead(3, max_waiting=2, name="disk", metrics=metrics, events=bus)
    go = anyio.Event()
    tasks = [asyncio.create_task(room.execute(go.wait)) for _ in range(10)]
    await anyio.wait_all_tasks_blocked()
    assert (room.running, room.waiting) == (3, 2)
    go.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends[5:]] == [BulkheadError] * 5
    assert ends[:5] == [None] * 5
    assert (room.running, room.waiting) == (0, 0)
    assert metrics.counted("resilience.bulkhead.rejected", name="disk") == 5
    assert metrics.gauged("resilience.bulkhead.running", name="disk") == 0
    bus.assert_published(CallRejected, by="bulkhead", name="disk", count=5)


async def test_waiters_enter_in_the_order_they_came():
    room, order, go = Bulkhead(1, max_waiting=9), [], anyio.Event()

    async def enter(n):
        async with room:
            order.append(n)
            await go.wait()

    async with anyio.create_task_group() as tasks:
        for n in range(10):
            tasks.start_soon(enter, n)
        await anyio.wait_all_tasks_blocked()
        go.set()
    assert order == list(range(10))


async def test_a_cancelled_waiter_takes_no_place():
    room, go = Bulkhead(1, max_waiting=1), anyio.Event()
    holder = asyncio.create_task(room.execute(go.wait))
    waiter = asyncio.create_task(room.execute(go.wait))
    await anyio.wait_all_tasks_blocked()
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert room.waiting == 0
    go.set()
    await holder
    async with room:
        assert room.running == 1


async def test_an_error_inside_passes_and_frees_the_place():
    @bulkhead(1)
    async def fail():
        raise KeyError("mine")

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            await fail()


@pytest.mark.parametrize(("size", "waiting"), [(0, 0), (1, -1)])
def test_a_size_that_cannot_be_is_refused(size, waiting):
    with pytest.raises(ConfigurationError):
        Bulkhead(size, max_waiting=waiting)

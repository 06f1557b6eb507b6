"""Work in the background of a queue, whoever starts it."""

import asyncio

import anyio
import pytest
from anyio._core import _eventloop

from lexigram.queue.runtime.background import Background

pytestmark = pytest.mark.anyio


async def test_the_callback_of_a_timer_can_start_work(monkeypatch):
    def as_with_sniffio():
        return "asyncio" if asyncio.current_task() else None

    monkeypatch.setattr(_eventloop, "current_async_library", as_with_sniffio)
    background, done = Background("b"), anyio.Event()

    async def work(event):
        event.set()

    await background.open()
    asyncio.get_running_loop().call_later(0, lambda: background.start(work, done, name="w"))
    with anyio.fail_after(20):
        await done.wait()
    await background.close()
    assert not background.is_open

"""``Application.serve(work)``: work that lives as long as the application."""

import anyio
import pytest

from lexigram.app import Application
from lexigram.app.state import AppState
from lexigram.config import LexigramConfig
from lexigram.di import Provider

pytestmark = pytest.mark.anyio


class Part(Provider):
    def __init__(self):
        super().__init__()
        self.seen = []

    async def boot(self, container):
        self.seen.append("booted")

    async def shutdown(self):
        self.seen.append("shut down")


async def test_the_application_stops_when_the_work_has_returned():
    part = Part()
    app = Application("shop", LexigramConfig(), providers=[part])

    async def work():
        assert app.is_running
        part.seen.append("worked")

    await app.serve(work)
    assert part.seen == ["booted", "worked", "shut down"]
    assert app.state is AppState.STOPPED


async def test_work_that_raises_is_raised_after_the_application_has_stopped():
    part = Part()
    app = Application("shop", LexigramConfig(), providers=[part])

    async def work():
        raise ZeroDivisionError("in the work")

    with pytest.raises(ZeroDivisionError, match="in the work"):
        await app.serve(work)
    assert part.seen == ["booted", "shut down"]


async def test_work_is_cancelled_when_a_part_dies():
    ended = []

    class Dying(Provider):
        async def register(self, container):
            async def resource():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self.die)
                    yield object()

            container.singleton(object, factory=resource)

        async def die(self):
            await working.wait()
            raise RuntimeError("the part died")

    working = anyio.Event()

    async def work():
        working.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("work")

    with pytest.raises(Exception, match="died"):
        await Application("shop", LexigramConfig(), providers=[Dying]).serve(work)
    assert ended == ["work"]

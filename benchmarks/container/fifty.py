"""The application of fifty providers, and the same calls without an application."""

from __future__ import annotations

import time

from lexigram.app import Application
from lexigram.di import Container, Provider

clock = time.perf_counter_ns


def service(at: int) -> type:
    return type(f"Service{at}", (), {"__init__": lambda self: None})


class One(Provider):
    """Registers a service and resolves it in its boot."""

    def __init__(self, at: int) -> None:
        level = at // 10
        below = (f"p{at - 10}",) if level else ()
        super().__init__(name=f"p{at}", dependencies=below)
        self.service = SERVICES[at]

    async def register(self, container) -> None:
        container.singleton(self.service)

    async def boot(self, container) -> None:
        await container.resolve(self.service)


class Registering(One):
    """Registers a service, and has nothing to do in its boot."""

    async def boot(self, container) -> None:
        pass


SERVICES = [service(at) for at in range(50)]


def providers(kind: type[One] = One) -> list[One]:
    return [kind(at) for at in range(50)]


async def by_hand(loops: int) -> int:
    made = providers()
    start = clock()
    container = Container("benchmark")
    for provider in made:
        await provider.register(container)
    container.freeze()
    for provider in made:
        await provider.boot(container)
    return clock() - start


async def constructed(loops: int) -> int:
    made = providers()
    start = clock()
    Application("benchmark", providers=made)
    return clock() - start


async def started(loops: int) -> int:
    app = Application("benchmark", providers=providers())
    start = clock()
    await app.start()
    spent = clock() - start
    await app.stop()
    return spent


async def registered(loops: int) -> int:
    app = Application("benchmark", providers=providers(Registering))
    start = clock()
    await app.start()
    spent = clock() - start
    await app.stop()
    return spent


async def stopped(loops: int) -> int:
    app = Application("benchmark", providers=providers())
    await app.start()
    start = clock()
    await app.stop()
    return clock() - start

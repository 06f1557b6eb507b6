"""Resources live with the application, and their death stops it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lexigram.app import Application, ApplicationError, AppState
from lexigram.contracts.core.health import HealthStatus
from lexigram.di import Provider

pytestmark = pytest.mark.anyio


class Pump:
    """A background service whose task can be made to fail."""

    def __init__(self) -> None:
        self.fail = anyio.Event()
        self.saw: BaseException | None = None
        self.entered: Any = None
        self.left: Any = None

    async def work(self) -> None:
        await self.fail.wait()
        raise OSError("pump broke")


async def make_pump() -> AsyncIterator[Pump]:
    pump = Pump()
    pump.entered = asyncio.current_task()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump.work)
            try:
                yield pump
            except BaseException as error:
                pump.saw = error
                raise
            finally:
                pump.left = asyncio.current_task()
            tasks.cancel_scope.cancel()
    finally:
        pump.left = asyncio.current_task()


class PumpProvider(Provider):
    name = "pump"

    async def register(self, container: Any) -> None:
        container.singleton(Pump, factory=make_pump)


async def test_a_generator_singleton_starts_before_its_provider_boots() -> None:
    seen: list[Pump] = []

    class Early(PumpProvider):
        async def boot(self, container: Any) -> None:
            seen.append(container.get(Pump))

    async with Application("a", providers=[Early]) as app:
        assert seen == [app.container.get(Pump)]


async def test_teardown_runs_in_the_task_that_entered_and_sees_the_exception() -> None:
    with pytest.raises(ValueError, match="body"):
        async with Application("a", providers=[PumpProvider]) as app:
            pump = app.container.get(Pump)
            raise ValueError("body")
    assert pump.entered is pump.left
    assert isinstance(pump.saw, ValueError)


async def test_a_resource_that_dies_cancels_the_block_and_is_raised_with_its_name() -> None:
    with pytest.raises(ApplicationError, match="resource Pump died") as caught:
        async with Application("a", providers=[PumpProvider]) as app:
            app.container.get(Pump).fail.set()
            await anyio.sleep_forever()
    assert caught.value.__cause__ is not None
    assert app.state is AppState.STOPPED
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_dead_resource_stops_an_application_that_was_started_by_hand() -> None:
    app = Application("a", providers=[PumpProvider])
    await app.start()
    pump = app.container.get(Pump)
    pump.fail.set()
    while app.state is not AppState.STOPPED:
        await anyio.lowlevel.checkpoint()
    assert (await app.readiness()).status is HealthStatus.UNHEALTHY


async def test_a_task_group_of_a_provider_that_fails_stops_the_application() -> None:
    broke = anyio.Event()

    async def crash() -> None:
        await broke.wait()
        raise RuntimeError("worker gone")

    class Workers(Provider):
        name = "workers"

        async def boot(self, container: Any) -> None:
            self.group = anyio.create_task_group()
            await self.group.__aenter__()
            self.group.start_soon(crash)

        async def shutdown(self) -> None:
            self.group.cancel_scope.cancel()
            await self.group.__aexit__(None, None, None)

    with pytest.raises(ApplicationError, match="provider workers died"):
        async with Application("a", providers=[Workers]):
            broke.set()
            await anyio.sleep_forever()


async def test_resources_of_different_providers_start_and_stop_around_each_other() -> None:
    log: list[str] = []

    class Db: ...

    class Cache: ...

    async def make_db() -> AsyncIterator[Db]:
        log.append("+db")
        yield Db()
        log.append("-db")

    async def make_cache(db: Db) -> AsyncIterator[Cache]:
        log.append("+cache")
        yield Cache()
        log.append("-cache")

    make_cache.__annotations__["db"] = Db

    class CacheProvider(Provider):
        name = "cache"
        priority = 0

        async def register(self, container: Any) -> None:
            container.singleton(Cache, factory=make_cache)

        async def shutdown(self) -> None:
            log.append("-cache provider")

    class DbProvider(Provider):
        name = "db"
        priority = 100

        async def register(self, container: Any) -> None:
            container.singleton(Db, factory=make_db)

        async def shutdown(self) -> None:
            log.append("-db provider")

    async with Application("a", providers=[CacheProvider, DbProvider]):
        assert log == ["+db", "+cache"]
    assert log[2:] == ["-cache provider", "-db provider", "-cache", "-db"]

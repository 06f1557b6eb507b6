"""A pool of asyncpg connections without a task, a shield or a round trip per use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from lexigram.sql.postgres.connection import Driver

_CLOSING = 5.0  # seconds for a connection to say goodbye


class Pool:
    """At most ``size`` connections; dead ones are replaced when they are asked for."""

    def __init__(self, connect: Callable[[], Awaitable[Driver]], size: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Driver] = []
        self._used: set[Driver] = set()
        self._closed = False

    async def acquire(self, timeout: float) -> Driver:
        """A live connection; TimeoutError when all are in use for that long."""
        if self._slots.locked():
            async with asyncio.timeout(timeout):
                await self._slots.acquire()
        else:
            await self._slots.acquire()
        try:
            driver = self._live() or await self._connect()
        except BaseException:
            self._slots.release()
            raise
        self._used.add(driver)
        return driver

    def release(self, driver: Driver) -> None:
        """Take it back; one that is in a transaction still is cut, which rolls back."""
        if driver not in self._used:
            return
        self._used.discard(driver)
        if not driver.is_closed():
            if self._closed or driver.is_in_transaction():
                driver.terminate()
            else:
                self._idle.append(driver)
        self._slots.release()

    async def close(self) -> None:
        """Close idle connections and cut those in use."""
        self._closed = True
        for driver in list(self._used):
            driver.terminate()
        while self._idle:
            driver = self._idle.pop()
            with anyio.move_on_after(_CLOSING):
                await driver.close()
                continue
            driver.terminate()

    def _live(self) -> Driver | None:
        while self._idle:
            driver = self._idle.pop()
            if not driver.is_closed():
                return driver
        return None
